import type { PathEvent } from "../../src/core/path-events.ts";
import type { Deed } from "./deeds.ts";
import { effectOf, isBad, type Planned } from "./events.ts";
import { isLimited, type Cell } from "./features.ts";
import type { Stored } from "./topics.ts";

/** What is seen from outside: by plain SQL, and by a raw client of the broker. */
export interface Outcome {
  /** By the ids of the outbox's rows. */
  readonly states: ReadonlyMap<string, string>;
  /** Rows that are neither published nor given up. */
  readonly waiting: number;
  /** In the order in which they were inserted. */
  readonly effects: readonly string[];
  readonly letters: readonly { readonly id: string; readonly error: string }[];
  readonly stored: readonly Stored[];
  /** The shared row. */
  readonly shared: number;
}

export interface Case {
  readonly cell: Cell;
  readonly deed: Deed;
  readonly added: { readonly ids: ReadonlyMap<string, Planned>; readonly phantom: string };
  readonly outcome: Outcome;
  readonly events: readonly PathEvent[];
  /** The effects of events that were given to one call of a handler together with one that the deed is done to. */
  readonly company: ReadonlySet<string>;
  /** Letters were redriven after their cause had gone. */
  readonly isHealed: boolean;
}

/** What is wrong, in words. */
export function judge(of: Case): readonly string[] {
  return [...rows(of), ...copies(of), ...effects(of), ...order(of), ...silence(of)];
}

const times = (values: readonly string[]): ReadonlyMap<string, number> => {
  const counts = new Map<string, number>();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return counts;
};

/** L, P: each row is published, or given up where that was asked for. */
function rows({ cell, added: { ids, phantom }, outcome: { states } }: Case): string[] {
  const wrong: string[] = [];
  const isGone = cell.published.startsWith("deleted");
  if (states.has(phantom)) wrong.push("the row of a transaction that was rolled back is there");
  for (const [id, event] of ids) {
    const gaveUp = cell.refused === "blocks" ? "DISCARDED" : "DEAD";
    const expected = event.forbidden === true ? gaveUp : isGone ? undefined : "PUBLISHED";
    if (states.get(id) !== expected) wrong.push(`${effectOf(event)} is ${states.get(id) ?? "gone"}, not ${expected ?? "gone"}`);
  }
  return wrong;
}

/** L, P, D: the broker has each event once, and no other. */
function copies({ deed, added: { ids, phantom }, outcome }: Case): string[] {
  const wrong: string[] = [];
  const seen = times(outcome.stored.map(({ id }) => id));
  const parcels = [...seen.keys()].filter((id) => !ids.has(id) && id !== phantom);
  if (seen.has(phantom)) wrong.push("an event of a transaction that was rolled back was published");
  for (const [id, event] of ids) {
    const expected = event.forbidden === true ? 0 : 1;
    if ((seen.get(id) ?? 0) !== expected) wrong.push(`the broker has ${effectOf(event)} ${seen.get(id) ?? 0} times, not ${expected}`);
  }
  const orders = [...ids.values()].filter(({ forbidden }) => forbidden !== true).length;
  const expected = deed.adds === true ? orders : 0;
  if (parcels.length !== expected) wrong.push(`the broker has ${parcels.length} events of handlers, not ${expected}`);
  for (const id of parcels) if (seen.get(id)! > 1) wrong.push(`the broker has a handler's event ${seen.get(id)} times`);
  return wrong;
}

/** E, I: each effect once; a bad event harms itself only. */
function effects({ cell, deed, added: { ids }, outcome, company, isHealed }: Case): string[] {
  const wrong: string[] = [];
  const seen = times(outcome.effects);
  const letters = new Map(outcome.letters.map(({ id, error }) => [id, error]));
  let applied = 0;
  for (const [id, event] of ids) {
    if (event.forbidden === true) continue;
    const name = effectOf(event);
    const count = seen.get(name) ?? 0;
    const isCompany = deed.fate === "own" && company.has(name);
    const letter = letters.get(id);
    if (count === 1) applied += 1;
    if (count > 1) wrong.push(`${name} has its effect ${count} times`);
    const fate = isBad(deed, event) || (isCompany && isLimited(cell)) ? deed.fate : "applied";
    if (fate === "applied" && letter !== undefined) wrong.push(`${name} is a letter: ${letter}`);
    if (fate === "applied" && count === 0) wrong.push(`${name} has no effect`);
    const isOne = count === (letter === undefined ? 1 : 0);
    if (fate === "letter" && !isHealed && letter === undefined) wrong.push(`${name} is no letter`);
    if ((fate === "letter" || fate === "either") && !isOne)
      wrong.push(`${name} has its effect ${count} times, and ${letter === undefined ? "is no letter" : `is a letter: ${letter}`}`);
    if (fate === "letter" && isHealed && letter !== undefined) wrong.push(`${name} stays a letter after its redrive: ${letter}`);
    if (fate === "own" && count === 0 && letter === undefined) wrong.push(`${name} has no effect, and is no letter`);
    const parcel = seen.get(`p-${name}`) ?? 0;
    if (parcel !== (deed.adds === true ? 1 : 0)) wrong.push(`the event that the handler of ${name} added has its effect ${parcel} times`);
  }
  for (const id of letters.keys()) if (!ids.has(id)) wrong.push(`a letter of no event of ours: ${letters.get(id)}`);
  if (deed.shares === true && outcome.shared !== applied) wrong.push(`the shared row counts ${outcome.shared}, not ${applied}`);
  return wrong;
}

/** O: one aggregate's events were stored, and had their effects, in order. */
function order({ added: { ids }, outcome, isHealed }: Case): string[] {
  const wrong: string[] = [];
  const check = (what: string, seen: readonly Pick<Planned, "aggregateId" | "n">[]): void => {
    const last = new Map<string, number>();
    for (const { aggregateId, n } of seen) {
      // A delayed event joins its aggregate's order when it becomes available.
      if (aggregateId.endsWith("d-0")) continue;
      if (n <= (last.get(aggregateId) ?? 0)) wrong.push(`${what} of ${aggregateId} out of order: ${n} after ${last.get(aggregateId)}`);
      last.set(aggregateId, n);
    }
  };
  check(
    "messages",
    outcome.stored.flatMap(({ id }) => ids.get(id) ?? []),
  );
  // A redriven letter comes after its followers.
  if (!isHealed)
    check(
      "effects",
      outcome.effects.map((name) => ({ aggregateId: name.split(" ")[0]!, n: Number(name.split(" ")[1]) })),
    );
  return wrong;
}

/** V: what was given up was told, and nothing else was. */
function silence({ outcome, events, isHealed }: Case): string[] {
  const died = new Set(events.flatMap((event) => (event.type === "subscriber.died" ? [event.id] : [])));
  const wrong = outcome.letters.filter(({ id }) => !died.has(id)).map(({ id }) => `nothing told of the letter ${id}`);
  if (isHealed) return wrong;
  const letters = new Set(outcome.letters.map(({ id }) => id));
  return [...wrong, ...[...died].filter((id) => !letters.has(id)).map((id) => `${id} died, and is no letter`)];
}
