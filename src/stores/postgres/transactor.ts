import type { Transactor } from "../../contracts/outbox-store.ts";
import { systemClock } from "../../core/clock.ts";
import { show, WaybillError } from "../../core/errors.ts";
import { refuseLibrary } from "../../core/libraries.ts";
import { within } from "../../core/time.ts";
import type { ServerPlace } from "../kit/pool.ts";
import { explain, isSilence, type PgClient, type PgPool, type PgPoolClient } from "./driver.ts";
import { onClient } from "./pool.ts";

/** What begins a transaction: a pool, or one client. */
export type PgDatabase = PgPool | PgClient;

export function createTransactor(place: string, patienceMs: number): Transactor<PgDatabase, PgClient> {
  return {
    async transaction(db, work) {
      const at = { place, patienceMs };
      refuseLibrary(db);
      if (isPool(db)) return onClient(db, at, (client) => runTransaction(client, at, work));
      if (typeof (db as Partial<PgClient> | null)?.query !== "function")
        throw new WaybillError("INVALID_OPTION", `outbox.transaction needs a pool or a client of pg, not ${show(db)}`);
      return runTransaction(db, at, work);
    },
  };
}

function isPool(db: PgDatabase): db is PgPool {
  return typeof (db as Partial<PgPool> | null)?.totalCount === "number";
}

/** A COMMIT without an answer is neither yes nor no, and is never tried again. */
export async function runTransaction<T>(client: PgClient, at: ServerPlace, work: (tx: PgClient) => T | Promise<T>): Promise<T> {
  const status = client.getTransactionStatus?.();
  if (status === "T" || status === "E")
    throw new WaybillError(
      "ALREADY_IN_TRANSACTION",
      "the PostgreSQL client is inside a transaction already: use outbox.add with it, or another client",
    );
  await client.query("BEGIN").catch((error: unknown) => {
    throw explain(error, at.place);
  });
  let result: T;
  try {
    result = await work(client);
  } catch (error) {
    const ending = client.query("ROLLBACK").catch(() => undefined);
    // It waits behind a query that hangs. The server rolls back what a client leaves open that is given up.
    if ((await within(systemClock, at.patienceMs, ending)) === null && "release" in client)
      void (client as PgPoolClient).end?.().catch(() => undefined);
    throw error;
  }
  await commit(client, at);
  return result;
}

/** PostgreSQL answers the COMMIT of a failed transaction with ROLLBACK, and with no error. */
async function commit(client: PgClient, { place, patienceMs }: ServerPlace): Promise<void> {
  const before = client.getTransactionStatus?.();
  if (before === "I") throw lost("the transaction ended inside the callback: leave COMMIT and ROLLBACK to Waybill");
  const unknown = (cause?: unknown): WaybillError =>
    new WaybillError("COMMIT_UNKNOWN", `the connection to ${place} was lost while COMMIT was under way`, { cause });
  const answer = await within(systemClock, patienceMs, client.query("COMMIT")).catch((error: unknown) => {
    throw isSilence(error) ? unknown(error) : explain(error, place);
  });
  if (answer === null) throw unknown();
  if (answer.command === "ROLLBACK")
    throw lost("a statement of the transaction had failed, and the failure was swallowed: PostgreSQL rolled everything back");
}

const lost = (message: string): WaybillError => new WaybillError("TRANSACTION_LOST", message);
