import type { OutboxWriter } from "../../contracts/outbox-store.ts";
import { WaybillError } from "../../core/errors.ts";
import type { Added, Row } from "../../core/event.ts";
import { addedOnce, copied, idTaken, rowColumns, rowValues } from "../kit/writing.ts";
import { errnoOf, explain, serverError } from "./driver.ts";
import { askOf, textIn, type AskTransaction, type MysqlTransaction } from "./handle.ts";
import type { Names } from "./names.ts";
import { inMysqlTransaction, isUnprepared } from "./pool.ts";
import { stayingInside } from "./transactor.ts";
import { literal } from "./values.ts";

/** A server takes 16 MiB at once by default, and text is written with two digits for each byte. */
const bytesPerStatement = 2 * 1024 * 1024;
const rowsPerStatement = 1_000;

/** What the trigger on the outbox says: which event has the key, and which one it was refused for. */
const keyUsed = /the idempotency key was used by event (\S+) \(for (\S+)\)/;

/** Takes mysql2's own transactions and those of libraries. */
export interface MysqlWriter extends OutboxWriter<MysqlTransaction> {
  staying<T>(tx: MysqlTransaction, work: () => T | Promise<T>): Promise<T>;
}

export function createWriter(n: Names, place: string): MysqlWriter {
  let known: Promise<boolean> | null = null;
  /** MariaDB can check within the INSERT whether it is in a transaction; MySQL needs a check before. */
  const isMariadb = (ask: AskTransaction): Promise<boolean> =>
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
      const drafts = copied(rows);
      try {
        const mariadb = await isMariadb(ask);
        if (!mariadb && !(await inMysqlTransaction(ask)) && !(await beginsOne(ask))) throw none();
        return await addOnce(ask, n, drafts, mariadb);
      } catch (error) {
        throw refusal(error, n, place);
      }
    },
  };
}

async function addOnce(ask: AskTransaction, n: Names, rows: readonly Row[], mariadb: boolean): Promise<readonly Added[]> {
  const used = new Map<string, string>();
  for (let asked = false; ; asked = true) {
    const added = addedOnce(rows, new Map(used));
    const fresh = rows.filter((_, at) => !added[at]!.duplicate);
    try {
      if (fresh.length > 0) await insertAll(ask, n, fresh, mariadb);
      return added;
    } catch (error) {
      const [, first, refused] = keyUsed.exec(serverError(error)?.message ?? "") ?? [];
      const key = fresh.find(({ id }) => id === refused)?.idempotencyKey ?? null;
      if (first === undefined || key === null) throw error;
      used.set(key, first);
      const keys = new Set(rows.flatMap(({ idempotencyKey }) => idempotencyKey ?? []));
      if (!asked) for (const [each, event] of await usedKeys(ask, n, [...keys])) used.set(each, event);
    }
  }
}

/**
 * Which of the keys are used, in one query. A writer that may only insert cannot read them, and the snapshot of its transaction may be
 * older than a key: then the trigger names them one after the other.
 */
async function usedKeys(ask: AskTransaction, n: Names, keys: readonly string[]): Promise<ReadonlyMap<string, string>> {
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

/** With autocommit off, the INSERT begins a transaction. */
async function beginsOne(ask: AskTransaction): Promise<boolean> {
  const [row] = await ask("SELECT @@autocommit");
  return textIn(row?.[0]) === "0";
}

/** All or nothing, as one statement would be. */
async function insertAll(ask: AskTransaction, n: Names, rows: readonly Row[], mariadb: boolean): Promise<void> {
  const parts = partsOf(rows);
  if (parts.length === 1) return insert(ask, n, parts[0]!, mariadb);
  try {
    await ask("SAVEPOINT waybill_append");
  } catch (error) {
    if (isUnprepared(error)) return insert(ask, n, rows, mariadb);
    throw error;
  }
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

/** On MariaDB, a row outside a transaction gets an empty id, which the table refuses: nothing is inserted. */
async function insert(ask: AskTransaction, n: Names, rows: readonly Row[], mariadb: boolean): Promise<void> {
  const id = mariadb ? `IF(@@in_transaction = 1, ?, ${literal("")})` : "?";
  await ask(
    `INSERT INTO ${n.outbox} (${rowColumns}) VALUES ${rows.map(() => `(${id}, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`).join(", ")}`,
    rows.flatMap((row) => rowValues(row, (date) => date)),
  );
}

function refusal(error: unknown, n: Names, place: string): Error {
  const told = serverError(error);
  const message = told?.message ?? "";
  if (message.includes(n.constraint("id")) && (told?.errno === 4025 || told?.errno === 3819)) return none();
  const [, taken] = told?.errno === 1062 ? (/Duplicate entry '(.*)' for key/.exec(message) ?? []) : [];
  if (taken !== undefined) return idTaken(taken, error);
  // The caller that began the transaction knows how to handle these, by the server's own error.
  if (told?.errno === 1213 || told?.errno === 1205 || told?.errno === 1020) return error as Error;
  return explain(error, place);
}

function none(): WaybillError {
  return new WaybillError(
    "NO_TRANSACTION",
    "the connection has no open transaction: add events between START TRANSACTION and COMMIT on one connection, or use outbox.transaction",
  );
}
