import { AsyncLocalStorage } from "node:async_hooks";
import type { OutboxWriter, Transactor } from "../../contracts/outbox-store.ts";
import { systemClock as clock } from "../../core/clock.ts";
import { WaybillError } from "../../core/errors.ts";
import type { Added, Row } from "../../core/event.ts";
import { createMutex, type Mutex } from "../../core/mutex.ts";
import { refuseOther } from "../../sqlite/clients.ts";
import type { SqliteRow } from "../../sqlite/connection.ts";
import { explain, inTransaction, isBusy, resultCode, type SqliteDatabase, type SqliteValue } from "../../sqlite/driver.ts";
import { checkVersion, versionOf } from "./schema.ts";

const columns =
  "id, aggregate_type, aggregate_id, event_type, event_version, payload, payload_bytes, content_type, headers, idempotency_key, available_at";
const columnCount = columns.split(",").length;
/** SQLite's limit of variables in a statement, unless it was built with another. */
const rowsPerStatement = Math.floor(32_766 / columnCount);

/** Writes through the user's own handle, and throws before it returns: a synchronous transaction rolls back too. */
export function createWriter(path: string): OutboxWriter<SqliteDatabase> {
  let checked = false;

  const append = (db: SqliteDatabase, rows: readonly Row[]): readonly Added[] => {
    refuseWithoutTransaction(db);
    refuseOther(path, db);
    if (!checked) checkVersion(versionOf({ get: (sql) => db.prepare(sql).all()[0] as SqliteRow | undefined }), path);
    checked = true;
    const added = firstUses(db, rows);
    const fresh = rows.filter((_, at) => !added[at]!.duplicate);
    if (fresh.length > rowsPerStatement) insertMany(db, fresh, path);
    else if (fresh.length > 0) insert(db, fresh, path);
    return added;
  };

  return {
    synchronous: true,
    append: (db, rows) => Promise.resolve(append(db, rows)),
  };
}

/** A row is a duplicate when its idempotency key is stored already, or an earlier row has it. */
function firstUses(db: SqliteDatabase, rows: readonly Row[]): readonly Added[] {
  const keys = rows.flatMap((row) => row.idempotencyKey ?? []);
  if (keys.length === 0) return rows.map(({ id }) => ({ id, duplicate: false }));
  const stored = db
    .prepare("SELECT key, event_id FROM waybill_keys WHERE key IN (SELECT value FROM json_each(?))")
    .all(JSON.stringify(keys)) as SqliteRow[];
  const used = new Map(stored.map((row) => [String(row["key"]), String(row["event_id"])]));
  return rows.map(({ id, idempotencyKey }) => {
    if (idempotencyKey === null) return { id, duplicate: false };
    const first = used.get(idempotencyKey);
    if (first === undefined) used.set(idempotencyKey, id);
    return { id: first ?? id, duplicate: first !== undefined };
  });
}

function refuseWithoutTransaction(db: SqliteDatabase): void {
  let open: boolean;
  try {
    open = inTransaction(db);
  } catch (cause) {
    throw new WaybillError(
      "NO_TRANSACTION",
      `the SQLite handle cannot be used: ${cause instanceof Error ? cause.message : String(cause)}`,
      { cause },
    );
  }
  if (!open) {
    throw new WaybillError(
      "NO_TRANSACTION",
      "the SQLite handle has no open transaction: add events between BEGIN and COMMIT, or use outbox.transaction",
    );
  }
}

function insert(db: SqliteDatabase, rows: readonly Row[], path: string): void {
  const places = rows.map(() => `(${"?, ".repeat(columnCount - 1)}?)`).join(", ");
  try {
    db.prepare(`INSERT INTO outbox (${columns}) VALUES ${places}`).run(...rows.flatMap(valuesOf));
  } catch (error) {
    if (resultCode(error) !== 19) throw explain(error, path);
    const ids = JSON.stringify(rows.map(({ id }) => id));
    const [taken] = db.prepare("SELECT id FROM outbox WHERE id IN (SELECT value FROM json_each(?)) LIMIT 1").all(ids) as SqliteRow[];
    const id = taken === undefined ? twice(rows) : String(taken["id"]);
    if (id === undefined) throw error;
    throw new WaybillError(
      "INVALID_DRAFT",
      `there is an event with id ${id} already: give each event an id of its own, or an idempotencyKey to add it once`,
      { cause: error },
    );
  }
}

/** All or nothing, as one statement would be. */
function insertMany(db: SqliteDatabase, rows: readonly Row[], path: string): void {
  db.exec("SAVEPOINT waybill_append");
  try {
    for (let start = 0; start < rows.length; start += rowsPerStatement) insert(db, rows.slice(start, start + rowsPerStatement), path);
  } catch (error) {
    db.exec("ROLLBACK TO waybill_append; RELEASE waybill_append");
    throw error;
  }
  db.exec("RELEASE waybill_append");
}

function twice(rows: readonly Row[]): string | undefined {
  return rows.find((row, at) => rows.findIndex(({ id }) => id === row.id) !== at)?.id;
}

function valuesOf(row: Row): SqliteValue[] {
  const text = typeof row.payload === "string";
  return [
    row.id,
    row.aggregateType,
    row.aggregateId,
    row.type,
    row.eventVersion,
    text ? row.payload : null,
    text ? null : row.payload,
    row.contentType,
    JSON.stringify(row.headers),
    row.idempotencyKey,
    row.availableAt === null ? null : row.availableAt.toISOString(),
  ];
}

/** The handles whose transactions this code runs inside of. One for all stores: each further one would slow every promise down. */
const inside = new AsyncLocalStorage<readonly SqliteDatabase[]>();

/** One transaction at a time per handle: a handle is one connection, and two would fall into each other. */
export function createTransactor(path: string, lockTimeoutMs: number): Transactor<SqliteDatabase, SqliteDatabase> {
  const mutexes = new WeakMap<SqliteDatabase, Mutex>();
  const mutexOf = (db: SqliteDatabase): Mutex => {
    let mutex = mutexes.get(db);
    if (mutex === undefined) mutexes.set(db, (mutex = createMutex()));
    return mutex;
  };

  /** Null when the statement went through; otherwise how long to wait before the next try. A busy BEGIN or COMMIT changed nothing. */
  const attempt = (db: SqliteDatabase, sql: string, until: number): number | null => {
    try {
      db.exec(sql);
      return null;
    } catch (error) {
      if (!isBusy(error) || clock.monotonic() >= until) throw explain(error, path);
      return 3;
    }
  };

  return {
    async transaction(db, work) {
      const outer = inside.getStore() ?? [];
      if (outer.includes(db)) throw alreadyInside(); // it would wait for itself
      return mutexOf(db).run(async () => {
        if (inTransaction(db)) throw alreadyInside();
        refuseOther(path, db);
        const until = clock.monotonic() + lockTimeoutMs;
        // No await between BEGIN and the work, nor between synchronous work and COMMIT: nobody else's statement falls in between.
        for (let wait = attempt(db, "BEGIN IMMEDIATE", until); wait !== null; wait = attempt(db, "BEGIN IMMEDIATE", until))
          await clock.sleep(wait);
        try {
          const pending = inside.run([...outer, db], () => work(db));
          const result = pending instanceof Promise ? await pending : pending;
          if (!inTransaction(db))
            throw new WaybillError(
              "TRANSACTION_LOST",
              "the transaction ended inside the callback: leave COMMIT and ROLLBACK to outbox.transaction",
            );
          const limit = clock.monotonic() + lockTimeoutMs;
          for (let wait = attempt(db, "COMMIT", limit); wait !== null; wait = attempt(db, "COMMIT", limit)) await clock.sleep(wait);
          return result;
        } catch (error) {
          if (inTransaction(db)) db.exec("ROLLBACK");
          throw error;
        }
      });
    },
  };
}

function alreadyInside(): WaybillError {
  return new WaybillError(
    "ALREADY_IN_TRANSACTION",
    "the SQLite handle is inside a transaction already: use outbox.add with it, or another handle",
  );
}
