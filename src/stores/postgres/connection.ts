import { systemClock } from "../../core/clock.ts";
import { asError, WaybillError } from "../../core/errors.ts";
import { connect } from "./connect.ts";
import { explain, isConflict, openPool, type PgPool, type PgPoolClient, type PoolSettings } from "./driver.ts";

/** Every value as the text PostgreSQL sent it: type parsers that the application has set must not change what we read. */
export type PgRow = Readonly<Record<string, string | null>>;
export type Run = (text: string, values?: readonly unknown[]) => Promise<readonly PgRow[]>;

export interface Connection {
  /** The server and database, for messages. */
  readonly place: string;
  /** One statement, in a transaction of its own. */
  run: Run;
  /** READ COMMITTED, durable, and run again from its start when it lost against another. */
  transaction<T>(work: (run: Run) => Promise<T>): Promise<T>;
  /** Reads only, all of it from one snapshot. */
  snapshot<T>(work: (run: Run) => Promise<T>): Promise<T>;
  /** A client of the pool. */
  borrow<T>(work: (client: PgPoolClient) => Promise<T>): Promise<T>;
  /** The same for a handler. One that failed, or timed out, may go on with statements of its own: its client is closed. */
  lend<T>(work: (client: PgPoolClient) => Promise<T>): Promise<T>;
  close(): Promise<void>;
}

export interface ConnectionOptions {
  readonly pool: PgPool | PoolSettings;
  readonly place: string;
  readonly statementTimeoutMs: number;
}

const raw = { getTypeParser: () => (value: string) => value };
const attempts = 5;
/** A process that is frozen inside one of our transactions holds its lanes' rows; after this, the server gives them to the others. */
const frozenMs = 10_000;

export function createConnection({ pool: given, place, statementTimeoutMs }: ConnectionOptions): Connection {
  const ours = "url" in given;
  let opened: Promise<PgPool> | null = ours ? null : Promise.resolve(given);
  let closing: Promise<void> | null = null;
  const pool = (): Promise<PgPool> => (opened ??= openPool(given as PoolSettings));
  // A pooler in transaction mode keeps no session settings and takes no start-up parameters: each transaction sets its own.
  // The claimed window must be durable before anything is sent, whatever the database's default is. Beside many rows every statement looks
  // expensive to the planner, and compiling it takes several times as long as running it.
  const begin = (mode: string): string => `BEGIN ISOLATION LEVEL ${mode}; SELECT
    set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true),
    set_config('statement_timeout', '${statementTimeoutMs}', true), set_config('lock_timeout', '${statementTimeoutMs}', true),
    set_config('idle_in_transaction_session_timeout', '${Math.min(statementTimeoutMs, frozenMs)}', true), set_config('client_min_messages', 'warning', true), set_config('jit', 'off', true), set_config('tcp_user_timeout', '${frozenMs}', true)`;

  const use = async <T>(work: (client: PgPoolClient) => Promise<T>, closes: (error: unknown) => boolean): Promise<T> => {
    let broken: Error | undefined;
    const listen = (error: Error): void => void (broken = error); // a connection that breaks between two statements says so here
    const client = await connect(await pool(), listen, { place, patienceMs: statementTimeoutMs });
    try {
      return await work(client);
    } catch (error) {
      if (closes(error)) broken ??= asError(error);
      throw error;
    } finally {
      client.off("error", listen);
      // Who knows in which state a connection is whose transaction did not end: it goes, and the server rolls back.
      const status = client.getTransactionStatus?.() ?? "I";
      client.release(broken ?? status !== "I");
    }
  };

  const borrow = <T>(work: (client: PgPoolClient) => Promise<T>): Promise<T> => use(work, (error) => error instanceof Late);

  /** A server that does not answer must not keep a relay waiting for ever: the connection is given up with the statement. */
  const ask = async (client: PgPoolClient, text: string, values?: readonly unknown[]): Promise<readonly PgRow[]> => {
    const ended = new AbortController();
    const late = systemClock.sleep(statementTimeoutMs * 1.5, ended.signal).then(() => {
      if (!ended.signal.aborted) throw new Late(place);
    });
    try {
      const query = client.query({ text, ...(values === undefined ? {} : { values: [...values] }), types: raw });
      query.catch(() => undefined); // when it comes late, nobody waits for it any more
      const result = await Promise.race([query, late]);
      return (result as { rows: readonly PgRow[] }).rows;
    } finally {
      ended.abort();
    }
  };

  const once = <T>(mode: string, work: (run: Run) => Promise<T>): Promise<T> =>
    borrow(async (client) => {
      await ask(client, begin(mode));
      try {
        const result = await work((text, values) => ask(client, text, values));
        await ask(client, "COMMIT");
        return result;
      } catch (error) {
        if (!(error instanceof Late)) await ask(client, "ROLLBACK").catch(() => undefined);
        throw error;
      }
    });

  const again = async <T>(mode: string, work: (run: Run) => Promise<T>): Promise<T> => {
    for (let attempt = 1; ; attempt++) {
      try {
        return await once(mode, work);
      } catch (error) {
        if (!isConflict(error) || attempt === attempts) throw explain(error, place);
      }
    }
  };

  return {
    place,
    borrow,
    lend: (work) => use(work, () => true),
    run: (text, values) =>
      borrow((client) => ask(client, text, values)).catch((error: unknown) => {
        throw explain(error, place);
      }),
    transaction: (work) => again("READ COMMITTED", work),
    snapshot: (work) => again("REPEATABLE READ, READ ONLY", work),
    close: () => (closing ??= ours && opened !== null ? opened.then((last) => last.end()) : Promise.resolve()),
  };
}

/** Its connection is not used again: whatever it is waiting for may come at any time. */
export class Late extends WaybillError {
  constructor(place: string) {
    super("STORE_UNAVAILABLE", `${place} did not answer in time`);
  }
}
