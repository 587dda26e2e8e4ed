import type { Status } from "../../contracts/operator.ts";
import type { State } from "../../core/event.ts";
import { counted, noEvents, oldestSql, shown, statusOf } from "../kit/status.ts";
import type { Run } from "./connection.ts";
import type { Names } from "./names.ts";
import { cells, dateOf, numberOf, textOf, toldError } from "./rows.ts";
import { tablesIn } from "./schema.ts";
import { literal } from "./values.ts";
import { readWatch } from "./watch.ts";

/** How many dead events, the latest ones, are grouped by error. */
const lettersRead = 10_000;
const statuses = ["PENDING", "PUBLISHED", "FAILED", "BLOCKED", "DEAD", "DISCARDED"] as const;

/** No more rows than the bound are walked over, whatever the table holds. */
const upTo = (from: string): string => `(SELECT COUNT(*) FROM (SELECT 1 FROM ${from} LIMIT ${counted + 1}) found)`;

/** One look at everything an operator may ask, all from the tables, in one snapshot. */
export async function readStatus(run: Run, n: Names): Promise<Status> {
  const counts = noEvents();
  const [numbers] = await run(
    `SELECT ${statuses.map((status) => `${upTo(`${n.outbox} FORCE INDEX (state) WHERE status = '${status}'`)} AS \`${status}\``).join(", ")},
       (SELECT SUM(TABLE_ROWS) FROM information_schema.PARTITIONS WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME = ?) AS guess`,
    [n.schema, n.plain("outbox")],
  );
  for (const status of statuses) counts[status] = numberOf(numbers!, status);
  const estimated = statuses.filter((status) => counts[status] > counted);
  share(counts, estimated, numbers!["guess"] === null ? 0 : numberOf(numbers!, "guess"));
  // Events in windows are few. They were counted under their status, and are moved to PUBLISHING here.
  for (const row of await run(
    `SELECT status, COUNT(*) AS n FROM ${n.events} WHERE state = 'PUBLISHING' AND seq IN (${inWindows(n)}) GROUP BY status`,
  )) {
    counts[textOf(row, "status") as State] -= numberOf(row, "n");
    counts.PUBLISHING += numberOf(row, "n");
  }
  // `seq` follows the order of adding, except for transactions that stay open: the oldest event is among the first. Delayed events are read
  // apart, by the moment they are due: many of them would hide the others.
  const first = (wait: string, index: string, which: string, order: string): string =>
    `(SELECT ${wait} AS wait, CAST(LEFT(aggregate_type, 256) AS BINARY) AS aggregate_type, GREATEST(created_at, COALESCE(available_at, created_at)) AS since
      FROM ${n.outbox} FORCE INDEX (${index}) WHERE ${which} AND TO_DAYS(created_at) IS NOT NULL ORDER BY ${order} LIMIT ${oldestAmong})`;
  const bySeq = (wait: string, status: State): string => first(wait, "state", `status = '${status}'`, "published_at, seq");
  const [claimable, later] = [literal("claimable"), literal("later")];
  const waiting = [
    first(claimable, "ready", "ready = 1", "seq"),
    first(`IF(due_at <= UTC_TIMESTAMP(6), ${claimable}, ${later})`, "due", "due_at IS NOT NULL", "due_at"),
    bySeq(`IF(next_attempt_at <= UTC_TIMESTAMP(6), ${claimable}, ${later})`, "FAILED"),
    bySeq(literal("blocked"), "BLOCKED"),
    bySeq(literal("dead"), "DEAD"),
  ];
  const [facts] = await run(
    `SELECT UTC_TIMESTAMP(6) AS now, ${upTo(n.holds)} AS holds, ${upTo(`${n.holds} WHERE destination IS NOT NULL`)} AS waiting,
       (SELECT COALESCE(SUM(events), 0) FROM ${n.windows}) AS claimed,
       ${upTo(`${n.suspects} s JOIN ${n.outbox} o ON o.seq = s.seq WHERE o.status IN ('PENDING', 'FAILED')`)} AS suspects`,
  );
  const rows = {
    states: counts,
    estimated,
    nowMs: dateOf(facts!, "now").getTime(),
    oldest: await run(oldestSql(waiting.join(" UNION ALL "))),
    lanes: await run(`SELECT lane, CAST(owner AS BINARY) AS owner FROM ${n.lanes} WHERE owner IS NOT NULL ORDER BY lane`),
    relays: await run(
      `SELECT CAST(r.relay AS BINARY) AS relay, r.expires_at, r.expires_at > UTC_TIMESTAMP(6) AS live, r.\`window\` AS window_limit,
              (SELECT COALESCE(SUM(w.events), 0) FROM ${n.windows} w WHERE w.relay = r.relay) AS claimed
       FROM ${n.relays} r ORDER BY r.relay`,
    ),
    holds: await run(
      `SELECT CAST(h.aggregate_type AS BINARY) AS aggregate_type, CAST(h.aggregate_id AS BINARY) AS aggregate_id, CAST(h.why AS BINARY) AS why, CAST(h.destination AS BINARY) AS destination,
              h.since, h.free_to IS NOT NULL AS releasing, o.id AS cause_id
       FROM ${n.holds} h LEFT JOIN ${n.outbox} o ON o.seq = h.cause_seq ORDER BY h.since LIMIT ${shown}`,
    ),
    breakers: await run(
      `SELECT CAST(d.destination AS BINARY) AS destination, CAST(d.why AS BINARY) AS why, d.since, COALESCE(w.aggregates, 0) AS aggregates
       FROM (SELECT destination, MIN(why) AS why, MIN(since) AS since FROM ${n.destinations} GROUP BY destination) d
       LEFT JOIN (SELECT h.destination, COUNT(*) AS aggregates
                  FROM (SELECT destination FROM ${n.holds} WHERE destination IS NOT NULL LIMIT ${counted + 1}) h GROUP BY h.destination
       ) w ON w.destination = d.destination ORDER BY d.destination`,
    ),
    dead: await run(
      `SELECT CAST(o.told AS BINARY) AS error, COUNT(*) AS events, MIN(o.created_at) AS oldest, CAST(MIN(o.id) AS BINARY) AS example
       FROM (SELECT ${toldError} AS told, created_at, id FROM ${n.outbox} o FORCE INDEX (state) WHERE status = 'DEAD' ORDER BY published_at DESC, seq DESC LIMIT ${lettersRead}) o
       GROUP BY o.told ORDER BY events DESC, error LIMIT ${shown}`,
    ),
    facts: facts!,
    schemaVersion: (await tablesIn(run, n)).version,
    watch: await readWatch(run, n),
  };
  return statusOf(rows, cells);
}

/** How many rows of an index are looked at for the oldest. */
const oldestAmong = 1_000;

/** Gives what is left of the server's estimate, beyond the states that were counted, to those that were not. */
function share(counts: Record<State, number>, estimated: readonly State[], guess: number): void {
  const known = statuses.reduce((sum, status) => sum + (estimated.includes(status) ? 0 : counts[status]), 0);
  // Most events are published, so PUBLISHED gets what is left. Other uncounted states stay at the number where counting stopped.
  const most = estimated.includes("PUBLISHED") ? "PUBLISHED" : estimated[0];
  if (most !== undefined) counts[most] = Math.max(counts[most], guess - known - (estimated.length - 1) * counted);
}

const inWindows = (n: Names): string =>
  `SELECT j.seq FROM ${n.windows} w JOIN JSON_TABLE(w.seqs, '$.*[*]' COLUMNS (seq BIGINT PATH '$')) j`;
