import type { Run } from "./connection.ts";
import type { Names } from "./names.ts";
import { groupsOf } from "./pending.ts";
import { bigOf, textOf } from "./rows.ts";
import { list } from "./values.ts";

/** What a claim would find. */
export interface Seen {
  /** Pending rows, in flight or not. */
  readonly ready: boolean;
  /** Failed events whose turn has come. */
  readonly due: boolean;
  /** Delayed events whose moment has come. */
  readonly delayed: boolean;
  readonly releasing: boolean;
  readonly suspicious: boolean;
  readonly destinations: readonly string[];
  /** How often operators have put rows back into these lanes. */
  readonly reopened: bigint;
}

/** In one statement and without a lock: an idle relay disturbs no other session. */
export async function look(run: Run, n: Names, lanes: readonly number[], floorOf: (lane: number) => bigint): Promise<Seen> {
  const mine = list(lanes);
  const some = (kind: string, which: string): string => `SELECT '${kind}', NULL, NULL FROM (SELECT 1 FROM ${which} LIMIT 1) found`;
  const waiting = (status: string): string =>
    `${n.outbox} FORCE INDEX (due) WHERE due_at <= UTC_TIMESTAMP(6) AND status = '${status}' AND lane IN (${mine})`;
  const rows = await run(
    [
      `SELECT 'reopened' AS kind, SUM(reopened) AS number, NULL AS name FROM ${n.lanes} WHERE lane IN (${mine})`,
      ...groupsOf(lanes, floorOf).map((group) =>
        some("ready", `${n.outbox} FORCE INDEX (ready) WHERE ready = 1 AND seq > ${group.floor} AND lane IN (${list(group.lanes)})`),
      ),
      some("due", waiting("FAILED")),
      some("delayed", waiting("PENDING")),
      some("releasing", `${n.holds} WHERE releasing IN (${mine})`),
      some("suspicious", `${n.suspects} WHERE lane IN (${mine})`),
      `SELECT DISTINCT 'destination', NULL, CAST(destination AS BINARY) FROM ${n.destinations} WHERE lane IN (${mine})`,
    ].join(" UNION ALL "),
  );
  const of = (kind: string): typeof rows => rows.filter((row) => textOf(row, "kind") === kind);
  return {
    ready: of("ready").length > 0,
    due: of("due").length > 0,
    delayed: of("delayed").length > 0,
    releasing: of("releasing").length > 0,
    suspicious: of("suspicious").length > 0,
    destinations: of("destination")
      .map((row) => textOf(row, "name"))
      .sort(),
    reopened: bigOf(of("reopened")[0]!, "number"),
  };
}
