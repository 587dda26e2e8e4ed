import { systemDeadlines } from "../../core/deadlines.ts";
import { WaybillError } from "../../core/errors.ts";
import { end } from "../kit/describe.ts";
import { again, later } from "../kit/pool.ts";
import { bound } from "./bound.ts";
import { explain, isConflict, openPool, type PgPool, type PgPoolClient, type PoolSettings } from "./driver.ts";
import { readable, WrongMessage } from "./guard.ts";
import { onClient } from "./pool.ts";

/** Every value as the text PostgreSQL sent it: type parsers that the application has set must not change what we read. */
export type PgRow = Readonly<Record<string, string | null>>;
export type Run = (text: string, values?: readonly unknown[]) => Promise<readonly PgRow[]>;

/** As arrays of columns. */
type Rows = readonly (readonly (string | null)[])[];

export interface Connection {
  /** The server and database, for messages. */
  readonly place: string;
  /** One statement, in a transaction of its own. */
  run: Run;
  /**
   * Runs statements without parameters in one transaction and one round trip, each with its own snapshot, and returns the rows of each. The
   * commit is as durable as the database's default; a function that needs more must set it itself.
   */
  batch(...statements: readonly string[]): Promise<readonly Rows[]>;
  /** READ COMMITTED and durable. Retried from its start after a deadlock or serialisation failure. */
  transaction<T>(work: (run: Run) => Promise<T>): Promise<T>;
  /** Reads only, all of it from one snapshot. */
  snapshot<T>(work: (run: Run) => Promise<T>): Promise<T>;
  /** A client of the pool. */
  borrow<T>(work: (client: PgPoolClient) => Promise<T>): Promise<T>;
  /** The same for a handler. A handler that failed or timed out may still run statements, so its client is closed. */
  lend<T>(work: (client: PgPoolClient) => Promise<T>): Promise<T>;
  close(): Promise<void>;
}

interface ConnectionOptions {
  readonly pool: PgPool | PoolSettings;
  readonly place: string;
  readonly statementTimeoutMs: number;
}

const raw = { getTypeParser: () => (value: string) => value };
/**
 * Where our statements find functions and operators. On some databases every role may create functions in a schema of the session's own
 * path, and one whose arguments match exactly is called in place of PostgreSQL's, with our rights. Each transaction of ours sets this for
 * itself: the session may be the user's, or a pooler's.
 */
const ownPath = "SET LOCAL search_path = pg_catalog, pg_temp";
/** A process that freezes inside one of our transactions keeps its lane rows locked. After this time, the server ends its session. */
const frozenMs = 10_000;

export function createConnection({ pool: given, place, statementTimeoutMs }: ConnectionOptions): Connection {
  const ours = "url" in given;
  let closing: Promise<void> | null = null;
  const pool = later(async () => (ours ? openPool(given) : given), end);
  // A pooler in transaction mode keeps no session settings and takes no start-up parameters: each transaction sets its own.
  // JIT is off: beside many rows the planner takes every statement for expensive, and compiling takes several times as long as running.
  const settings = (mode: string): readonly string[] => [
    `BEGIN ISOLATION LEVEL ${mode}`,
    ownPath,
    `SET LOCAL statement_timeout = ${statementTimeoutMs}`,
    `SET LOCAL lock_timeout = ${statementTimeoutMs}`,
    `SET LOCAL idle_in_transaction_session_timeout = ${Math.min(statementTimeoutMs, frozenMs)}`,
    "SET LOCAL client_min_messages = warning",
    "SET LOCAL jit = off",
    "SET LOCAL array_nulls = on",
    `SET LOCAL tcp_user_timeout = ${frozenMs}`,
  ];
  /** The claimed window must be durable before anything is sent, whatever the database's default is. */
  const begin = (mode: string): readonly string[] => [
    ...settings(mode),
    "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'",
  ];

  const at = { place, patienceMs: statementTimeoutMs };
  const borrow = async <T>(work: (client: PgPoolClient) => Promise<T>): Promise<T> => onClient(await pool.get(), at, work, isLost);

  /** A server that does not answer must not keep a relay waiting forever: the statement and its connection are dropped. */
  const ask = async (client: PgPoolClient, text: string, values?: readonly unknown[]): Promise<readonly PgRow[]> => {
    const query = client.query({ text, ...(values === undefined ? {} : { values: [...values] }), types: raw });
    return readable(async () => {
      const result = await systemDeadlines.within(statementTimeoutMs * 1.5, query);
      if (result === null) throw new Late(place);
      const results = [result as { rows: readonly PgRow[] }].flat(); // of several statements
      return rowsOf(results.at(-1)!);
    });
  };

  const askTwo = async (client: PgPoolClient, first: string, second: string): Promise<readonly PgRow[]> => {
    const coming = client.query({ text: `${first};\n${second}`, types: raw }) as unknown as Promise<
      readonly { readonly rows: readonly PgRow[] }[]
    >;
    return readable(async () => {
      const results = await systemDeadlines.within(statementTimeoutMs * 1.5, coming);
      if (results === null) throw new Late(place);
      return rowsOf(results[1]!);
    });
  };
  const opened = settings("READ COMMITTED");
  const askAll = async (client: PgPoolClient, statements: readonly string[]): Promise<readonly Rows[]> => {
    const query = client.query({ text: [...opened, ...statements, "COMMIT"].join(";\n"), types: raw, rowMode: "array" });
    const coming = query as unknown as Promise<readonly { readonly rows: Rows }[]>;
    return readable(async () => {
      const results = await systemDeadlines.within(statementTimeoutMs * 1.5, coming);
      if (results === null) throw new Late(place);
      if (results.length !== opened.length + statements.length + 1) throw new WrongMessage();
      return results.slice(opened.length, -1).map(rowsOf);
    });
  };
  const orRolledBack = async <T>(client: PgPoolClient, work: () => Promise<T>): Promise<T> => {
    try {
      return await work();
    } catch (error) {
      if (!isLost(error)) await ask(client, "ROLLBACK").catch(() => undefined);
      throw error;
    }
  };

  const once = <T>(mode: string, work: (run: Run) => Promise<T>): Promise<T> =>
    borrow(async (client) => {
      await ask(client, begin(mode).join("; "));
      return orRolledBack(client, async () => {
        const result = await work((text, values) => ask(client, text, values));
        await ask(client, "COMMIT");
        return result;
      });
    });

  const patiently = <T>(mode: string, work: (run: Run) => Promise<T>): Promise<T> =>
    again(() => once(mode, work), isConflict).catch(explained);
  const explained = (error: unknown): never => {
    throw explain(error, place);
  };

  return {
    place,
    borrow,
    lend: async (work) => onClient(await pool.get(), at, work, () => true),
    // Two statements in one message are one transaction and one round trip.
    run: (text, values = []) => borrow(async (client) => askTwo(client, ownPath, bound(text, values))).catch(explained),
    batch: (...statements) =>
      again(() => borrow((client) => orRolledBack(client, () => askAll(client, statements))), isConflict).catch(explained),
    transaction: (work) => patiently("READ COMMITTED", work),
    snapshot: (work) => patiently("REPEATABLE READ, READ ONLY", work),
    close: () => (closing ??= ours ? pool.close() : Promise.resolve()),
  };
}

/** What comes on its connection may be the answer to something else. */
const isLost = (error: unknown): boolean => error instanceof Late || error instanceof WrongMessage;

function rowsOf<Row>({ rows }: { readonly rows: readonly Row[] }): readonly Row[] {
  if (!(rows instanceof Array)) throw new WrongMessage();
  return rows;
}

/** Its connection is not used again: the late answer may still arrive at any time. */
export class Late extends WaybillError {
  constructor(place: string) {
    super("STORE_UNAVAILABLE", `${place} did not answer in time`);
  }
}
