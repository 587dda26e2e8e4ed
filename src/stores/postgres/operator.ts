import type { Action, ActionReport, DeadFilter, EventFilter, EventRecord, Operator } from "../../contracts/operator.ts";
import { auditedOf, refuseOthers, testsOf } from "../kit/operator.ts";
import { listedBytes, shownOf } from "../kit/records.ts";
import { audit } from "./audit.ts";
import type { Connection, Run } from "./connection.ts";
import { startReleasing } from "./holds.ts";
import type { Names } from "./names.ts";
import { readPayload } from "./payload.ts";
import { purge } from "./purge.ts";
import { recordColumns, storedOf } from "./records.ts";
import { list, storable, toldError } from "./rows.ts";
import { readStatus } from "./status.ts";

export function createOperator(connection: Connection, n: Names): Operator {
  return {
    status: () => connection.snapshot((run) => readStatus(run, n)),
    list: (filter) => listEvents(connection.run, n, filter),
    async show(id) {
      const [row] = await connection.run(`SELECT ${recordColumns(listedBytes)} FROM ${n.events} o WHERE o.id = $1`, [id]);
      return row === undefined ? null : shownOf(storedOf(row), (seq) => readPayload(connection, n, seq));
    },
    redrive: (filter, by) => connection.transaction((run) => act(run, n, "redrive", filter, by)),
    discard: (filter, by) => connection.transaction((run) => act(run, n, "discard", filter, by)),
    purge: (before, by, options) => purge(connection, n, before, by, options),
  };
}

async function listEvents(run: Run, n: Names, filter: EventFilter): Promise<readonly EventRecord[]> {
  const tests = testsOf(filter);
  const values: unknown[] = tests.map(([, value]) => value);
  const where = tests.map(([column], at) => `o.${column} = $${at + 1}`);
  if (filter.error !== undefined) where.push(`starts_with(${toldError}, $${values.push(storable(filter.error))})`);
  if (filter.beforeSeq !== undefined) where.push(`o.seq < $${values.push(String(filter.beforeSeq))}::bigint`);
  const rows = await run(
    `SELECT ${recordColumns(listedBytes)} FROM ${n.events} o WHERE ${["true", ...where].join(" AND ")} ORDER BY o.seq DESC LIMIT $${values.push(filter.limit)}`,
    values,
  );
  return rows.map((row) => storedOf(row).record);
}

/**
 * Locks the lanes of the matching events first, then reads the events again: no claim, settle or release of these lanes falls between
 * reading and writing. A follower that is added meanwhile finds the hold as it will be.
 */
async function act(run: Run, n: Names, action: "redrive" | "discard", filter: DeadFilter, by: Action): Promise<ActionReport> {
  if (filter.ids !== undefined) {
    const found = await run(`SELECT id, status FROM ${n.outbox} WHERE id = ANY ($1::text[])`, [filter.ids]);
    const statuses = new Map(found.map((row) => [row["id"]!, row["status"]!]));
    refuseOthers(filter.ids, (id) => statuses.get(id));
  }
  const { where, values } = whichDead(filter);
  const lanes = (await run(`SELECT DISTINCT o.lane FROM ${n.outbox} o WHERE ${where}`, values)).map((row) => Number(row["lane"]));
  if (!by.dryRun) await run(`SELECT 1 FROM ${n.lanes} WHERE lane = ANY ($1::smallint[]) ORDER BY lane FOR UPDATE`, [list(lanes)]);
  const rows = await run(
    `SELECT o.seq, o.id FROM ${n.outbox} o WHERE ${where} AND o.lane = ANY ($${values.length + 1}::smallint[]) ORDER BY o.seq`,
    [...values, list(lanes)],
  );
  const seqs = `{${rows.map((row) => row["seq"]!).join(",")}}`;
  const [followers] = await run(
    `SELECT count(*) AS n FROM ${n.outbox} o JOIN ${n.holds} h ON h.aggregate_type = o.aggregate_type AND h.aggregate_id = o.aggregate_id
     WHERE o.status = 'BLOCKED' AND h.cause_seq = ANY ($1::bigint[])`,
    [seqs],
  );
  const report = { events: rows.length, followers: Number(followers!["n"]), ids: rows.map((row) => row["id"]!) };
  if (by.dryRun || rows.length === 0) return report;
  if (action === "redrive") {
    await run(
      `UPDATE ${n.outbox} SET status = 'PENDING', retry_count = 0, next_attempt_at = clock_timestamp() WHERE seq = ANY ($1::bigint[])`,
      [seqs],
    );
    await run(`UPDATE ${n.lanes} SET reopened = reopened + 1 WHERE lane = ANY ($1::smallint[])`, [list(lanes)]);
  } else {
    await run(`UPDATE ${n.outbox} SET status = 'DISCARDED' WHERE seq = ANY ($1::bigint[])`, [seqs]);
    await run(startReleasing(n, "$1::bigint[]"), [seqs]);
  }
  await audit(run, n, action, by.who, rows.length, auditedOf(filter, report.ids));
  return report;
}

function whichDead({ ids, ...filter }: DeadFilter): { readonly where: string; readonly values: readonly unknown[] } {
  const tests = testsOf(filter);
  const values: unknown[] = tests.map(([, value]) => value);
  const where = ["o.status = 'DEAD'", ...tests.map(([column], at) => `o.${column} = $${at + 1}`)];
  if (filter.error !== undefined) where.push(`starts_with(${toldError}, $${values.push(storable(filter.error))})`);
  if (ids !== undefined) where.push(`o.id = ANY ($${values.push(ids)}::text[])`);
  return { where: where.join(" AND "), values };
}
