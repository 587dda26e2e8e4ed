import { states, type State } from "../../core/event.ts";
import type { SqliteRow, Statements } from "../../drivers/sqlite/connection.ts";
import { counted, noEvents, oldestSql } from "../kit/status.ts";
import { delayed, pending } from "./predicates.ts";
import { foreign, iso, toldError } from "./rows.ts";
import { publishingAt } from "./events.ts";

/** How many seqs an estimate samples. */
const sampled = 1_000;

/** Each condition has an index that holds no other rows, so that counting stops at the bound and reads no payload. */
const indexed: Readonly<Partial<Record<State, readonly string[]>>> = {
  PENDING: [pending, delayed],
  FAILED: ["status = 'FAILED'"],
  BLOCKED: ["status = 'BLOCKED'"],
  DEAD: ["status = 'DEAD'"],
  DISCARDED: ["status = 'DISCARDED'"],
  PUBLISHED: ["status = 'PUBLISHED' AND published_at IS NOT NULL"],
};

interface Counts {
  readonly states: Record<State, number>;
  readonly estimated: readonly State[];
}

/** Takes as long at millions of events as at a hundred thousand. */
export function countStates(statements: Statements, nowMs: number): Counts {
  const counts = noEvents();
  for (const [state, rules] of Object.entries(indexed) as [State, readonly string[]][])
    for (const rule of rules)
      counts[state] += Number(statements.get(`SELECT count(*) AS n FROM (SELECT 1 FROM outbox WHERE ${rule} LIMIT ${counted + 1})`)?.["n"]);
  const estimated = states.filter((state) => counts[state] > counted);
  if (estimated.length > 0) {
    const estimates = estimate(statements);
    for (const state of estimated) counts[state] = Math.max(counted + 1, estimates.get(state) ?? 0);
  }
  const publishing = statements.all(
    `SELECT o.status, count(*) AS n FROM (${publishingAt("?")}) w JOIN outbox o ON o.seq = w.seq
     WHERE o.status IN ('PENDING', 'FAILED') GROUP BY o.status`,
    [iso(nowMs)],
  );
  for (const row of publishing) {
    counts.PUBLISHING += Number(row["n"]);
    counts[String(row["status"]) as State] -= Number(row["n"]);
  }
  return { states: counts, estimated };
}

/** From samples all over the range of seqs. They are the same each time: a count that jumps would look like traffic. */
function estimate(statements: Statements): ReadonlyMap<string, number> {
  const range = statements.get("SELECT (SELECT min(seq) FROM outbox) AS first, (SELECT max(seq) FROM outbox) AS last");
  const first = Number(range?.["first"]);
  const span = Number(range?.["last"]) - first + 1;
  const golden = (Math.sqrt(5) - 1) / 2;
  const places = Array.from({ length: sampled }, (_, n) => first + Math.floor(((n * golden) % 1) * span));
  const found = statements.all("SELECT o.status, count(*) AS n FROM json_each(?) j JOIN outbox o ON o.seq = j.value GROUP BY o.status", [
    JSON.stringify(places),
  ]);
  return new Map(found.map((row) => [String(row["status"]), Math.round((Number(row["n"]) / sampled) * span)]));
}

const isDate = "at GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' AND julianday(at) IS NOT NULL";
/** A delayed event is late only from the moment it is due. */
const since = "max(created_at, coalesce(available_at, created_at)) AS at";

/** When the longest waiting events began to wait. If more are pending than are counted, the first event of each lane stands for it. */
export function oldestWaiting(statements: Statements, { states: { PENDING } }: Counts, nowMs: number): readonly SqliteRow[] {
  const some = (wait: string, rule: string): string =>
    `SELECT * FROM (SELECT ${wait} AS wait, ${foreign("aggregate_type")} AS aggregate_type, ${since} FROM outbox WHERE ${rule} LIMIT ${counted})`;
  const due = (moment: string): string => `CASE WHEN ${moment} <= '${iso(nowMs)}' THEN 'claimable' ELSE 'later' END`;
  const heads = `SELECT 'claimable', ${foreign("o.aggregate_type")}, max(o.created_at, coalesce(o.available_at, o.created_at))
                 FROM (SELECT lane FROM waybill_lanes UNION ALL SELECT NULL) l
                 JOIN outbox o ON o.seq = (SELECT seq FROM outbox WHERE lane IS l.lane AND ${pending} ORDER BY seq LIMIT 1)`;
  const waiting = [
    some(due("available_at"), `${delayed} ORDER BY available_at`),
    PENDING > counted ? heads : some("'claimable'", pending),
    some(due("next_attempt_at"), "status = 'FAILED'"),
    some("'blocked'", "status = 'BLOCKED'"),
    some("'dead'", "status = 'DEAD'"),
  ];
  return statements.all(oldestSql(`SELECT wait, aggregate_type, at AS since FROM (${waiting.join(" UNION ALL ")}) WHERE ${isDate}`));
}

/** Dead events grouped by their error. If there are more than are counted, only the oldest. */
export const deadGroups = `SELECT error AS group_error, count(*) AS events, min(CASE WHEN ${isDate} THEN at END) AS first,
    min(${foreign("id")}) AS example
  FROM (SELECT ${toldError} AS error, created_at AS at, id FROM outbox WHERE status = 'DEAD' ORDER BY seq LIMIT ${counted})
  GROUP BY error`;
