import { isAtLeast } from "../../core/finding.ts";
import { WaybillError } from "../../core/errors.ts";
import { end } from "../kit/describe.ts";
import { again, later } from "../kit/pool.ts";
import {
  errnoOf,
  explain,
  isSilence,
  openPool,
  withoutValues,
  type MysqlConnection,
  type MysqlPool,
  type MysqlPoolConnection,
  type PoolSettings,
} from "./driver.ts";
import { isUnread, WrongPacket } from "./guard.ts";
import { onPool } from "./pool.ts";
import { fill, type SqlValue } from "./values.ts";

/** Every value as the bytes the server sent: type casts that the application has set must not change what we read. */
export type MysqlRow = Readonly<Record<string, Buffer | null>>;
export type Run = (sql: string, values?: readonly SqlValue[]) => Promise<readonly MysqlRow[]>;

/** The statements of one open transaction. */
export interface MysqlSession {
  readonly run: Run;
  /** Says how many rows were inserted, deleted, or met by an update. */
  change(sql: string, values?: readonly SqlValue[]): Promise<number>;
  /** Stands for the link to the server: another one after each reconnection. */
  readonly link: object;
  readonly server: MysqlServer;
}

export interface MysqlServer {
  readonly mariadb: boolean;
  readonly version: string;
  /** Whether a crash of the server inside a commit of one phase leaves no XA transaction prepared. */
  readonly recoversXa: boolean;
  /** No other connection has this name, to any server at any time. */
  readonly unique: string;
  /** Which server of several; `id` is the connection's id there. */
  readonly at: string;
  readonly id: number;
}

export interface Connection {
  /** The server and database, for messages. */
  readonly place: string;
  /** How long to wait for an answer. */
  readonly patienceMs: number;
  /** One statement, in a transaction of its own. */
  readonly run: Run;
  change(sql: string, values?: readonly SqlValue[]): Promise<number>;
  /** READ COMMITTED, so that every statement has a fresh snapshot and no gap is locked. Retried after a conflict with another session. */
  transaction<T>(work: (session: MysqlSession) => Promise<T>): Promise<T>;
  /** Reads only, all of it from one snapshot. */
  snapshot<T>(work: (run: Run, server: MysqlServer) => Promise<T>): Promise<T>;
  /**
   * A connection of the pool for a handler, with autocommit off: its first statement begins the transaction. If the handler fails or times
   * out, the connection is closed, since the handler may go on to run statements.
   */
  lend<T>(work: (connection: MysqlPoolConnection, server: MysqlServer) => Promise<T>): Promise<T>;
  /** For work of ours in which the session is what matters, not a transaction. */
  session<T>(work: (session: MysqlSession) => Promise<T>): Promise<T>;
  close(): Promise<void>;
}

export interface ConnectionOptions {
  readonly pool: MysqlPool | PoolSettings;
  readonly place: string;
  readonly statementTimeoutMs: number;
}

/** What a session is set to: as it came; for statements of ours, which end soon; for a handler, which may take its time. */
type Mode = "calm" | "hurried" | "lent";

/** A lower default of the server would silently hide rows from every SELECT. */
const noLimit = 2n ** 64n - 1n;
const unset = "set it to its default, or give Waybill a url";
const raw = { rowsAsArray: false, nestTables: false, namedPlaceholders: false } as const;
const bytes = (field: { buffer(): Buffer | null }): Buffer | null => field.buffer();

export function createConnection({ pool: given, place, statementTimeoutMs }: ConnectionOptions): Connection {
  const ours = "url" in given;
  const patienceMs = statementTimeoutMs * 1.5; // the server's own timeouts come first
  let closed = false;
  const servers = new WeakMap<object, MysqlServer>();
  /** Links that are not calm. */
  const modes = new WeakMap<object, Mode>();

  const pool = later(async () => (ours ? openPool(given) : given), end);

  const ask = async (connection: MysqlConnection, sql: string, values: readonly SqlValue[] = []): Promise<unknown> => {
    // A server that does not answer must not keep a relay waiting for ever; the connection is given up with the statement.
    const filled = fill(sql, values);
    try {
      return (await connection.query({ sql: filled, ...raw, typeCast: castOf(connection), timeout: patienceMs }))[0];
    } catch (error) {
      throw isUnread(error) ? new WrongPacket(withoutValues(error, filled, sql)) : withoutValues(error, filled, sql);
    }
  };

  /** Checks each connection once. The settings made here stay, so they are only made on our own connections. */
  const check = async (connection: MysqlConnection): Promise<MysqlServer> => {
    const link = linkOf(connection);
    const known = servers.get(link);
    if (known !== undefined) return known;
    if (ours) {
      await ask(connection, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE");
      await ask(
        connection,
        `SET SESSION autocommit = 1, sql_mode = 'STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO', time_zone = '+00:00',
         innodb_lock_wait_timeout = ${Math.ceil(statementTimeoutMs / 1000)}, lock_wait_timeout = ${Math.ceil(statementTimeoutMs / 1000)},
         sql_select_limit = ${noLimit}, sql_big_selects = 1, sql_safe_updates = 0, sql_auto_is_null = 0, completion_type = 0, unique_checks = 1,
         character_set_client = utf8mb4, character_set_connection = utf8mb4, character_set_results = utf8mb4`,
      );
    }
    const [row] = rowsOf(
      await ask(
        connection,
        "SELECT VERSION() AS version, @@log_bin AS binlog, UUID() AS unique_name, @@autocommit AS autocommit, @@sql_select_limit AS most, @@completion_type AS completion, CONCAT(@@hostname, ':', @@port) AS place, CONNECTION_ID() AS id",
      ),
    );
    if (row === undefined || ["version", "autocommit", "most", "completion"].some((name) => row[name] === undefined))
      throw new WrongPacket();
    if (String(row["autocommit"]) !== "1")
      throw new WaybillError("INVALID_OPTION", "mysql: the pool turns autocommit off: give Waybill a pool that leaves it on");
    if (BigInt(String(row["most"])) < 2n ** 32n - 1n)
      throw new WaybillError(
        "INVALID_OPTION",
        `mysql: the pool's sessions have sql_select_limit = ${String(row["most"])}, which hides rows: ${unset}`,
      );
    if (String(row["completion"]) !== "NO_CHAIN")
      throw new WaybillError("INVALID_OPTION", `mysql: the pool's sessions have completion_type = ${String(row["completion"])}: ${unset}`);
    const version = String(row["version"]);
    const mariadb = /mariadb/i.test(version);
    const recoversXa = String(row["binlog"]) === "0" || (!mariadb && isAtLeast(version, "8.0.30"));
    const unique = String(row["unique_name"]);
    const server = { version, mariadb, recoversXa, unique, at: String(row["place"]), id: Number(String(row["id"])) };
    servers.set(link, server);
    return server;
  };
  const prepare = (connection: MysqlConnection): Promise<MysqlServer> =>
    check(connection).catch((error: unknown) => explained(isUnread(error) ? new WrongPacket(error) : error));

  const turn = async (connection: MysqlConnection, server: MysqlServer, to: Mode): Promise<void> => {
    const from = modes.get(linkOf(connection)) ?? "calm";
    if (from === to) return;
    const idle = idleSettings(server.mariadb);
    const autocommit = from === "lent" || to === "lent" ? [`autocommit = ${to === "lent" ? 0 : 1}`] : [];
    const limits = to === "calm" ? [idle.restore] : [...(from === "calm" ? [idle.keep] : []), idle.limit(idleSeconds(to))];
    await ask(connection, `SET ${[...autocommit, ...limits].join(", ")}`);
    modes.set(linkOf(connection), to);
  };
  /** On MariaDB the limits have no effect outside transactions, so our own connections keep them until another mode needs others. */
  const rest = async (connection: MysqlPoolConnection, server: MysqlServer): Promise<void> => {
    if (!ours || !server.mariadb) await turn(connection, server, "calm").catch(() => connection.destroy());
  };
  /** A handler that is frozen inside its transaction must not keep its event from other subscribers for ever. */
  const idleSeconds = (mode: Mode): number => (mode === "lent" ? Math.ceil((patienceMs * 10) / 1000) : ourIdleSeconds);

  const at = { place, patienceMs: statementTimeoutMs };
  const prepared = async <T>(
    work: (connection: MysqlPoolConnection, server: MysqlServer) => Promise<T>,
    closesFailed = false,
  ): Promise<T> => {
    if (closed) throw new WaybillError("STOPPED", `the connection to ${place} has been closed`);
    return onPool(await pool.get(), at, async (connection) => work(connection, await prepare(connection)), closesFailed);
  };

  const sessionOn = (connection: MysqlConnection, server: MysqlServer): MysqlSession => ({
    server,
    link: linkOf(connection),
    run: async (sql, values) => rowsOf(await ask(connection, sql, values)),
    change: async (sql, values) => ((await ask(connection, sql, values)) as { affectedRows: number }).affectedRows,
  });

  const once = <T>(begin: readonly string[], work: (session: MysqlSession) => Promise<T>): Promise<T> =>
    prepared(async (connection, server) => {
      const own = sessionOn(connection, server);
      await turn(connection, server, "hurried");
      let silent = false;
      try {
        for (const sql of begin) await own.run(sql);
        const result = await work(own);
        await own.run("COMMIT");
        return result;
      } catch (error) {
        silent = isSilence(error);
        if (!silent) await own.run("ROLLBACK").catch(() => undefined);
        throw error;
      } finally {
        if (!silent) await rest(connection, server); // a connection that does not answer is closed anyway
      }
    });

  const explained = (error: unknown): never => {
    throw explain(error, place);
  };
  // 1412: partitions came or went after the snapshot was made.
  const isLost = (error: unknown): boolean => [1213, 1020, 1412].includes(errnoOf(error) ?? 0);
  const patiently = <T>(begin: readonly string[], work: (session: MysqlSession) => Promise<T>): Promise<T> =>
    again(() => once(begin, work), isLost).catch(explained);
  const alone = <T>(work: (session: MysqlSession) => Promise<T>): Promise<T> =>
    prepared(async (connection, server) => {
      if (modes.get(linkOf(connection)) === "lent") await turn(connection, server, "calm");
      return work(sessionOn(connection, server));
    }).catch(explained);

  return {
    place,
    patienceMs,
    lend: (work) =>
      prepared(async (connection, server) => {
        await turn(connection, server, "lent").catch(explained);
        const result = await work(connection, server);
        await rest(connection, server);
        return result;
      }, true),
    session: alone,
    run: (sql, values) => alone(({ run }) => run(sql, values)),
    change: (sql, values) => alone(({ change }) => change(sql, values)),
    transaction: (work) => patiently([...(ours ? [] : ["SET TRANSACTION ISOLATION LEVEL READ COMMITTED"]), "START TRANSACTION"], work),
    snapshot: (work) =>
      patiently(
        ["SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"],
        ({ run, server }) => work(run, server),
      ),
    async close() {
      closed = true;
      if (ours) await pool.close();
    },
  };
}

/** Statements that change something answer with no rows, and nobody reads any. */
function rowsOf(answer: unknown): readonly MysqlRow[] {
  if (Array.isArray(answer)) return answer as readonly MysqlRow[];
  if (typeof answer === "object" && answer !== null && "affectedRows" in answer) return [];
  throw new WrongPacket();
}

/** The pool hands a connection out in a new object each time. This is the connection inside. */
function linkOf(connection: MysqlConnection): object {
  const { connection: core } = connection as { connection?: unknown };
  return typeof core === "object" && core !== null ? core : connection;
}

/** A cast function that the application has set is overridden only by another function. */
function castOf(connection: MysqlConnection): false | typeof bytes {
  const { config } = linkOf(connection) as { config?: { typeCast?: unknown } };
  return config !== undefined && typeof config.typeCast !== "function" ? false : bytes;
}

/** How long a transaction of ours waits for its next statement: a process that is frozen in one must not keep its locks. */
const ourIdleSeconds = 10;

/** Parts of SET that remember the session's own limits, set others, and restore its own. */
interface IdleSettings {
  readonly keep: string;
  readonly restore: string;
  limit(seconds: number): string;
}

/** MariaDB ends sessions that are idle within a transaction; MySQL ends idle ones of any kind. */
function idleSettings(mariadb: boolean): IdleSettings {
  const names = mariadb
    ? ["idle_transaction_timeout", "idle_write_transaction_timeout", "idle_readonly_transaction_timeout"]
    : ["wait_timeout"];
  const list = (part: (name: string) => string): string => names.map(part).join(", ");
  return {
    keep: list((name) => `@waybill_${name} = @@session.${name}`),
    restore: list((name) => `SESSION ${name} = @waybill_${name}`),
    limit: (seconds) => list((name) => `SESSION ${name} = ${seconds}`),
  };
}
