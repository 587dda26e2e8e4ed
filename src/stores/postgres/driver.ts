import { mending } from "../kit/pool.ts";
import { causesOf, sqlStateOf } from "../../core/causes.ts";
import { asError, WaybillError, type ErrorCode } from "../../core/errors.ts";
import { loadClient } from "../../core/load-client.ts";
import { oneLine, presentable } from "../../core/reason.ts";
import { guarded, WrongMessage } from "./guard.ts";

/** The part of a `pg` client that Waybill uses. */
export interface PgClient {
  query(text: string, values?: unknown[]): Promise<PgResult>;
  query(config: PgQuery): Promise<PgResult>;
  on(event: PgEvent, listener: (error: Error) => void): unknown;
  off(event: PgEvent, listener: (error: Error) => void): unknown;
  /** "I" when idle, "T" inside a transaction, "E" inside one that has failed; pg 8.21 and later. */
  getTransactionStatus?(): string | null;
}

type PgEvent = "error" | "end" | "notification" | "drain";

interface PgQuery {
  readonly text: string;
  readonly values?: unknown[];
  readonly types?: { getTypeParser(): (value: string) => unknown };
  readonly rowMode?: "array";
}

export interface PgResult {
  readonly rows: readonly Record<string, unknown>[];
  readonly rowCount: number | null;
  readonly command: string;
}

export interface PgPoolClient extends PgClient {
  release(destroy?: boolean | Error): void;
  end?(): Promise<void>;
}

export interface PgPool {
  connect(): Promise<PgPoolClient>;
  end(): Promise<void>;
  readonly totalCount: number;
}

export interface PoolSettings {
  readonly url: string;
  readonly connections: number;
  readonly connectTimeoutMs: number;
}

/** Opens Waybill's own pool. By default pg waits forever, and an error on an idle connection ends the process unless it has a listener. */
export async function openPool({ url, connections, connectTimeoutMs }: PoolSettings): Promise<PgPool> {
  const { default: client } = await loadClient("PostgreSQL", "pg", () => import("pg"));
  const pool = new client.Pool({
    Client: guarded(client.Client),
    connectionString: verified(url),
    max: connections,
    connectionTimeoutMillis: connectTimeoutMs,
    idleTimeoutMillis: 30_000,
    allowExitOnIdle: true,
    keepAlive: true,
    keepAliveInitialDelayMillis: 10_000,
    application_name: "waybill",
  });
  pool.on("error", () => undefined); // the pool has already dropped that connection; the next one reports what is wrong
  return pool;
}

/** Encrypted means verified, unless the URL says `sslmode=no-verify`. */
export function verified(url: string): string {
  return url.replace(/([?&]sslmode=)(?:prefer|require|verify-ca)(?=&|#|$)/, "$1verify-full");
}

/** PostgreSQL's own code of an error, or null when it did not come from the server. */
export function sqlState(error: unknown): string | null {
  if (typeof error !== "object" || error === null) return null;
  const { code, severity } = error as { code?: unknown; severity?: unknown };
  return typeof code === "string" && severity !== undefined && /^[0-9A-Z]{5}$/.test(code) ? code : null;
}

/** Deadlock or serialisation failure: the transaction was rolled back and may be retried from its start. Libraries wrap the error. */
export const isConflict = (error: unknown): boolean =>
  causesOf(error).some((cause) => ["40001", "40P01"].includes(sqlStateOf(cause) ?? ""));

/** The statement under way got no answer: it may or may not have taken effect. */
export function isSilence(error: unknown): boolean {
  const state = sqlState(error);
  return state === null ? isLinkError(error) : state.startsWith("08") || state.startsWith("57P");
}

/** The session is gone: the server says so (25P03 and 25P04 are its timeouts), or the link is dead. Finds wrapped errors at any depth. */
export function isSessionEnd(error: unknown): boolean {
  const causes = causesOf(error).filter((cause) => !(cause instanceof WaybillError));
  const states = causes.map(sqlStateOf).filter((state) => state !== null);
  return states.length > 0 ? states.some((state) => /^(08|57P|25P0[34])/.test(state)) : causes.some(isLinkError);
}

/** The same, if the client knew it before sending, or the server said so. After a dead link, the statement may have taken effect. */
export function wasToldOfEnd(error: unknown): boolean {
  return causesOf(error).some(
    (cause) => /^(57P|25P0[34])/.test(sqlStateOf(cause) ?? "") || (cause instanceof Error && /not queryable/i.test(cause.message)),
  );
}

function isLinkError(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  if (error instanceof WrongMessage || isUnexpected(error)) return true;
  const { code } = error as { code?: unknown };
  if (
    typeof code === "string" &&
    /^(E[A-Z]+|ERR_(SSL|TLS)_\w+|CERT_\w+|(DEPTH|SELF|UNABLE)_\w+|CONNECT_TIMEOUT|CONNECTION_\w+)$/.test(code)
  )
    return true;
  return /connection (terminated|ended|closed)|timeout|not queryable|does not support SSL|client (was|has)/i.test(error.message);
}

/** By pg, when nothing was asked for. */
const isUnexpected = (error: Error): boolean => /^Received unexpected /.test(error.message);

/** Wrong password, user or database. */
const refused = /^(28P01|28000|3D000)$/;

/** SQLSTATEs, and what they mean to a user. */
const explanations: readonly (readonly [states: RegExp, code: ErrorCode, text: (place: string, why: string) => string])[] = [
  [
    /^(42P01|42883|42703|3F000)$/,
    "NOT_MIGRATED",
    (place, why) => `${place} does not have Waybill's tables as this code needs them (${why}): run waybill migrate`,
  ],
  [/^25006$/, "STORE_READ_ONLY", (place, why) => `${place} cannot be written: ${why}; is it a standby?`],
  [/^42501$/, "STORE_READ_ONLY", (place, why) => `${place}: ${why}; waybill migrate --print --grants shows what each role needs`],
  [refused, "STORE_UNAVAILABLE", (place, why) => `${place} refused the connection: ${why}`],
  [/^(55P03|57014|40001|40P01)$/, "STORE_UNAVAILABLE", (place, why) => `${place} gave up a statement: ${why}`],
  [/^(08|53|57P)/, "STORE_UNAVAILABLE", (place, why) => `${place} is not available: ${why}`],
];

/** Explains user mistakes and server problems; returns any other error as it came. */
export function explain(error: unknown, place: string): Error {
  const why = oneLine(asError(error).message);
  const state = sqlState(error);
  if (error instanceof WaybillError) return error;
  if (state === null && isLinkError(error))
    return new WaybillError("STORE_UNAVAILABLE", `${place} cannot be reached: ${why}`, { cause: error, ...mending(error) });
  const [, code, text] = explanations.find(([states]) => state !== null && states.test(state)) ?? [];
  const refusal = state !== null && refused.test(state) ? { retryable: false } : {};
  return code === undefined ? presentable(asError(error)) : new WaybillError(code, text!(place, why), { cause: error, ...refusal });
}
