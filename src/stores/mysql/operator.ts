import type { Action, ActionReport, DeadFilter, EventFilter, EventRecord, Operator } from "../../contracts/operator.ts";
import { auditedOf, refuseOthers, testsOf } from "../kit/operator.ts";
import { shownOf } from "../kit/records.ts";
import { audit } from "./audit.ts";
import type { Connection, MysqlSession } from "./connection.ts";
import { freed, startReleasing } from "./holds.ts";
import type { Names } from "./names.ts";
import { createPace } from "./pace.ts";
import { readPayload } from "./payloads.ts";
import { purge } from "./purge.ts";
import { readStored, recordColumns, storedOf } from "./records.ts";
import { beginsWith, bigOf, numberOf, textOf, toldError } from "./rows.ts";
import { readStatus } from "./status.ts";
import { list, type SqlValue } from "./values.ts";

/** How many dead events one transaction handles while their lanes are locked. */
const actBatch = 2_000;

export function createOperator(connection: Connection, n: Names): Operator {
  return {
    status: () => connection.snapshot((run) => readStatus(run, n)),
    list: (filter) => connection.snapshot((run, server) => listEvents({ run, server }, n, filter)),
    async show(id) {
      if (!isAscii(id)) return null;
      const [row] = await connection.run(`SELECT ${recordColumns} FROM ${n.events} o WHERE o.id = ?`, [id]);
      return row === undefined ? null : shownOf(storedOf(row), (seq, size) => readPayload(connection, n, { seq, size }));
    },
    redrive: (filter, by) => act(connection, n, "redrive", filter, by),
    discard: (filter, by) => act(connection, n, "discard", filter, by),
    purge: (before, by, options) => purge(connection, n, before, by, options),
  };
}

async function listEvents(session: Pick<MysqlSession, "run" | "server">, n: Names, filter: EventFilter): Promise<readonly EventRecord[]> {
  const { state } = filter;
  const tests = [...testsOf(filter), ...(state === undefined || state === "PUBLISHING" ? [] : [["status", state] as const])];
  const errors = filter.error === undefined ? [] : [filter.error];
  const where = [...tests.map(([column]) => `o.${column} = ?`), ...errors.map(() => beginsWith(toldError))];
  if (filter.beforeSeq !== undefined) where.push(`o.seq < ${filter.beforeSeq}`);
  const rows = await session.run(`SELECT o.seq FROM ${n.events} o WHERE ${["TRUE", ...where].join(" AND ")} ORDER BY o.seq DESC LIMIT ?`, [
    ...tests.map(([, value]) => value),
    ...errors,
    ...errors,
    filter.limit,
  ]);
  const seqs = rows.map((row) => bigOf(row, "seq"));
  return (await readStored(session, n, seqs, createPace())).map(({ record }) => record);
}

async function act(connection: Connection, n: Names, action: "redrive" | "discard", filter: DeadFilter, by: Action): Promise<ActionReport> {
  if (filter.ids !== undefined) {
    const possible = filter.ids.filter(isAscii);
    const places = ["NULL", ...possible.map(() => "?")].join(", ");
    const found = await connection.run(`SELECT id, status FROM ${n.outbox} WHERE id IN (${places})`, possible);
    const statuses = new Map(found.map((row) => [textOf(row, "id"), textOf(row, "status")]));
    refuseOthers(filter.ids, (id) => statuses.get(id));
  }
  const { where, values } = whichDead(filter);
  const dead = await connection.run(`SELECT o.seq, o.lane FROM ${n.outbox} o WHERE ${where} ORDER BY o.seq`, values);
  const meant = dead.map((row) => ({ seq: bigOf(row, "seq"), lane: numberOf(row, "lane") }));
  let report: ActionReport = { events: 0, followers: 0, ids: [] };
  for (let start = 0; start < meant.length; start += actBatch) {
    const some = meant.slice(start, start + actBatch);
    const done = await connection.transaction((session) => actOn(session, n, action, some, filter, by));
    report = { events: report.events + done.events, followers: report.followers + done.followers, ids: [...report.ids, ...done.ids] };
  }
  return report;
}

/**
 * Locks the lanes of these events first, and then reads the events again: no claim, settle or release in those lanes comes between the read
 * and the write, and a follower that is added meanwhile finds the hold as it will be.
 */
async function actOn(
  session: MysqlSession,
  n: Names,
  action: "redrive" | "discard",
  meant: readonly { readonly seq: bigint; readonly lane: number }[],
  filter: DeadFilter,
  by: Action,
): Promise<ActionReport> {
  const lanes = [...new Set(meant.map(({ lane }) => lane))].sort((a, b) => a - b);
  if (!by.dryRun)
    await session.run(`SELECT lane FROM ${n.lanes} FORCE INDEX (PRIMARY) WHERE lane IN (${list(lanes)}) ORDER BY lane FOR UPDATE`);
  const rows = await session.run(
    `SELECT seq, id FROM ${n.outbox} FORCE INDEX (PRIMARY) WHERE seq IN (${list(meant.map(({ seq }) => seq))}) AND status = 'DEAD' ORDER BY seq`,
  );
  const seqs = rows.map((row) => bigOf(row, "seq"));
  const [followers] = await session.run(
    `SELECT COUNT(*) AS n FROM ${n.holds} h FORCE INDEX (cause) JOIN ${n.outbox} o FORCE INDEX (blocked)
       ON o.blocked = h.blocked AND o.aggregate_type = h.aggregate_type AND o.aggregate_id = h.aggregate_id
     WHERE h.cause_seq IN (${list(seqs)})`,
  );
  const report = { events: rows.length, followers: numberOf(followers!, "n"), ids: rows.map((row) => textOf(row, "id")) };
  if (by.dryRun || rows.length === 0) return report;
  if (action === "redrive") {
    await session.change(
      `UPDATE ${n.outbox} FORCE INDEX (PRIMARY) SET status = 'PENDING', retry_count = 0, next_attempt_at = ${freed} WHERE seq IN (${list(seqs)})`,
    );
    await session.change(`UPDATE ${n.lanes} FORCE INDEX (PRIMARY) SET reopened = reopened + 1 WHERE lane IN (${list(lanes)})`);
  } else {
    await session.change(`UPDATE ${n.outbox} FORCE INDEX (PRIMARY) SET status = 'DISCARDED' WHERE seq IN (${list(seqs)})`);
    await startReleasing(session, n, seqs);
  }
  await audit(session.change, n, action, by.who, rows.length, auditedOf(filter, report.ids));
  return report;
}

function whichDead({ ids, ...filter }: DeadFilter): { readonly where: string; readonly values: readonly SqlValue[] } {
  const tests = testsOf(filter);
  const errors = filter.error === undefined ? [] : [filter.error];
  const where = ["o.status = 'DEAD'", ...tests.map(([column]) => `o.${column} = ?`), ...errors.map(() => beginsWith(toldError))];
  if (ids !== undefined) where.push(`o.id IN (${["NULL", ...ids.map(() => "?")].join(", ")})`);
  return { where: where.join(" AND "), values: [...tests.map(([, value]) => value), ...errors, ...errors, ...(ids ?? [])] };
}

/** No event has any other id: the column holds ASCII only, and the server refuses to compare it with other text. */
const isAscii = (id: string): boolean => !/[^\0-\x7f]/.test(id);
