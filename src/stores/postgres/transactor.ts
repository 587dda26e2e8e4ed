import type { Transactor } from "../../contracts/outbox-store.ts";
import { systemDeadlines } from "../../core/deadlines.ts";
import { show, WaybillError } from "../../core/errors.ts";
import { refuseLibrary } from "../../core/libraries.ts";
import { isSilent, takesSavepoint } from "../../core/savepoint.ts";
import type { ServerPlace } from "../kit/pool.ts";
import { explain, isSilence, type PgClient, type PgPool, type PgPoolClient, type PgResult } from "./driver.ts";
import { readable } from "./guard.ts";
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
      if (isSilent(db) && (await takesSavepoint(db).catch(explained(place)))) throw alreadyInside();
      return runTransaction(db, at, work);
    },
  };
}

function isPool(db: PgDatabase): db is PgPool {
  return typeof (db as Partial<PgPool> | null)?.totalCount === "number";
}

const runTransaction = <T>(client: PgClient, at: ServerPlace, work: (tx: PgClient) => T | Promise<T>): Promise<T> =>
  transact(client, at, "BEGIN", async () => ({ result: await work(client), commit: "COMMIT" }));

/** How a transaction ends. The last statement in `commit` is COMMIT. */
interface Ending<T> {
  readonly result: T;
  readonly commit: string;
  /** Translates the error when these statements fail. */
  readonly refused?: (error: unknown) => unknown;
}

/**
 * `begin` may carry more statements after BEGIN, in the same write; the work gets the rows of the last one. When COMMIT gets no answer, its
 * outcome is unknown, and it is never retried.
 */
export async function transact<T>(
  client: PgClient,
  at: ServerPlace,
  begin: string,
  work: (rows: PgResult["rows"]) => Promise<Ending<T>>,
): Promise<T> {
  const status = client.getTransactionStatus?.();
  if (status === "T" || status === "E") throw alreadyInside();
  let ending: Ending<T>;
  try {
    const begun = await readable(() => client.query(begin)).catch(explained(at.place));
    ending = await work(lastOf(begun).rows);
  } catch (error) {
    const ended = client.query("ROLLBACK").catch(() => undefined);
    // ROLLBACK waits behind a query that hangs. When the client is closed, the server rolls back its open transaction.
    if ((await systemDeadlines.within(at.patienceMs, ended)) === null && "release" in client)
      void (client as PgPoolClient).end?.().catch(() => undefined);
    throw error;
  }
  await commit(client, at, ending.commit).catch((error: unknown) => {
    throw ending.refused?.(error) ?? error;
  });
  return ending.result;
}

const explained =
  (place: string) =>
  (error: unknown): never => {
    throw explain(error, place);
  };

const alreadyInside = (): WaybillError =>
  new WaybillError(
    "ALREADY_IN_TRANSACTION",
    "the PostgreSQL client is inside a transaction already: use outbox.add with it, or another client",
  );

/** PostgreSQL answers the COMMIT of a failed transaction with ROLLBACK, and with no error. */
async function commit(client: PgClient, { place, patienceMs }: ServerPlace, statements: string): Promise<void> {
  const before = client.getTransactionStatus?.();
  if (before === "I") throw lost("the transaction ended inside the callback: leave COMMIT and ROLLBACK to Waybill");
  const unknown = (cause?: unknown): WaybillError =>
    new WaybillError("COMMIT_UNKNOWN", `the connection to ${place} was lost while COMMIT was under way`, { cause });
  const answer = await systemDeadlines
    .within(
      patienceMs,
      readable(() => client.query(statements)),
    )
    .catch((error: unknown) => {
      throw isSilence(error) ? unknown(error) : explain(error, place);
    });
  if (answer === null) throw unknown();
  if (lastOf(answer).command === "ROLLBACK")
    throw lost("a statement of the transaction had failed, and the failure was swallowed: PostgreSQL rolled everything back");
}

/** The client answers several statements with an array. */
const lastOf = (answer: PgResult | readonly PgResult[]): PgResult => ("rows" in answer ? answer : answer.at(-1)!);

const lost = (message: string): WaybillError => new WaybillError("TRANSACTION_LOST", message);
