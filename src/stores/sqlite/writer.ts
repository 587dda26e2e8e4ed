import type { OutboxWriter, Transactor } from "../../contracts/outbox-store.ts";
import type { Clock } from "../../core/clock.ts";
import { WaybillError } from "../../core/errors.ts";
import type { Added, Row } from "../../core/event.ts";
import { createMutex, type Mutex } from "../../core/mutex.ts";
import type { SqliteRow } from "../../sqlite/connection.ts";
import { explain, inTransaction, isBusy, resultCode, type SqliteDatabase, type SqliteValue } from "../../sqlite/driver.ts";
import { checkVersion, versionOf } from "./schema.ts";

const columns = "id, aggregate_type, aggregate_id, event_type, event_version, payload, payload_bytes, content_type, headers, idempotency_key, available_at";
const columnCount = columns.split(",").length;
/** Below the smallest limit of variables in a statement that any supported build has. */
const rowsPerStatement = Math.floor(999 / columnCount);

/** Writes through the user's own handle, and throws before it returns: a synchronous transaction rolls back too. */
export function createWriter(path: string): OutboxWriter<SqliteDatabase> {
  const checked = new WeakSet<SqliteDatabase>();

  const append = (db: SqliteDatabase, rows: readonly Row[]): readonly Added[] => {
    refuseWithoutTransaction(db);
    if (!checked.has(db)) {
      checkVersion(versionOf({ get: (sql) => db.prepare(sql).all()[0] as SqliteRow | undefined }), path);
      checked.add(db);
    }
    for (let start = 0; start < rows.length; start += rowsPerStatement) insert(db, rows.slice(start, start + rowsPerStatement), path);
    const keys = rows.flatMap((row) => row.idempotencyKey ?? []);
    if (keys.length === 0) return rows.map(({ id }) => ({ id, duplicate: false }));
    const stored = db.prepare("SELECT key, event_id FROM waybill_keys WHERE key IN (SELECT value FROM json_each(?))").all(JSON.stringify(keys)) as SqliteRow[];
    const byKey = new Map(stored.map((row) => [String(row["key"]), String(row["event_id"])]));
    return rows.map(({ id, idempotencyKey }) => {
      const first = idempotencyKey === null ? id : (byKey.get(idempotencyKey) ?? id);
      return { id: first, duplicate: first !== id };
    });
  };

  return {
    synchronous: true,
    append: (db, rows) => Promise.resolve(append(db, rows)),
  };
}

function refuseWithoutTransaction(db: SqliteDatabase): void {
  let open: boolean;
  try {
    open = inTransaction(db);
  } catch (cause) {
    throw new WaybillError("NO_TRANSACTION", `the SQLite handle cannot be used: ${cause instanceof Error ? cause.message : String(cause)}`, { cause });
  }
  if (!open) {
    throw new WaybillError("NO_TRANSACTION", "the SQLite handle has no open transaction: add events between BEGIN and COMMIT, or use outbox.transaction");
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
    throw new WaybillError("INVALID_DRAFT", `there is an event with id ${id} already: give each event an id of its own, or an idempotencyKey to add it once`, { cause: error });
  }
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
    text ? (row.payload as string) : null,
    text ? null : (row.payload as Uint8Array),
    row.contentType,
    JSON.stringify(row.headers),
    row.idempotencyKey,
    row.availableAt === null ? null : row.availableAt.toISOString(),
  ];
}

/** One transaction at a time per handle: a handle is one connection, and two would fall into each other. */
export function createTransactor(path: string, clock: Clock, lockTimeoutMs: number): Transactor<SqliteDatabase, SqliteDatabase> {
  const mutexes = new WeakMap<SqliteDatabase, Mutex>();
  const mutexOf = (db: SqliteDatabase): Mutex => {
    let mutex = mutexes.get(db);
    if (mutex === undefined) mutexes.set(db, (mutex = createMutex()));
    return mutex;
  };

  const begin = async (db: SqliteDatabase): Promise<void> => {
    if (inTransaction(db)) {
      throw new WaybillError("ALREADY_IN_TRANSACTION", "the SQLite handle is inside a transaction already: use outbox.add with it, or another handle");
    }
    const until = clock.monotonic() + lockTimeoutMs;
    for (;;) {
      try {
        db.exec("BEGIN IMMEDIATE");
        return;
      } catch (error) {
        if (!isBusy(error) || clock.monotonic() >= until) throw explain(error, path);
        await clock.sleep(5);
      }
    }
  };

  const commit = async (db: SqliteDatabase): Promise<void> => {
    const until = clock.monotonic() + lockTimeoutMs;
    for (;;) {
      try {
        db.exec("COMMIT");
        return;
      } catch (error) {
        // A busy COMMIT has changed nothing and may be repeated; readers of a rollback journal cause it.
        if (!isBusy(error) || clock.monotonic() >= until) throw explain(error, path);
        await clock.sleep(2);
      }
    }
  };

  return {
    transaction: (db, work) =>
      mutexOf(db).run(async () => {
        await begin(db);
        try {
          const pending = work(db);
          const result = pending instanceof Promise ? await pending : pending;
          if (!inTransaction(db)) throw new WaybillError("TRANSACTION_LOST", "the transaction ended inside the callback: leave COMMIT and ROLLBACK to outbox.transaction");
          await commit(db);
          return result;
        } catch (error) {
          if (inTransaction(db)) db.exec("ROLLBACK");
          throw error;
        }
      }),
  };
}
