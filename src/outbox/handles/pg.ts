import type { Begins } from "../../contracts/handle.ts";
import { checkOut, type PooledClient } from "../../core/check-out.ts";
import { WaybillError } from "../../core/errors.ts";
import { lending } from "../../core/lend.ts";
import { lendTurn } from "../../core/lend-turn.ts";
import { takesSavepoint } from "../../core/savepoint.ts";
import { alreadyInside, handle, isMethod, noTransaction } from "./handle.ts";
import type { Rows } from "./result.ts";

/** A `Client` or `PoolClient`. */
export interface PgTransaction {
  query(text: string, values?: unknown[]): Promise<{ readonly rows: Rows; readonly command: string }>;
  getTransactionStatus?(): string | null;
}

interface PooledTransaction extends PgTransaction, PooledClient {
  release(destroy: boolean): void;
}

/** A `Pool`, or a `Client` of its own. */
export type PgDb = PgTransaction | { readonly totalCount: number; connect(): Promise<PgTransaction> };

interface PgBegins extends Begins {
  readonly tx: this["db"] extends { totalCount: number; connect: { (): Promise<infer Client>; (callback: never): void } }
    ? Client
    : this["db"];
}

/** The transaction of a `pg` client, between its BEGIN and its COMMIT. */
export const fromPg = handle<PgDb, PgTransaction, PgBegins>({
  name: "pg",
  owns: ({ query, connect }) => isMethod(query) || isMethod(connect),
  open(client) {
    if (isPool(client)) throw noTransaction("a pg pool was given, whose statements each commit by themselves");
    if (client.getTransactionStatus?.() === "I") throw notOpen();
    if (client.getTransactionStatus !== undefined) return (sql, values) => client.query(sql, values);
    return async (sql, values) => {
      if (!(await isInside(client))) throw notOpen();
      return client.query(sql, values);
    };
  },
  isInside: (db) => !isPool(db) && isInside(db),
  lend: (client) => lendTurn(client, () => client.getTransactionStatus?.() !== "I"),
  async begin(db, work) {
    if (!isPool(db)) return run(db, work);
    const listen = (): void => undefined; // the next statement reports the error; without a listener, the process would end
    const client = await checkOut(db as typeof db & { connect(): Promise<PooledTransaction> }, listen);
    let ended = false;
    try {
      // Left open by the client's previous user: BEGIN would only give a warning, and COMMIT would keep what that user wrote.
      if (await isInside(client)) throw alreadyInside("pg");
      const result = await run(client, work);
      ended = true;
      return result;
    } finally {
      client.off("error", listen);
      client.release(!ended); // a callback that failed may have statements under way
    }
  },
});

function isPool(db: PgDb): db is Exclude<PgDb, PgTransaction> {
  return typeof (db as { totalCount?: unknown }).totalCount === "number";
}

const notOpen = (): Error => noTransaction("the pg client has no open transaction");

/** Before 8.21, a client does not say it. */
export function isInside(client: PgTransaction): boolean | Promise<boolean> {
  const status = client.getTransactionStatus;
  return status === undefined ? takesSavepoint(client) : ["T", "E"].includes(client.getTransactionStatus!() ?? "");
}

async function run<T>(client: PgTransaction, work: (tx: PgTransaction) => Promise<T>): Promise<T> {
  await client.query("BEGIN");
  let result: T;
  try {
    result = await lending(client, work, () => client.getTransactionStatus?.() !== "I");
  } catch (error) {
    await client.query("ROLLBACK").catch(() => undefined);
    throw error;
  }
  const { command } = await client.query("COMMIT");
  // PostgreSQL answers the COMMIT of a failed transaction with ROLLBACK, and with no error.
  if (command !== "COMMIT") throw new WaybillError("TRANSACTION_LOST", "a statement had failed, and PostgreSQL rolled everything back");
  return result;
}
