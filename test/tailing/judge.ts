/** What the database says was committed. */
export interface Committed {
  readonly id: string;
  readonly aggregate: string;
  readonly seq: number;
  /** By the database's clock, in milliseconds: the insert, and from when on it may be published (null: at once). */
  readonly insertedAt: number;
  readonly dueAt: number | null;
}

/** A message that came to the broker. The broker's clock is that of the whole play. */
export interface Arrival {
  readonly id: string;
  readonly at: number;
  readonly relay: string;
  /** False: the broker refused it, and does not have it. */
  readonly stored: boolean;
  /** False: its relay was never told. */
  readonly answered: boolean;
  /** What is not as its writer made it. */
  readonly changed?: string;
}

/** Something that may cost copies. */
export interface Trouble {
  readonly kind: string;
  /** Whose events in flight it may copy. */
  readonly relays: readonly string[] | "all";
  readonly from: number;
  readonly until: number;
  /** At most this many copies. */
  readonly copies: number;
}

/** What the tables say when everything has come to rest. */
export interface Rest {
  /** False: something still waited when the time for it was over. */
  readonly reached: boolean;
  /** Ids of rows that the view does not call PUBLISHED, with what it calls them. */
  readonly states: ReadonlyMap<string, string>;
  /** Ids of committed events without a row. */
  readonly vanished: readonly string[];
  /** Ids of rows that no committed transaction wrote. */
  readonly invented: readonly string[];
  readonly slots: readonly string[];
  /** The slot that the tables know of. Undefined: they do not say. */
  readonly knownSlot?: string | null;
}

export interface Facts {
  readonly committed: readonly Committed[];
  readonly arrivals: readonly Arrival[];
  readonly troubles: readonly Trouble[];
  readonly rest: Rest;
  /** The last arrival of each event that was judged before: it may only come as a copy. */
  readonly earlier: ReadonlyMap<string, Arrival>;
  /** What the play itself saw go wrong. */
  readonly alarms: readonly string[];
}

export type Wrong = "lost" | "phantom" | "changed" | "order" | "copy" | "copies" | "state" | "slot" | "alarm";

export interface Finding {
  readonly wrong: Wrong;
  readonly text: string;
  readonly ids: readonly string[];
}

export interface Judgement {
  readonly findings: readonly Finding[];
  readonly copies: number;
  /** Copies whose first message was never answered: no relay could know. */
  readonly unanswered: number;
  /** How many copies were laid on each kind of trouble, and the most that one trouble of the kind had. */
  readonly laid: ReadonlyMap<string, { readonly copies: number; readonly most: number }>;
}

/** Judges a history when all has come to rest. Pure. */
export function judge(facts: Facts): Judgement {
  const findings: Finding[] = [];
  const found = (wrong: Wrong, text: string, ...ids: string[]): void => void findings.push({ wrong, text, ids });
  const known = new Map(facts.committed.map((event) => [event.id, event]));
  const attempts = new Map<string, number>();
  const stored = new Map<string, { readonly at: number; readonly arrival: Arrival }[]>();
  facts.arrivals.forEach((arrival, at) => {
    const { id, relay, changed } = arrival;
    if (!known.has(id) && !facts.earlier.has(id)) found("phantom", `${id} came from ${relay}, and was never committed`, id);
    if (changed !== undefined) found("changed", `${id} came from ${relay} with another ${changed}`, id);
    if (!attempts.has(id)) attempts.set(id, at);
    if (!arrival.stored) return;
    const all = stored.get(id);
    if (all === undefined) stored.set(id, [{ at, arrival }]);
    else all.push({ at, arrival });
  });
  for (const { id, aggregate, seq } of facts.committed)
    if (!stored.has(id)) found("lost", `${aggregate} #${seq} was committed and never came: its row is ${stateOf(facts.rest, id)}`, id);
  outOfOrder(facts.committed, attempts, new Map([...stored].map(([id, all]) => [id, all[0]!.at])), found);
  const copied = copies(stored, facts, found);
  tables(facts, stored, found);
  for (const alarm of facts.alarms) found("alarm", alarm);
  return { findings, ...copied };
}

type Found = (wrong: Wrong, text: string, ...ids: string[]) => void;

const stateOf = ({ states, vanished }: Rest, id: string): string => (vanished.includes(id) ? "gone" : (states.get(id) ?? "PUBLISHED"));

/**
 * No event is even tried before its aggregate's earlier events are stored. A delayed event is compared only with events that were inserted
 * after it had become due: until then others pass it. A lost event is reported as lost.
 */
function outOfOrder(
  committed: readonly Committed[],
  attempts: ReadonlyMap<string, number>,
  stored: ReadonlyMap<string, number>,
  found: Found,
): void {
  const lines = new Map<string, Committed[]>();
  for (const event of committed) {
    const line = lines.get(event.aggregate);
    if (line === undefined) lines.set(event.aggregate, [event]);
    else line.push(event);
  }
  for (const line of lines.values()) {
    line.sort((a, b) => a.seq - b.seq);
    /** The one that was stored last of those that have to be before. */
    let last: Committed | null = null;
    const placeOf = (event: Committed | null): number => (event === null ? -1 : (stored.get(event.id) ?? -1));
    let delayed: Committed[] = [];
    for (const event of line) {
      const joined = delayed.filter(({ dueAt }) => dueAt! < event.insertedAt);
      if (joined.length > 0) delayed = delayed.filter(({ dueAt }) => dueAt! >= event.insertedAt);
      for (const each of joined) if (placeOf(each) > placeOf(last)) last = each;
      const tried = attempts.get(event.id);
      if (tried !== undefined && last !== null && tried < placeOf(last)) {
        const which = last.dueAt === null ? "" : ` (due ${Math.round(event.insertedAt - last.dueAt)} ms before the other was added)`;
        found("order", `${event.aggregate}: #${event.seq} was sent before #${last.seq}${which} was stored`, last.id, event.id);
      }
      if (event.dueAt !== null) delayed.push(event);
      else if (placeOf(event) > placeOf(last)) last = event;
    }
  }
}

type Stored = ReadonlyMap<string, readonly { readonly arrival: Arrival }[]>;

/** Each copy needs a trouble between the first message and the second, and a trouble explains no more than its share. */
function copies(stored: Stored, { troubles, earlier }: Facts, found: Found): Omit<Judgement, "findings"> {
  let [total, unanswered] = [0, 0];
  const asked: Asked[] = [];
  for (const [id, all] of stored) {
    for (const [nth, { arrival: copy }] of all.entries()) {
      const before = nth === 0 ? earlier.get(id) : all[nth - 1]!.arrival;
      if (before === undefined) continue;
      total++;
      if (!before.answered) {
        unanswered++;
        continue;
      }
      const by = [...troubles.entries()].flatMap(([at, trouble]) => (explains(trouble, before, copy) ? [at] : []));
      const text = `${id} came from ${before.relay} and ${Math.round(copy.at - before.at)} ms later from ${copy.relay}`;
      if (by.length === 0) found("copy", `${text}, and nothing had happened`, id);
      else asked.push({ id, by, text });
    }
  }
  const { used, left } = lay(asked, troubles);
  for (const { by, text, id } of left) {
    const [{ kind, copies }] = by.map((at) => troubles[at]!) as [Trouble, ...Trouble[]];
    found("copies", `${text}: ${kind} may cost ${copies} copies, and all that happened together cost more than it may`, id);
  }
  const laid = new Map<string, { copies: number; most: number }>();
  for (const [at, { kind }] of troubles.entries()) {
    const known = laid.get(kind) ?? { copies: 0, most: 0 };
    laid.set(kind, { copies: known.copies + used[at]!, most: Math.max(known.most, used[at]!) });
  }
  return { copies: total, unanswered, laid };
}

interface Asked {
  readonly id: string;
  /** The places of the troubles that explain it. */
  readonly by: readonly number[];
  readonly text: string;
}

/** Lays each copy on one of its troubles, as many as possible, and what the machine is to blame for last. */
function lay(asked: readonly Asked[], troubles: readonly Trouble[]): { readonly used: readonly number[]; readonly left: readonly Asked[] } {
  const on = troubles.map((): Asked[] => []);
  const find = (copy: Asked, tried: Set<number>): boolean => {
    for (const at of copy.by) {
      if (tried.has(at)) continue;
      tried.add(at);
      const there = on[at]!;
      const place = there.length < troubles[at]!.copies ? there.length : there.findIndex((other) => find(other, tried));
      if (place === -1) continue;
      there[place] = copy;
      return true;
    }
    return false;
  };
  const rank = (at: number): number => (troubles[at]!.kind === "stall" ? 1 : 0);
  const sorted = asked.map((copy) => ({ ...copy, by: copy.by.toSorted((a, b) => rank(a) - rank(b)) }));
  const left = sorted.filter((copy) => !find(copy, new Set()));
  return { used: on.map(({ length }) => length), left };
}

const explains = ({ relays, from, until }: Trouble, before: Arrival, copy: Arrival): boolean =>
  before.at <= until && copy.at >= from && (relays === "all" || relays.includes(before.relay) || relays.includes(copy.relay));

function tables({ rest, earlier }: Facts, stored: Stored, found: Found): void {
  if (!rest.reached) found("state", `not everything came to rest: ${rest.states.size} rows wait`);
  for (const [id, state] of rest.states) found("state", `${id} is ${state}${stored.has(id) ? ", and has come" : ""}`, id);
  for (const id of rest.vanished) found("state", `the row of ${id} is gone`, id);
  for (const id of rest.invented) if (!earlier.has(id)) found("state", `nobody committed the row of ${id}`, id);
  if (rest.slots.length > 1) found("slot", `there are ${rest.slots.length} slots: ${rest.slots.join(", ")}`);
  else if (rest.knownSlot !== undefined && rest.slots[0] !== undefined && rest.slots[0] !== rest.knownSlot)
    found("slot", `the slot ${rest.slots[0]} is an orphan: the tables know of ${rest.knownSlot ?? "none"}`);
}
