import type { AggregateName } from "../../../contracts/log-tailer.ts";
import type { DetourReport } from "../../../contracts/tail-ledger.ts";
import type { PgRow, Run } from "../connection.ts";
import type { Names } from "../names.ts";
import { delayed } from "../pending.ts";

/** With more aggregates than these in the table, a relay polls: reading the log would bring it nothing. */
export const mostDetours = 100_000;
/** How many aggregates with a delayed event that is nearly due are told at once. */
const dueAtOnce = 5_000;

/** The aggregates of which the table has events, but for those that are delayed. */
export async function inTable(run: Run, n: Names): Promise<readonly AggregateName[]> {
  const names = "SELECT aggregate_type, aggregate_id FROM";
  const rows = await run(
    `${names} ${n.holds} UNION ${names} ${n.outbox} WHERE status = 'BLOCKED' UNION ${names} ${n.outbox} WHERE status = 'PENDING' AND next_attempt_at IS NOT NULL
       AND octet_length(aggregate_type) <= 255 AND octet_length(aggregate_id) <= 255
     LIMIT ${mostDetours + 1}`,
  );
  return rows.map(aggregateOf);
}

const aggregateOf = (row: PgRow): AggregateName => ({ aggregateType: row["aggregate_type"]!, aggregateId: row["aggregate_id"]! });

export async function detoursOf(run: Run, n: Names, aggregates: readonly AggregateName[], ms: number): Promise<DetourReport> {
  const same = "o.aggregate_type = a.aggregate_type AND o.aggregate_id = a.aggregate_id";
  const soon = `${delayed} AND available_at <= (SELECT clock_timestamp() + $1::double precision * interval '1 millisecond')`;
  const due = await run(
    `SELECT DISTINCT aggregate_type, aggregate_id FROM (SELECT aggregate_type, aggregate_id FROM ${n.outbox} WHERE ${soon} ORDER BY available_at LIMIT ${dueAtOnce}) o`,
    [ms],
  );
  const over =
    aggregates.length === 0
      ? []
      : await run(
          `SELECT a.aggregate_type, a.aggregate_id FROM unnest($2::text[], $3::text[]) AS a (aggregate_type, aggregate_id)
           WHERE NOT EXISTS (SELECT 1 FROM ${n.holds} o WHERE ${same})
             AND NOT EXISTS (SELECT 1 FROM ${n.outbox} o WHERE status = 'BLOCKED' AND ${same})
             AND NOT EXISTS (SELECT 1 FROM ${n.outbox} o WHERE status = 'PENDING' AND next_attempt_at IS NOT NULL
               AND octet_length(aggregate_type) <= 255 AND octet_length(aggregate_id) <= 255 AND ${same})
             AND NOT EXISTS (SELECT 1 FROM ${n.outbox} o WHERE ${soon} AND ${same})`,
          [ms, aggregates.map(({ aggregateType }) => aggregateType), aggregates.map(({ aggregateId }) => aggregateId)],
        );
  return { over: over.map(aggregateOf), due: due.map(aggregateOf) };
}
