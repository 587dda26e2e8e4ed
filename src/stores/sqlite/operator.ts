import type { Action, ActionReport, DeadFilter, EventFilter, EventRecord, Operator } from "../../contracts/operator.ts";
import { listedBytes, shownOf } from "../kit/records.ts";
import type { Clock } from "../../core/clock.ts";
import { WaybillError } from "../../core/errors.ts";
import type { Connection, Statements } from "../../drivers/sqlite/connection.ts";
import { audit } from "./audit.ts";
import { startReleasing } from "./holds.ts";
import { readPayload } from "./payload.ts";
import { purge } from "./purge.ts";
import { recordColumns, storedOf } from "./records.ts";
import { foreign, iso, textOf } from "./rows.ts";
import { eventsAt } from "./schema.ts";
import { readStatus } from "./status.ts";

export function createOperator(connection: Connection, clock: Clock): Operator {
  return {
    status: () => connection.read((statements) => inOneSnapshot(statements, () => readStatus(statements, clock.now()))),
    list: (filter) => connection.read((statements) => list(statements, filter, clock.now())),
    async show(id) {
      const row = await connection.read((statements) =>
        statements.get(`SELECT ${recordColumns(listedBytes)} FROM (${eventsAt("?1")}) o WHERE o.id = ?2`, iso(clock.now()), id),
      );
      return row === undefined ? null : shownOf(storedOf(row), (seq) => readPayload(connection, seq));
    },
    redrive: (filter, by) => connection.write((statements) => act(statements, "redrive", filter, by, clock.now())),
    discard: (filter, by) => connection.write((statements) => act(statements, "discard", filter, by, clock.now())),
    purge: (before, by, options) => purge(connection, clock, before.toISOString(), by, options),
  };
}

/** Its parts must not contradict each other, however busy the file is. */
function inOneSnapshot<T>(statements: Statements, work: () => T): T {
  statements.exec("BEGIN");
  try {
    return work();
  } finally {
    statements.exec("COMMIT");
  }
}

function list(statements: Statements, filter: EventFilter, nowMs: number): readonly EventRecord[] {
  return statements
    .all(
      `SELECT ${recordColumns(listedBytes)} FROM (${eventsAt("?7")}) o
       WHERE (?1 IS NULL OR state = ?1) AND (?2 IS NULL OR aggregate_type = ?2) AND (?3 IS NULL OR aggregate_id = ?3)
         AND (?4 IS NULL OR event_type = ?4) AND (?5 IS NULL OR o.seq < ?5)
       ORDER BY o.seq DESC LIMIT ?6`,
      filter.state ?? null,
      filter.aggregateType ?? null,
      filter.aggregateId ?? null,
      filter.type ?? null,
      filter.beforeSeq === undefined ? null : Number(filter.beforeSeq),
      filter.limit,
      iso(nowMs),
    )
    .map((row) => storedOf(row).record);
}

/** Both run under the write lock, so that no claim, settle or insert of a follower falls between look and deed. */
function act(statements: Statements, action: "redrive" | "discard", filter: DeadFilter, by: Action, nowMs: number): ActionReport {
  refuseOthers(statements, filter);
  const rows = statements.all(
    `SELECT seq, ${foreign("id")} AS shown FROM outbox
     WHERE status = 'DEAD' AND (?1 IS NULL OR id IN (SELECT value FROM json_each(?1))) AND (?2 IS NULL OR aggregate_type = ?2)
       AND (?3 IS NULL OR aggregate_id = ?3) AND (?4 IS NULL OR event_type = ?4) AND (?5 IS NULL OR last_error = ?5)
     ORDER BY seq`,
    filter.ids === undefined ? null : JSON.stringify(filter.ids),
    filter.aggregateType ?? null,
    filter.aggregateId ?? null,
    filter.type ?? null,
    filter.error ?? null,
  );
  const seqs = rows.map((row) => Number(row["seq"]));
  const list = JSON.stringify(seqs);
  const followers = statements.get(
    `SELECT count(*) AS n FROM outbox o JOIN waybill_holds h ON h.aggregate_type = o.aggregate_type AND h.aggregate_id = o.aggregate_id
     WHERE o.status = 'BLOCKED' AND h.cause_seq IN (SELECT value FROM json_each(?))`,
    list,
  );
  const report = { events: rows.length, followers: Number(followers?.["n"]), ids: rows.map((row) => textOf(row["shown"])) };
  if (by.dryRun || rows.length === 0) return report;
  if (action === "redrive") {
    statements.run(
      "UPDATE outbox SET status = 'PENDING', retry_count = 0, next_attempt_at = available_at WHERE seq IN (SELECT value FROM json_each(?))",
      list,
    );
  } else {
    statements.run("UPDATE outbox SET status = 'DISCARDED' WHERE seq IN (SELECT value FROM json_each(?))", list);
    startReleasing(statements, seqs);
  }
  audit(statements, action, by, rows.length, { ...filter, ids: report.ids.slice(0, 100) }, nowMs);
  return report;
}

/** Named ids must exist and be dead: silence would look like success. */
function refuseOthers(statements: Statements, filter: DeadFilter): void {
  for (const id of filter.ids ?? []) {
    const row = statements.get("SELECT status FROM outbox WHERE id = ?", id);
    if (row === undefined) throw new WaybillError("NOT_FOUND", `there is no event ${JSON.stringify(id)}`);
    if (row["status"] !== "DEAD") throw new WaybillError("WRONG_STATE", `event ${id} is ${String(row["status"])}, not DEAD`);
  }
}
