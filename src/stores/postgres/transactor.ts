import type { Transactor } from "../../contracts/outbox-store.ts";
import { show, WaybillError } from "../../core/errors.ts";
import { explain, isSilence, type PgClient, type PgPool, type PgPoolClient } from "./driver.ts";

/** What begins a transaction: a pool, or one client. */
export type PgDatabase = PgPool | PgClient;

export function createTransactor(place: string): Transactor<PgDatabase, PgClient> {
  return {
    async transaction(db, work) {
      if (isPool(db)) return onPool(db, place, (client) => runTransaction(client, place, work));
      if (typeof (db as Partial<PgClient> | null)?.query !== "function")
        throw new WaybillError("INVALID_OPTION", `outbox.transaction needs a pool or a client of pg, not ${show(db)}`);
      return runTransaction(db, place, work);
    },
  };
}

function isPool(db: PgDatabase): db is PgPool {
  return typeof (db as Partial<PgPool> | null)?.totalCount === "number";
}

async function onPool<T>(pool: PgPool, place: string, work: (client: PgPoolClient) => Promise<T>): Promise<T> {
  const client = await pool.connect().catch((error: unknown) => {
    throw explain(error, place);
  });
  let broken: Error | undefined;
  const listen = (error: Error): void => void (broken = error);
  client.on("error", listen);
  try {
    return await work(client);
  } finally {
    client.off("error", listen);
    client.release(broken ?? (client.getTransactionStatus?.() ?? "I") !== "I");
  }
}

/** A COMMIT without an answer is neither yes nor no, and is never tried again. */
export async function runTransaction<T>(client: PgClient, place: string, work: (tx: PgClient) => T | Promise<T>): Promise<T> {
  const status = client.getTransactionStatus?.();
  if (status === "T" || status === "E")
    throw new WaybillError(
      "ALREADY_IN_TRANSACTION",
      "the PostgreSQL client is inside a transaction already: use outbox.add with it, or another client",
    );
  await client.query("BEGIN").catch((error: unknown) => {
    throw explain(error, place);
  });
  let result: T;
  try {
    result = await work(client);
  } catch (error) {
    await client.query("ROLLBACK").catch(() => undefined);
    throw error;
  }
  await commit(client, place);
  return result;
}

/** PostgreSQL answers the COMMIT of a failed transaction with ROLLBACK, and with no error. */
export async function commit(client: PgClient, place: string): Promise<void> {
  const before = client.getTransactionStatus?.();
  if (before === "I") throw lost("the transaction ended inside the callback: leave COMMIT and ROLLBACK to Waybill");
  let command: string;
  try {
    ({ command } = await client.query("COMMIT"));
  } catch (error) {
    if (!isSilence(error)) throw explain(error, place);
    throw new WaybillError("COMMIT_UNKNOWN", `the connection to ${place} was lost while COMMIT was under way`, { cause: error });
  }
  if (command === "ROLLBACK")
    throw lost("a statement of the transaction had failed, and the failure was swallowed: PostgreSQL rolled everything back");
}

const lost = (message: string): WaybillError => new WaybillError("TRANSACTION_LOST", message);
