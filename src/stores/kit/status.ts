import type { Watch } from "../../contracts/housekeeping.ts";
import type { BreakerStatus, OldestAges, OldestStatus, Status, TailStatus } from "../../contracts/operator.ts";
import { states, type State } from "../../core/event.ts";
import { LANES } from "../../core/lane.ts";
import { otherTopics } from "../../core/other-topics.ts";

/** Holds and groups beyond these are counted, not listed. */
export const shown = 100;
/** Up to this number rows are counted one by one. Above it they are estimated. */
export const counted = 100_000;

export const noEvents = (): Record<State, number> => Object.fromEntries(states.map((state) => [state, 0])) as Record<State, number>;

/** How the values of a store's rows are read. */
export interface Cells<Row> {
  text(row: Row, name: string): string;
  textOrNull(row: Row, name: string): string | null;
  number(row: Row, name: string): number;
  isSet(row: Row, name: string): boolean;
  /** Null if there is no date, or an invalid one. */
  dateOrNull(row: Row, name: string): Date | null;
}

/** The rows that a store has read. The column names are the same in every store. */
export interface StatusRows<Row> {
  readonly states: Readonly<Record<State, number>>;
  readonly estimated: readonly State[];
  /** By the clock that wrote the events. */
  readonly nowMs: number;
  /** When the oldest events began to wait: wait (a `Wait`), aggregate_type (NULL: of all types), since. */
  readonly oldest: readonly Row[];
  /** The lanes with an owner, in order: lane, owner. */
  readonly lanes: readonly Row[];
  /** relay, live, expires_at, claimed, window_limit. */
  readonly relays: readonly Row[];
  /** aggregate_type, aggregate_id, why, destination, cause_id, since, releasing. */
  readonly holds: readonly Row[];
  /** destination, why, since, aggregates. */
  readonly breakers: readonly Row[];
  /** error, events, oldest, example. */
  readonly dead: readonly Row[];
  /** holds, those of them that wait for a topic (`waiting`), claimed, suspects. */
  readonly facts: Row;
  readonly schemaVersion: number;
  /** Absent where the store reads no log. */
  readonly tail?: TailStatus;
  readonly watch: Watch;
}

export function statusOf<Row>(of: StatusRows<Row>, { text, textOrNull, number, isSet, dateOrNull }: Cells<Row>): Status {
  const { states: counts, estimated, nowMs, facts, schemaVersion, tail, watch } = of;
  const date = (row: Row, name: string): Date => dateOrNull(row, name) ?? new Date(0);
  const live = new Set(of.relays.filter((row) => isSet(row, "live")).map((row) => text(row, "relay")));
  const owned = of.lanes.filter((row) => live.has(text(row, "owner"))).length;
  return {
    states: counts,
    estimated,
    ...oldestOf(
      of.oldest.flatMap((row) => {
        const since = dateOrNull(row, "since");
        if (since === null) return [];
        return [{ wait: text(row, "wait") as Wait, aggregateType: textOrNull(row, "aggregate_type"), ageMs: nowMs - since.getTime() }];
      }),
    ),
    relays: of.relays.map((row) => ({
      relay: text(row, "relay"),
      live: isSet(row, "live"),
      expiresAt: date(row, "expires_at"),
      lanes: of.lanes.filter((lane) => text(lane, "owner") === text(row, "relay")).map((lane) => number(lane, "lane")),
      window: number(row, "claimed"),
      windowLimit: number(row, "window_limit"),
    })),
    lanes: { total: LANES, owned, free: LANES - owned },
    holds: {
      aggregates: number(facts, "holds"),
      blocked: counts.BLOCKED,
      list: of.holds.map((row) => ({
        aggregateType: text(row, "aggregate_type"),
        aggregateId: text(row, "aggregate_id"),
        why: text(row, "why"),
        destination: textOrNull(row, "destination"),
        causeId: textOrNull(row, "cause_id"),
        since: date(row, "since"),
        releasing: isSet(row, "releasing"),
      })),
    },
    breakers: breakersOf(
      of.breakers.map((row) => ({
        destination: text(row, "destination"),
        why: text(row, "why"),
        since: date(row, "since"),
        aggregates: number(row, "aggregates"),
      })),
      number(facts, "waiting"),
    ),
    window: { events: number(facts, "claimed"), suspects: number(facts, "suspects") },
    dead: of.dead.map((row) => ({
      error: text(row, "error"),
      events: number(row, "events"),
      oldest: date(row, "oldest"),
      example: text(row, "example"),
    })),
    schemaVersion,
    ...(tail !== undefined && { tail }),
    watch,
  };
}

/** What waits for no topic with a record of its own waits under that of all others. */
export function breakersOf(records: readonly BreakerStatus[], waiting: number): readonly BreakerStatus[] {
  const own = records.filter(({ destination }) => destination !== otherTopics);
  const others = waiting - own.reduce((sum, { aggregates }) => sum + aggregates, 0);
  return records
    .map((record) => (record.destination === otherTopics ? { ...record, aggregates: Math.max(0, others) } : record))
    .slice(0, shown);
}

/** What an event waits for. `later`: its own time, to become due or to be tried again. */
export type Wait = "claimable" | "later" | "blocked" | "dead";

interface Waiting {
  readonly wait: Wait;
  /** Null: of all types. */
  readonly aggregateType: string | null;
  readonly ageMs: number;
}

export function oldestOf(waiting: readonly Waiting[]): Pick<Status, "oldestUnpublishedMs" | "oldest"> {
  const most = (some: readonly Waiting[]): number | null =>
    some.length === 0
      ? null
      : Math.max(
          0,
          some.reduce((oldest, { ageMs }) => Math.max(oldest, ageMs), 0),
        );
  const ages = (some: readonly Waiting[]): OldestAges => {
    const of = (wait: Wait): number | null => most(some.filter((one) => one.wait === wait));
    return { claimableMs: of("claimable"), blockedMs: of("blocked"), deadMs: of("dead") };
  };
  const byType = new Map<string, Waiting[]>();
  for (const one of waiting) {
    if (one.aggregateType === null || one.wait === "later") continue;
    const same = byType.get(one.aggregateType);
    if (same === undefined) byType.set(one.aggregateType, [one]);
    else same.push(one);
  }
  const types = [...byType]
    .map(([aggregateType, some]) => ({ aggregateType, longest: most(some)!, ...ages(some) }))
    .sort((a, b) => b.longest - a.longest)
    .slice(0, shown)
    .map(({ longest: _, ...type }) => type);
  return {
    oldestUnpublishedMs: most(waiting.filter(({ wait }) => wait !== "dead")),
    oldest: { ...ages(waiting), types } satisfies OldestStatus,
  };
}

/** From rows of wait, aggregate_type and since, selects the oldest of each wait, over all types and by type. */
export const oldestSql = (waiting: string): string =>
  `WITH waiting AS (${waiting})
   SELECT wait, NULL AS aggregate_type, min(since) AS since FROM waiting GROUP BY wait
   UNION ALL
   SELECT * FROM (SELECT wait, aggregate_type, min(since) AS since FROM waiting GROUP BY wait, aggregate_type ORDER BY 3 LIMIT ${4 * shown}) types`;
