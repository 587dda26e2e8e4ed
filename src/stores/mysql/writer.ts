import type { OutboxWriter } from "../../contracts/outbox-store.ts";
import { WaybillError } from "../../core/errors.ts";
import type { Added, Row } from "../../core/event.ts";
import { errnoOf, explain, serverError } from "./driver.ts";
import { askOf, textIn, type Ask, type MysqlTransaction } from "./handle.ts";
import type { Names } from "./names.ts";
import { inTransaction } from "./pool.ts";
import { keyUsed } from "./tables.ts";
import { stayingInside } from "./transactor.ts";
import { literal, type Value } from "./values.ts";

const columns =
  "id, aggregate_type, aggregate_id, event_type, event_version, payload, payload_bytes, content_type, headers, idempotency_key, available_at";
/** A server takes 16 MiB at once by default, and text is written with two digits for each byte. */
const bytesPerStatement = 2 * 1024 * 1024;
const rowsPerStatement = 1_000;

/** Takes mysql2's own transactions and those of libraries. */
export interface MysqlWriter extends OutboxWriter<MysqlTransaction> {
  staying<T>(tx: MysqlTransaction, work: () => T | Promise<T>): Promise<T>;
}

export function createWriter(n: Names, place: string): MysqlWriter {
  let known: Promise<boolean> | null = null;
  /** MariaDB can tell within the insert whether it is in a transaction; MySQL has to be asked before. */
  const isMariadb = (ask: Ask): Promise<boolean> =>
    (known ??= ask("SELECT VERSION() AS version").then(
      ([row]) => /mariadb/i.test(textIn(row?.[0])),
      (error: unknown) => {
        known = null;
        throw error;
      },
    ));

  return {
    synchronous: false,
    staying: (tx, work) => stayingInside(askOf(tx), work),
    async append(tx, rows) {
      if (rows.length === 0) return [];
      const ask = askOf(tx);
      // Bytes that the caller uses again after this call are copied before it waits for anything.
      const drafts = rows.map((row) => (typeof row.payload === "string" ? row : { ...row, payload: new Uint8Array(row.payload) }));
      try {
        const mariadb = await isMariadb(ask);
        if (!mariadb && !(await inTransaction((sql) => ask(sql)))) throw none();
        return await addOnce(ask, n, drafts, mariadb);
      } catch (error) {
        throw refusal(error, n, place);
      }
    },
  };
}

/** The first row with a key is the one that is added, unless the key was used before; the others name that one's id. */
async function addOnce(ask: Ask, n: Names, rows: readonly Row[], mariadb: boolean): Promise<readonly Added[]> {
  const own = new Map<string, number>();
  for (const [at, { idempotencyKey: key }] of rows.entries()) if (key !== null && !own.has(key)) own.set(key, at);
  const used = new Map<string, string>();
  const isFresh = ({ idempotencyKey: key }: Row, at: number): boolean => key === null || (!used.has(key) && own.get(key) === at);
  for (let asked = false; ;) {
    try {
      const fresh = rows.filter(isFresh);
      if (fresh.length > 0) await insertAll(ask, n, fresh, mariadb);
      break;
    } catch (error) {
      const [, first, refused] = keyUsed.exec(serverError(error)?.message ?? "") ?? [];
      const key = rows.find((row, at) => row.id === refused && isFresh(row, at))?.idempotencyKey ?? null;
      if (first === undefined || key === null) throw error;
      used.set(key, first);
      if (!asked) for (const [each, event] of await usedKeys(ask, n, [...own.keys()])) used.set(each, event);
      asked = true;
    }
  }
  return rows.map(({ id, idempotencyKey: key }, at) => {
    if (key === null) return { id, duplicate: false };
    return { id: used.get(key) ?? rows[own.get(key)!]!.id, duplicate: used.has(key) || own.get(key) !== at };
  });
}

/**
 * Which of the keys are used, all at once. A writer that may only insert is not told, and the snapshot of its transaction
 * may be older than a key: then the trigger names them one after the other.
 */
async function usedKeys(ask: Ask, n: Names, keys: readonly string[]): Promise<ReadonlyMap<string, string>> {
  try {
    const rows = await ask(
      `SELECT CAST(\`key\` AS BINARY) AS used, event_id FROM ${n.keys} WHERE \`key\` IN (${keys.map(() => "?").join(", ")})`,
      keys,
    );
    return new Map(rows.map(([key, event]) => [textIn(key), textIn(event)]));
  } catch (error) {
    if (errnoOf(error) === 1142 || errnoOf(error) === 1143) return new Map();
    throw error;
  }
}

/** All or nothing, as one statement would be. */
async function insertAll(ask: Ask, n: Names, rows: readonly Row[], mariadb: boolean): Promise<void> {
  const parts = partsOf(rows);
  if (parts.length === 1) return insert(ask, n, parts[0]!, mariadb);
  await ask("SAVEPOINT waybill_append");
  try {
    for (const part of parts) await insert(ask, n, part, mariadb);
  } catch (error) {
    // Without a transaction, or after a deadlock, there is nothing to go back to.
    await ask("ROLLBACK TO SAVEPOINT waybill_append").catch(() => undefined);
    throw error;
  }
  await ask("RELEASE SAVEPOINT waybill_append");
}

function partsOf(rows: readonly Row[]): readonly (readonly Row[])[] {
  const parts: Row[][] = [[]];
  let bytes = 0;
  for (const row of rows) {
    const size = Buffer.byteLength(row.payload) + 2_000;
    if (parts.at(-1)!.length > 0 && (bytes + size > bytesPerStatement || parts.at(-1)!.length === rowsPerStatement)) {
      parts.push([]);
      bytes = 0;
    }
    parts.at(-1)!.push(row);
    bytes += size;
  }
  return parts;
}

/** An id that is empty breaks a constraint of the table: outside a transaction nothing is inserted. */
async function insert(ask: Ask, n: Names, rows: readonly Row[], mariadb: boolean): Promise<void> {
  const id = mariadb ? `IF(@@in_transaction = 1, ?, ${literal("")})` : "?";
  await ask(
    `INSERT INTO ${n.outbox} (${columns}) VALUES ${rows.map(() => `(${id}, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`).join(", ")}`,
    rows.flatMap(valuesOf),
  );
}

function valuesOf(row: Row): Value[] {
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
    row.availableAt,
  ];
}

function refusal(error: unknown, n: Names, place: string): Error {
  const told = serverError(error);
  const message = told?.message ?? "";
  if (message.includes(n.constraint("id")) && (told?.errno === 4025 || told?.errno === 3819)) return none();
  const [, taken] = told?.errno === 1062 ? (/Duplicate entry '(.*)' for key/.exec(message) ?? []) : [];
  if (taken !== undefined)
    return new WaybillError(
      "INVALID_DRAFT",
      `there is an event with id ${taken} already: give each event an id of its own, or an idempotencyKey to add it once`,
      { cause: error },
    );
  // Whoever began the transaction knows what to do about these, by their own name.
  if (told?.errno === 1213 || told?.errno === 1205 || told?.errno === 1020) return error as Error;
  return explain(error, place);
}

function none(): WaybillError {
  return new WaybillError(
    "NO_TRANSACTION",
    "the connection has no open transaction: add events between START TRANSACTION and COMMIT on one connection, or use outbox.transaction",
  );
}
