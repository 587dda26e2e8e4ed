import type { Added, Row } from "../../core/event.ts";
import type { SqliteRow } from "../../drivers/sqlite/connection.ts";
import type { SqliteStep } from "../../drivers/sqlite/kept.ts";
import { explain, resultCode, type SqliteValue } from "../../drivers/sqlite/driver.ts";
import { addedOnce, idTaken, rowColumns, rowValues } from "../kit/writing.ts";
import { foreign, textOf } from "./rows.ts";
import { checkFound, foundIn, metaExists, metaRow } from "./schema.ts";

/** A synchronous client and an asynchronous library run the same steps. */
export type AppendSteps<T> = Generator<SqliteStep, T, readonly SqliteRow[]>;

const columnCount = rowColumns.split(",").length;
/** SQLite's default limit of variables in a statement. A build may have another. */
const rowsPerStatement = Math.floor(32_766 / columnCount);

const read = (sql: string, ...values: SqliteValue[]): SqliteStep => ({ sql, values, reads: true });
const write = (sql: string, ...values: SqliteValue[]): SqliteStep => ({ sql, values, reads: false });

export function* checkTables(path: string): AppendSteps<void> {
  const [table] = yield read(metaExists);
  const [meta] = table === undefined ? [] : yield read(metaRow);
  checkFound(foundIn(meta), path);
}

/** `alone`: no other statement can run between two steps. */
export function* append(rows: readonly Row[], path: string, alone: boolean): AppendSteps<readonly Added[]> {
  const used = yield* usedKeys(rows);
  const added = addedOnce(rows, used);
  const fresh = rows.filter((_, at) => !added[at]!.duplicate);
  if (fresh.length > rowsPerStatement) yield* insertMany(fresh, path);
  else if (fresh.length > 0) yield* insert(fresh, path);
  if (alone) return added;
  // Another append of the same transaction may have used a key meanwhile. The trigger has then ignored our row.
  const stored = yield* usedKeys(fresh);
  return added.map((one, at) => {
    const first = stored.get(rows[at]!.idempotencyKey ?? "");
    return first === undefined || first === one.id ? one : { id: first, duplicate: true };
  });
}

/** The ids of the events that have used these rows' keys, by key. */
function* usedKeys(rows: readonly Row[]): AppendSteps<Map<string, string>> {
  const keys = rows.flatMap((row) => row.idempotencyKey ?? []);
  if (keys.length === 0) return new Map();
  const sql = `SELECT key, ${foreign("event_id")} AS event_id FROM waybill_keys WHERE key IN (SELECT value FROM json_each(?))`;
  const stored = yield read(sql, JSON.stringify(keys));
  return new Map(stored.map((row) => [String(row["key"]), textOf(row["event_id"])]));
}

function* insert(rows: readonly Row[], path: string): AppendSteps<void> {
  const places = rows.map(() => `(${"?, ".repeat(columnCount - 1)}?)`).join(", ");
  try {
    yield write(
      `INSERT INTO outbox (${rowColumns}) VALUES ${places}`,
      ...rows.flatMap((row) => rowValues(row, (date) => date.toISOString())),
    );
  } catch (error) {
    if (resultCode(error) !== 19) throw explain(error, path);
    const ids = JSON.stringify(rows.map(({ id }) => id));
    const [taken] = yield read("SELECT id FROM outbox WHERE id IN (SELECT value FROM json_each(?)) LIMIT 1", ids);
    const id = taken === undefined ? twice(rows) : String(taken["id"]);
    if (id === undefined) throw error;
    throw idTaken(id, error);
  }
}

/** All or nothing, as one statement would be. */
function* insertMany(rows: readonly Row[], path: string): AppendSteps<void> {
  yield write("SAVEPOINT waybill_append");
  try {
    for (let start = 0; start < rows.length; start += rowsPerStatement) yield* insert(rows.slice(start, start + rowsPerStatement), path);
  } catch (error) {
    yield write("ROLLBACK TO waybill_append");
    yield write("RELEASE waybill_append");
    throw error;
  }
  yield write("RELEASE waybill_append");
}

function twice(rows: readonly Row[]): string | undefined {
  return rows.find((row, at) => rows.findIndex(({ id }) => id === row.id) !== at)?.id;
}
