import type { Action, ActionReport, DeadFilter, EventFilter, EventRecord, Operator, PurgeOptions } from "../../contracts/operator.ts";
import { inBatches } from "../kit/batches.ts";
import type { Clock } from "../../core/clock.ts";
import { WaybillError } from "../../core/errors.ts";
import type { State } from "../../core/event.ts";
import { finished } from "../../core/signal.ts";
import type { Connection, SqliteRow, Statements } from "../../drivers/sqlite/connection.ts";
import { startReleasing } from "./holds.ts";
import { countOf, dataColumn, dateOrNull, envelopeColumns, foreign, iso, readEnvelope, textOf } from "./rows.ts";
import { eventsAt } from "./schema.ts";
import { readStatus } from "./status.ts";

/** Small enough not to keep the file's only writer waiting for long. */
const purgeBatch = 2_000;
const archiveBatch = 500;
/** Keys have a retention of their own: they outlive their events. */
const keyRetentionMs = 7 * 24 * 3_600_000;

export function createOperator(connection: Connection, clock: Clock): Operator {
  return {
    status: () => connection.read((statements) => inOneSnapshot(statements, () => readStatus(statements, clock.now()))),
    list: (filter) => connection.read((statements) => list(statements, filter, clock.now())),
    show: (id) =>
      connection.read((statements) => {
        const row = statements.get(`SELECT ${recordColumns} FROM (${eventsAt("?1")}) o WHERE o.id = ?2`, iso(clock.now()), id);
        return row === undefined ? null : recordOf(row);
      }),
    redrive: (filter, by) => connection.write((statements) => act(statements, "redrive", filter, by, clock.now())),
    discard: (filter, by) => connection.write((statements) => act(statements, "discard", filter, by, clock.now())),
    purge: (before, by, options) => purge(connection, clock, before.toISOString(), by, options),
  };
}

const purgeable =
  "SELECT seq FROM outbox WHERE status = 'PUBLISHED' AND published_at < ?1 UNION ALL SELECT seq FROM outbox WHERE status = 'DISCARDED' AND (created_at < ?1 OR typeof(created_at) <> 'text' OR julianday(created_at) IS NULL)";

async function purge(connection: Connection, clock: Clock, before: string, by: Action, options: PurgeOptions = {}): Promise<number> {
  if (by.dryRun) return connection.read((statements) => Number(statements.get(`SELECT count(*) AS n FROM (${purgeable})`, before)?.["n"]));
  let total = 0;
  try {
    await inBatches(options, async () => {
      const { purged, found } = await purgeSome(connection, clock, before, options);
      total += purged;
      return found;
    });
  } finally {
    if (total > 0) await connection.write((statements) => audit(statements, "purge", by, total, { before }, clock.now()));
  }
  const oldest = iso(clock.now() - (options.keyRetentionMs ?? keyRetentionMs));
  const someKeys = `DELETE FROM waybill_keys WHERE key IN (SELECT key FROM waybill_keys WHERE created_at < ? LIMIT ${purgeBatch})`;
  await inBatches(options, async () => (await connection.write((statements) => statements.run(someKeys, oldest))) === purgeBatch);
  return total;
}

/**
 * One batch. The archive is asked before the write lock is taken, or every writer of the file would wait for it; what is
 * published or discarded stays so, and only what the archive was given is deleted.
 */
async function purgeSome(
  connection: Connection,
  clock: Clock,
  before: string,
  { archive, signal }: PurgeOptions,
): Promise<{ readonly purged: number; readonly found: boolean }> {
  if (archive === undefined) {
    const purged = await connection.write((statements) =>
      statements.run(`DELETE FROM outbox WHERE seq IN (${purgeable} LIMIT ${purgeBatch})`, before),
    );
    return { purged, found: purged === purgeBatch };
  }
  const records = await connection.read((statements) =>
    statements
      .all(
        `SELECT ${recordColumns} FROM (${eventsAt("?2")}) o WHERE o.seq IN (${purgeable} LIMIT ${archiveBatch}) ORDER BY o.seq`,
        before,
        iso(clock.now()),
      )
      .map(recordOf),
  );
  if (records.length === 0 || !(await finished(() => archive(records), signal))) return { purged: 0, found: false };
  const seqs = JSON.stringify(records.map(({ seq }) => Number(seq)));
  const purged = await connection.write((statements) =>
    statements.run("DELETE FROM outbox WHERE seq IN (SELECT value FROM json_each(?)) AND status IN ('PUBLISHED', 'DISCARDED')", seqs),
  );
  return { purged, found: records.length === archiveBatch };
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
      `SELECT ${recordColumns} FROM (${eventsAt("?7")}) o
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
    .map(recordOf);
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

function audit(statements: Statements, action: string, by: Action, events: number, detail: object, nowMs: number): void {
  statements.run(
    "INSERT INTO waybill_audit (at, who, action, events, detail) VALUES (?, ?, ?, ?, ?)",
    iso(nowMs),
    by.who,
    action,
    events,
    JSON.stringify(detail),
  );
}

/** As much of an error as a person reads. */
const errorBytes = 64 * 1024;
const recordColumns = `${envelopeColumns}, ${dataColumn}, o.payload IS NOT NULL AS is_text, o.lane, o.state, ${countOf("o.retry_count")} AS retry_count,
  ${foreign("o.available_at")} AS available_at, ${foreign("o.next_attempt_at")} AS next_attempt_at, ${foreign("o.published_at")} AS published_at,
  ${foreign("o.last_error", errorBytes)} AS last_error, o.owner, o.hold`;

function recordOf(row: SqliteRow): EventRecord {
  const { data, ...envelope } = readEnvelope(row, row["data"]).envelope;
  const text = (name: string): string | null => (row[name] === null ? null : textOf(row[name]));
  return {
    ...envelope,
    payload: Number(row["is_text"]) === 1 ? textOf(data) : data,
    lane: row["lane"] === null ? null : Number(row["lane"]),
    availableAt: dateOrNull(row["available_at"]),
    state: String(row["state"]) as State,
    retryCount: Number(row["retry_count"]),
    nextAttemptAt: dateOrNull(row["next_attempt_at"]),
    lastError: text("last_error"),
    publishedAt: dateOrNull(row["published_at"]),
    owner: text("owner"),
    hold: text("hold"),
  };
}
