import type { Entry, HandedEvent, Written } from "./history.ts";
import type { Reads } from "./reads.ts";
import { isToBlame, troublesOf, type Trouble } from "./troubles.ts";

/** What became of a writer's event. */
type Fate =
  | "committed"
  /** Rolled back, or its savepoint was. */
  | "undone"
  /** Committed, and then forgotten by the database in a fail-over. */
  | "forgotten"
  /** It cannot be known. */
  | "unknown";

export interface Event extends Written {
  readonly fate: Fate;
  /** When it was committed, as far as its writer knows. */
  readonly committedAt: number | null;
  /** The database has it, although its writer was told that the transaction failed. */
  readonly denied: boolean;
}

/** Facts that several checks need, from one pass over the history. */
export interface Facts {
  readonly history: readonly Entry[];
  readonly reads: Reads;
  readonly events: ReadonlyMap<string, Event>;
  /** Died under the policy `skip`: its followers went on. */
  readonly skipped: ReadonlySet<string>;
  /** Given up by an operator. */
  readonly discarded: ReadonlySet<string>;
  /** Applied after an operator had redriven its letter: the consumer and the id. */
  readonly redriven: ReadonlySet<string>;
  readonly troubles: readonly Trouble[];
  /** A reason to give it up: a fault of the event, its aggregate or topic, or several relays killed with it alone in their window. */
  hasCause(event: Event): boolean;
  /** When the last fault was healed. Null when that was not recorded. */
  readonly healedAt: number | null;
}

type Add = Extract<Entry, { op: "add" }>;

export function factsOf(history: readonly Entry[], reads: Reads): Facts {
  const transactions = new Map<string, { begun: Add; end: Add | null }>();
  const skipped = new Set<string>();
  const discarded = new Set<string>();
  const given = new Set<string>();
  const redriven = new Set<string>();
  let healedAt: number | null = null;
  for (const entry of history) {
    if (entry.op === "add" && entry.phase === "invoked") transactions.set(entry.tx, { begun: entry, end: null });
    else if (entry.op === "add") {
      const transaction = transactions.get(entry.tx);
      if (transaction !== undefined) transaction.end = entry;
    } else if (entry.op === "settle") {
      for (const { id, as, release } of entry.outcomes) if (as === "parked" && release === true) skipped.add(id);
    } else if (entry.op === "operate") {
      if (entry.phase !== "ok") continue;
      if (entry.consumer === undefined && entry.action === "discard") entry.ids.forEach((id) => discarded.add(id));
      if (entry.consumer !== undefined && entry.action === "redrive") entry.ids.forEach((id) => given.add(`${entry.consumer} ${id}`));
    } else if (entry.op === "effect") {
      const key = `${entry.consumer} ${entry.id}`;
      if (entry.phase === "ok" && given.has(key)) redriven.add(key);
    } else if (entry.op === "fault") {
      if (entry.fault === "heal") healedAt = entry.at;
    }
  }
  const troubles = troublesOf(history);
  const failedOverAt = Math.max(-Infinity, ...troubles.filter(({ fault }) => fault === "failover").map(({ until }) => until));
  const known = reads.written === null ? null : new Set(reads.written.map(({ id }) => id));
  const events = new Map<string, Event>();
  for (const { begun, end } of transactions.values()) {
    // If the end is unknown, the transaction may have been committed, and forgotten, at any time since it began.
    const decided = end?.phase === "ok" ? end.at : begun.at;
    for (const event of begun.events ?? []) {
      const phase = event.undone === true ? "failed" : (end?.phase ?? "unknown");
      const kept = known?.has(event.id) ?? null;
      const fate = fateOf(phase, kept, decided <= failedOverAt);
      events.set(event.id, { ...event, fate, committedAt: phase === "ok" ? end!.at : null, denied: phase === "failed" && kept === true });
    }
  }
  // Most events have no fault of their own, and most faults harm everything.
  const targets = new Set(troubles.map(({ target }) => target));
  const scoped = troubles.filter(({ scope }) => scope !== "all");
  const diedWith = deathsOf(history);
  const hasCause = (event: Event): boolean =>
    targets.has(event.id) || (diedWith.get(event.id) ?? 0) >= deathsToPark || scoped.some((trouble) => isToBlame(trouble, event));
  return { history, reads, events, skipped, discarded, redriven, troubles, hasCause, healedAt };
}

/** A relay parks an event after this many deaths. Whether the event caused a death, or the relay was killed meanwhile, cannot be known. */
const deathsToPark = 3;

/** How many processes claimed an event alone, and never settled it. */
function deathsOf(history: readonly Entry[]): ReadonlyMap<string, number> {
  const holders = new Map<string, Set<string>>();
  for (const entry of history) {
    if (entry.phase !== "ok") continue;
    if (entry.op === "claim" && entry.claims.length === 1) {
      const [{ id }] = entry.claims as [HandedEvent];
      holders.set(id, (holders.get(id) ?? new Set()).add(entry.process));
    } else if (entry.op === "settle") {
      for (const { id } of entry.outcomes) holders.get(id)?.delete(entry.process);
    }
  }
  return new Map([...holders].map(([id, { size }]) => [id, size]));
}

/** The database's answer takes precedence over the writer's, which may not know how its transaction ended. */
function fateOf(phase: Entry["phase"], kept: boolean | null, failedOver: boolean): Fate {
  if (kept === true) return "committed";
  if (phase === "failed") return "undone";
  if (phase === "ok") return kept === false && failedOver ? "forgotten" : "committed";
  if (kept === null) return "unknown";
  return failedOver ? "forgotten" : "undone";
}
