import { mending } from "../kit/pool.ts";
import { readFileSync } from "node:fs";
import { isIP } from "node:net";
import { causesOf } from "../../core/causes.ts";
import { asError, WaybillError, type ErrorCode } from "../../core/errors.ts";
import { setIdle } from "../../core/idle.ts";
import { loadClient } from "../../core/load-client.ts";
import { oneLine, presentable } from "../../core/reason.ts";
import { guardReading, isUnread, unread } from "./guard.ts";

/** The part of a connection of `mysql2/promise` that Waybill uses. */
export interface MysqlConnection {
  query(sql: string): Promise<readonly unknown[]>;
  query(options: MysqlQuery): Promise<readonly unknown[]>;
  execute(sql: string): Promise<readonly unknown[]>;
}

export interface MysqlQuery {
  readonly sql: string;
  readonly typeCast?: false | ((field: { buffer(): Buffer | null }) => Buffer | null);
  readonly rowsAsArray?: boolean;
  readonly nestTables?: boolean;
  readonly namedPlaceholders?: boolean;
  readonly timeout?: number;
}

export interface MysqlPoolConnection extends MysqlConnection {
  release(): void;
  destroy(): void;
}

export interface MysqlPool {
  getConnection(): Promise<MysqlPoolConnection>;
  end(): Promise<void>;
}

export interface PoolSettings {
  readonly url: string;
  readonly connections: number;
  readonly connectTimeoutMs: number;
}

/** Opens a pool of our own. By default, mysql2 rounds large numbers, reads times in local time and turns objects into SQL. */
export async function openPool({ url, connections, connectTimeoutMs }: PoolSettings): Promise<MysqlPool> {
  const { default: mysql } = await loadClient("MySQL and MariaDB", "mysql2", () => import("mysql2/promise"));
  const pool = mysql.createPool({
    ...settingsOf(url),
    connectionLimit: connections,
    connectTimeout: connectTimeoutMs,
    enableKeepAlive: true,
    keepAliveInitialDelay: 10_000,
    charset: "utf8mb4",
    timezone: "Z",
    dateStrings: true,
    supportBigNumbers: true,
    bigNumberStrings: true,
    stringifyObjects: true,
    multipleStatements: false,
  });
  pool.on("connection", (connection) => guardReading(connection));
  // As with pg's allowExitOnIdle: a connection keeps the process alive while it is out of the pool.
  pool.on("acquire", (connection) => setIdle(streamOf(connection), false));
  pool.on("release", (connection) => setIdle(streamOf(connection), true));
  return pool;
}

/** The connection's socket, which is replaced once the connection is encrypted. */
const streamOf = (connection: object): unknown => (connection as { readonly stream?: unknown }).stream;

const example = "mysql://user:password@host:3306/database";

interface TlsSettings {
  readonly rejectUnauthorized: boolean;
  readonly verifyIdentity?: boolean;
  readonly minVersion?: string;
  readonly ca?: string;
}

interface ConnectionSettings {
  readonly host: string;
  readonly port: number;
  readonly user?: string;
  readonly password?: string;
  readonly database?: string;
  readonly ssl?: TlsSettings;
}

/** Refuses URL parameters other than these two: mysql2 would take any of its options from the URL. */
export function settingsOf(text: string): ConnectionSettings {
  const url = urlOf(text);
  for (const name of url.searchParams.keys())
    if (name !== "sslmode" && name !== "sslrootcert")
      throw new WaybillError("BAD_URL", `mysql: the URL has a parameter ${JSON.stringify(name)}; it may have sslmode and sslrootcert`);
  const host = url.hostname.replace(/^\[(.*)\]$/, "$1");
  const database = decoded(url.pathname.slice(1), "database");
  const ssl = tlsOf(url);
  return {
    host,
    port: url.port === "" ? 3306 : Number(url.port),
    ...(url.username === "" ? {} : { user: decoded(url.username, "user") }),
    ...(url.password === "" ? {} : { password: decoded(url.password, "password") }),
    ...(database === "" ? {} : { database }),
    ...(ssl === null ? {} : { ssl }),
  };
}

function decoded(text: string, part: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new WaybillError("BAD_URL", `mysql: the URL's ${part} has a % that does not begin a character: write it as %25`);
  }
}

export function urlOf(text: string): URL {
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    throw new WaybillError("BAD_URL", `mysql: url is not a URL: write it as ${example}`);
  }
  if ((url.protocol !== "mysql:" && url.protocol !== "mariadb:") || url.hostname === "" || url.pathname.slice(1).includes("/"))
    throw new WaybillError("BAD_URL", `mysql: a URL is written as ${example}`);
  return url;
}

/** Encrypted means verified, unless the URL says `sslmode=no-verify`. */
function tlsOf(url: URL): TlsSettings | null {
  const mode = url.searchParams.get("sslmode") ?? (url.searchParams.has("sslrootcert") ? "verify-full" : "disable");
  const file = url.searchParams.get("sslrootcert");
  if (mode === "disable") return null;
  if (mode === "no-verify") return { rejectUnauthorized: false };
  if (mode !== "verify-full" && mode !== "require")
    throw new WaybillError("BAD_URL", `mysql: sslmode is disable, verify-full or no-verify, not ${JSON.stringify(mode)}`);
  // Without a name to verify, mysql2 would be content with a certificate for "localhost".
  if (isIP(url.hostname.replace(/^\[(.*)\]$/, "$1")) !== 0)
    throw new WaybillError("BAD_URL", `mysql: with sslmode=${mode} the host must be named as in its certificate, not ${url.hostname}`);
  const options = { rejectUnauthorized: true, verifyIdentity: true, minVersion: "TLSv1.2" };
  if (file === null) return options;
  try {
    return { ...options, ca: readFileSync(file, "utf8") };
  } catch (cause) {
    throw new WaybillError("BAD_URL", `mysql: the sslrootcert ${JSON.stringify(file)} cannot be read`, { cause });
  }
}

interface ServerError {
  readonly errno: number;
  readonly message: string;
}

/** The server's own error, however deep a library has wrapped it; null when it did not come from the server. */
export function serverError(error: unknown): ServerError | null {
  for (const cause of causesOf(error)) {
    const { errno, message, sqlState, meta } = cause as Record<string, unknown>;
    // Errors of the system have negative numbers, and those of the client have none.
    if (typeof errno === "number" && errno >= 1000 && typeof sqlState === "string") return { errno, message: String(message) };
    const told = (meta as { code?: unknown; message?: unknown } | undefined) ?? {}; // Prisma's way
    if (/^\d{4}$/.test(String(told.code))) return { errno: Number(told.code), message: String(told.message) };
  }
  return null;
}

export const errnoOf = (error: unknown): number | null => serverError(error)?.errno ?? null;

/** The client and most libraries put the statement on their errors, with every value in it. Those values must not reach a log. */
export function withoutValues(error: unknown, filled: string, sql: string): unknown {
  if (filled !== sql)
    for (const cause of causesOf(error))
      for (const name of ["message", "stack", "sql", "query"]) {
        const text = (cause as Record<string, unknown>)[name];
        if (typeof text === "string" && text.includes(filled)) Reflect.set(cause, name, text.replaceAll(filled, sql));
      }
  return error;
}

/** A deadlock, or another session's lock for too long: everything may be retried from its start. */
export const isConflict = (error: unknown): boolean => [1213, 1205, 1020].includes(errnoOf(error) ?? 0);

const link = new Set(["PROTOCOL_CONNECTION_LOST", "PROTOCOL_SEQUENCE_TIMEOUT", "HANDSHAKE_SSL_ERROR", "HANDSHAKE_NO_SSL_SUPPORT"]);
/** Shut down, killed, aborted or timed out: the server ended the connection or the statement in the middle of its work. */
const ended = [1053, 1077, 1078, 1079, 1152, 1158, 1159, 1160, 1161, 1184, 1317, 1927, 2006, 2013, 3024, 4031];

/** The server did not answer: the statement under way may or may not have taken effect. */
export function isSilence(error: unknown): boolean {
  const errno = errnoOf(error);
  return errno === null ? isLinkError(error) : ended.includes(errno);
}

function isLinkError(error: unknown): boolean {
  return causesOf(error).some((cause) => {
    const { code, message, fatal } = cause as { code?: unknown; message?: unknown; fatal?: unknown };
    if (typeof code === "string" && (link.has(code) || /^(E[A-Z]{3,}|ERR_(TLS|SSL)_.*|[A-Z_]*CERT[A-Z_]*)$/.test(code))) return true;
    return fatal === true || /closed state|Pool is closed|Queue limit reached|No connections available/.test(String(message));
  });
}

/** Errors of the server by their numbers, and what they mean to a user. */
const refused: readonly number[] = [1044, 1045, 1046, 1049, 1698];
const explanations: readonly (readonly [errnos: readonly number[], code: ErrorCode, text: (place: string, why: string) => string])[] = [
  [ended, "STORE_UNAVAILABLE", (place, why) => `${place} ended the connection: ${why}`],
  [
    [1146, 1054, 1305], // no such table, column, procedure
    "NOT_MIGRATED",
    (place, why) => `${place} does not have Waybill's tables as this code needs them (${why}): run waybill migrate --store mysql://…`,
  ],
  // By --read-only, in a read-only transaction, in read-only mode.
  [[1290, 1792, 1836], "STORE_READ_ONLY", (place, why) => `${place} cannot be written: ${why}; is it a replica?`],
  // A right on a table, on a column, on the server, on a routine.
  [
    [1142, 1143, 1227, 1370],
    "STORE_READ_ONLY",
    (place, why) => `${place}: ${why}; waybill migrate --print --grants shows what each role needs`,
  ],
  [refused, "STORE_UNAVAILABLE", (place, why) => `${place} refused the connection: ${why}`],
  // Too many connections, locks, a full table or disk.
  [[1040, 1203, 1226, 1205, 1213, 1020, 1114, 1021], "STORE_UNAVAILABLE", (place, why) => `${place} is not available: ${why}`],
  [[1153], "PAYLOAD_TOO_LARGE", (place, why) => `${place}: ${why}; raise the server's max_allowed_packet`],
];

/** The client's and the server's errors in Waybill's words. Neither names the password. */
export function explain(error: unknown, place: string): Error {
  if (error instanceof WaybillError) return error;
  const why = oneLine((serverError(error)?.message ?? asError(error).message) || String((error as { code?: unknown }).code));
  const errno = errnoOf(error);
  if (errno === null && isLinkError(error))
    return new WaybillError("STORE_UNAVAILABLE", `${place} cannot be reached: ${isUnread(error) ? unread : why}`, {
      cause: error,
      ...mending(error),
    });
  const [, code, text] = explanations.find(([errnos]) => errno !== null && errnos.includes(errno)) ?? [];
  const refusal = errno !== null && refused.includes(errno) ? { retryable: false } : {};
  return code === undefined ? presentable(asError(error)) : new WaybillError(code, text!(place, why), { cause: error, ...refusal });
}
