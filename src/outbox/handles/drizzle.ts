import type { Begins } from "../../contracts/handle.ts";
import type { PooledClient } from "../../core/check-out.ts";
import { WaybillError } from "../../core/errors.ts";
import { lend, unlent, type Loan } from "../../core/lend.ts";
import { lendTurn } from "../../core/lend-turn.ts";
import type { GivenBy, Method } from "./method.ts";
import { type Begin, ended, handle, isMethod, noTransaction } from "./handle.ts";
import { isInside, type PgTransaction } from "./pg.ts";
import { keepSession } from "./postgres-js.ts";
import { rowsOf, unwrapped, type Rows } from "./result.ts";

/** What `db.transaction(…)` gives to its callback. */
export interface DrizzleTransaction {
  rollback(): never;
}

export interface DrizzleDb {
  readonly transaction: Method;
}

interface DrizzleBegins extends Begins {
  readonly tx: this["db"] extends { readonly transaction: infer M } ? GivenBy<M> : never;
}

/** What drivers have in common. SQLite drivers have `all` in place of `execute`. */
interface Inside {
  readonly execute?: (query: Query) => PromiseLike<unknown>;
  readonly all?: (query: Query) => PromiseLike<unknown>;
  readonly rollback?: unknown;
  readonly resultKind?: "sync" | "async";
  readonly session?: { readonly client?: { getTransactionStatus?(): string | null }; readonly tx?: { readonly closed?: boolean } };
}

/** As much of Drizzle's own `SQL` as its dialects ask for: a statement that is complete already. */
interface Query {
  getSQL(): { toQuery(): { readonly sql: string; readonly params: readonly unknown[] } };
}

/** The transaction that `db.transaction(…)` gives to its callback, on any asynchronous driver. */
export const fromDrizzle = handle<DrizzleDb, DrizzleTransaction, DrizzleBegins>({
  name: "Drizzle",
  owns: ({ transaction }) => isMethod(transaction),
  open(given) {
    const tx = given as Inside;
    if (typeof tx.rollback !== "function") throw noTransaction("a Drizzle database was given in place of its transaction");
    refuseSynchronous(tx);
    if (!isOpen(tx)) throw ended("Drizzle");
    const silent = silentClientOf(tx);
    return async (sql, params) => {
      if (silent !== null && !(await isInside(silent))) throw ended("Drizzle");
      const query: Query = { getSQL: () => ({ toQuery: () => ({ sql, params }) }) };
      if (tx.execute !== undefined) return { rows: rowsOf(await unwrapped(tx.execute(query))) };
      const rows = (await unwrapped(tx.all!(query))) as Rows;
      if (Array.isArray(rows[0])) throw unsupported("gives rows without the names of their columns: use another one");
      return { rows };
    };
  },
  isInside: (db) => typeof (db as Inside).rollback === "function",
  lend: (tx) => lendClient(tx, lendTurn),
  async begin(db, work) {
    refuseSynchronous(db as Inside);
    let stopListening = (): void => undefined;
    try {
      return await (db as Begin<DrizzleTransaction>).transaction((tx) => {
        stopListening = listenTo(tx);
        const lent = lendClient(tx, lend);
        const letGo = isPostgresJs(tx) ? keepSession(tx.session.client) : (): void => undefined;
        return work(lent.handle).finally(() => {
          lent.takeBack();
          letGo();
        });
      });
    } finally {
      stopListening();
    }
  },
});

const isPostgresJs = (tx: Inside): tx is Inside & { readonly session: { readonly client: object } } => {
  const { savepoint, unsafe } = (tx.session?.client ?? {}) as Readonly<Record<string, unknown>>;
  return isMethod(savepoint) && isMethod(unsafe);
};

/** The server may end a session between two statements. The error of a pg client that nobody listens to would end the process. */
function listenTo({ session }: Inside): () => void {
  const client = session?.client as Partial<PooledClient> | undefined;
  if (typeof client?.on !== "function" || typeof client.off !== "function") return () => undefined;
  const listen = (): void => undefined; // the next statement reports the error
  client.on("error", listen);
  return () => void client.off!("error", listen);
}

/**
 * Queries are built long before they are sent, and nested transactions are objects of their own. So the guard is beneath them, around the
 * driver's client. Drizzle itself keeps the unguarded client, for COMMIT and ROLLBACK.
 */
function lendClient(given: DrizzleTransaction, by: typeof lend): Loan<DrizzleTransaction> {
  const tx = unlent(given); // a handle's methods would use the handle's own client
  const { session } = tx as Inside;
  const open = (): boolean => isOpen(tx);
  const name = session?.tx === undefined ? "client" : "tx"; // libsql has a client for each transaction
  const client = session?.[name];
  if (client === undefined) return lend(tx, open);
  const lent = by(client, open);
  const guarded = Object.create(session!, { [name]: { value: lent.handle } }) as object;
  const inside = Object.create(tx, { session: { value: guarded } }) as DrizzleTransaction;
  return lend(inside, open, { under: { thing: tx, takeBack: lent.takeBack } });
}

/** A pg client before 8.21, which does not say whether its transaction is open. */
function silentClientOf({ session }: Inside): PgTransaction | null {
  const client = session?.client as Partial<PgTransaction> & { readonly processID?: unknown };
  const isSilent = typeof client?.processID === "number" && typeof client.query === "function" && client.getTransactionStatus === undefined;
  return isSilent ? (client as PgTransaction) : null;
}

/** As far as the driver reports it. */
const isOpen = ({ session }: Inside): boolean => session?.client?.getTransactionStatus?.() !== "I" && session?.tx?.closed !== true;

/** A synchronous transaction commits when its callback returns, before an awaited statement could run. */
function refuseSynchronous({ resultKind }: Inside): void {
  if (resultKind !== "sync") return;
  throw unsupported("is synchronous: leave the handle out, and give outbox.add the driver's own client inside the transaction");
}

function unsupported(why: string): WaybillError {
  return new WaybillError("UNSUPPORTED", `this driver of Drizzle ${why}`);
}
