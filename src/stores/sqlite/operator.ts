import type { Action, ActionReport, DeadFilter, EventFilter, EventRecord, Operator } from "../../contracts/operator.ts";
import { listedBytes, shownOf } from "../kit/records.ts";
import type { Clock } from "../../core/clock.ts";
import { auditedOf, refuseOthers, testsOf } from "../kit/operator.ts";
import type { Connection, Statements } from "../../drivers/sqlite/connection.ts";
import { audit } from "./audit.ts";
import { startReleasing } from "./holds.ts";
import { readPayload } from "./payload.ts";
import { purge } from "./purge.ts";
import { recordColumns, storedOf } from "./records.ts";
import { beginsWith, foreign, iso, textOf, toldError } from "./rows.ts";
import { eventsAt } from "./events.ts";
import { readStatus } from "./status.ts";

export function createOperator(connection: Connection, clock: Clock): Operator {
  return {
    status: () => connection.read((statements) => inOneSnapshot(statements, () => readStatus(statements, clock.now()))),
    list: (filter) => connection.read((statements) => list(statements, filter, clock.now())),
    async show(id) {
      const row = await connection.read((statements) =>
        statements.get(`SELECT ${recordColumns(listedBytes)} FROM (${eventsAt("?1")}) o WHERE o.id = ?2`, [iso(clock.now()), id]),
      );
      return row === undefined ? null : shownOf(storedOf(row), (seq) => readPayload(connection, seq));
    },
    redrive: (filter, by) => connection.write((statements) => act(statements, "redrive", filter, by, clock.now())),
    discard: (filter, by) => connection.write((statements) => act(statements, "discard", filter, by, clock.now())),
    purge: (before, by, options) => purge(connection, clock, before.toISOString(), by, options),
  };
}

/** The parts of a status must not contradict each other, however busy the file is. */
function inOneSnapshot<T>(statements: Statements, work: () => T): T {
  statements.exec("BEGIN");
  try {
    return work();
  } finally {
    statements.exec("COMMIT");
  }
}

function list(statements: Statements, filter: EventFilter, nowMs: number): readonly EventRecord[] {
  const tests = testsOf(filter);
  const errors = filter.error === undefined ? [] : [filter.error];
  const rows = statements.all(
    `SELECT ${recordColumns(listedBytes)} FROM (${eventsAt("?1")}) o
     WHERE (?2 IS NULL OR o.seq < ?2) ${tests.map(([column]) => `AND o.${column} = ?`).join(" ")} ${errors.map(() => `AND ${beginsWith(toldError)}`).join("")} ORDER BY o.seq DESC LIMIT ?`,
    [
      iso(nowMs),
      filter.beforeSeq === undefined ? null : Number(filter.beforeSeq),
      ...tests.map(([, value]) => value),
      ...errors,
      ...errors,
      filter.limit,
    ],
  );
  return rows.map((row) => storedOf(row).record);
}

/** Runs under the write lock, so that no claim, settle or insert of a follower comes between the check and the change. */
function act(statements: Statements, action: "redrive" | "discard", filter: DeadFilter, by: Action, nowMs: number): ActionReport {
  refuseOthers(filter.ids ?? [], (id) => statements.get("SELECT status FROM outbox WHERE id = ?", [id])?.["status"] as string | undefined);
  const tests = testsOf(filter).map(([column, value]): [string, string] => [`${column} = ?`, value]);
  if (filter.ids !== undefined) tests.push(["id IN (SELECT value FROM json_each(?))", JSON.stringify(filter.ids)]);
  const errors = filter.error === undefined ? [] : [filter.error];
  const rows = statements.all(
    `SELECT seq, ${foreign("id")} AS shown FROM outbox WHERE ${["status = 'DEAD'", ...tests.map(([test]) => test), ...errors.map(() => beginsWith(toldError))].join(" AND ")} ORDER BY seq`,
    [...tests.map(([, value]) => value), ...errors, ...errors],
  );
  const seqs = rows.map((row) => Number(row["seq"]));
  const list = JSON.stringify(seqs);
  const followers = statements.get(
    `SELECT count(*) AS n FROM outbox o JOIN waybill_holds h ON h.aggregate_type = o.aggregate_type AND h.aggregate_id = o.aggregate_id
     WHERE o.status = 'BLOCKED' AND h.cause_seq IN (SELECT value FROM json_each(?))`,
    [list],
  );
  const report = { events: rows.length, followers: Number(followers?.["n"]), ids: rows.map((row) => textOf(row["shown"])) };
  if (by.dryRun || rows.length === 0) return report;
  if (action === "redrive") {
    statements.run(
      "UPDATE outbox SET status = 'PENDING', retry_count = 0, next_attempt_at = available_at WHERE seq IN (SELECT value FROM json_each(?))",
      [list],
    );
  } else {
    statements.run("UPDATE outbox SET status = 'DISCARDED' WHERE seq IN (SELECT value FROM json_each(?))", [list]);
    startReleasing(statements, seqs);
  }
  audit(statements, action, by, rows.length, auditedOf(filter, report.ids), nowMs);
  return report;
}
