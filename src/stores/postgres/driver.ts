import type pg from "pg";
import { causesOf, sqlStateOf } from "../../core/causes.ts";
import { WaybillError } from "../../core/errors.ts";

/** The part of a `pg` client that Waybill uses. */
export interface PgClient {
  query(text: string, values?: unknown[]): Promise<PgResult>;
  query(config: PgQuery): Promise<PgResult>;
  on(event: PgEvent, listener: (error: Error) => void): unknown;
  off(event: PgEvent, listener: (error: Error) => void): unknown;
  /** "I" when idle, "T" inside a transaction, "E" inside one that has failed; pg 8.21 and later. */
  getTransactionStatus?(): string | null;
}

type PgEvent = "error" | "end" | "notification";

export interface PgQuery {
  readonly text: string;
  readonly values?: unknown[];
  readonly types?: { getTypeParser(): (value: string) => unknown };
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

/** A pool of our own. pg waits for ever by default, and an error on an idle connection ends the process unless somebody listens. */
export async function openPool({ url, connections, connectTimeoutMs }: PoolSettings): Promise<PgPool> {
  const { Pool } = await load();
  const pool = new Pool({
    connectionString: verified(url),
    max: connections,
    connectionTimeoutMillis: connectTimeoutMs,
    idleTimeoutMillis: 30_000,
    keepAlive: true,
    keepAliveInitialDelayMillis: 10_000,
    application_name: "waybill",
  });
  pool.on("error", () => undefined); // the pool has dropped that connection already; the next one to be used tells what is wrong
  return pool;
}

async function load(): Promise<typeof pg> {
  try {
    return (await import("pg")).default;
  } catch (cause) {
    throw new WaybillError("DRIVER_MISSING", "the PostgreSQL client is not installed: npm install pg", { cause });
  }
}

/** Encrypted means verified: whoever wants it otherwise has to say `sslmode=no-verify`. */
function verified(url: string): string {
  return url.replace(/([?&]sslmode=)(?:prefer|require|verify-ca)(?=&|#|$)/, "$1verify-full");
}

/** PostgreSQL's own code of an error, or null when it did not come from the server. */
export function sqlState(error: unknown): string | null {
  if (typeof error !== "object" || error === null) return null;
  const { code, severity } = error as { code?: unknown; severity?: unknown };
  return typeof code === "string" && severity !== undefined && /^[0-9A-Z]{5}$/.test(code) ? code : null;
}

/** Deadlock or serialisation failure: everything was rolled back, and may be run again from its start. Libraries wrap it. */
export const isConflict = (error: unknown): boolean =>
  causesOf(error).some((cause) => ["40001", "40P01"].includes(sqlStateOf(cause) ?? ""));

/** Nobody answered: whatever was under way may or may not have been done. */
export function isSilence(error: unknown): boolean {
  const state = sqlState(error);
  return state === null ? isLinkError(error) : state.startsWith("08") || state.startsWith("57P");
}

/** The session is gone, however deep a library has wrapped that: told by the server (25P03 and 25P04 are its timeouts), or by a dead link. */
export function isSessionEnd(error: unknown): boolean {
  const causes = causesOf(error).filter((cause) => !(cause instanceof WaybillError));
  const states = causes.map(sqlStateOf).filter((state) => state !== null);
  return states.length > 0 ? states.some((state) => /^(08|57P|25P0[34])/.test(state)) : causes.some(isLinkError);
}

function isLinkError(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const { code } = error as { code?: unknown };
  if (
    typeof code === "string" &&
    /^(E[A-Z]+|ERR_(SSL|TLS)_\w+|CERT_\w+|(DEPTH|SELF|UNABLE)_\w+|CONNECT_TIMEOUT|CONNECTION_\w+)$/.test(code)
  )
    return true;
  return /connection (terminated|ended|closed)|timeout|not queryable|does not support SSL|client (was|has)/i.test(error.message);
}

/** A user's mistake and the server's troubles in words; everything else as it came. */
export function explain(error: unknown, place: string): Error {
  const why = error instanceof Error ? error.message : String(error);
  const state = sqlState(error);
  const say = (code: ConstructorParameters<typeof WaybillError>[0], text: string): WaybillError =>
    new WaybillError(code, text, { cause: error });
  if (error instanceof WaybillError) return error;
  if (state === null) return isLinkError(error) ? say("STORE_UNAVAILABLE", `${place} cannot be reached: ${why}`) : toError(error, why);
  switch (state) {
    case "42P01":
    case "42883":
    case "42703":
    case "3F000":
      return say("NOT_MIGRATED", `${place} does not have Waybill's tables as this code needs them (${why}): run waybill migrate`);
    case "25006":
      return say("STORE_READ_ONLY", `${place} cannot be written: ${why}; is it a standby?`);
    case "42501":
      return say("STORE_READ_ONLY", `${place}: ${why}; waybill migrate --print shows what each role needs`);
    case "28P01":
    case "28000":
    case "3D000":
      return say("STORE_UNAVAILABLE", `${place} refused the connection: ${why}`);
    case "55P03":
    case "57014":
    case "40001":
    case "40P01":
      return say("STORE_UNAVAILABLE", `${place} gave up a statement: ${why}`);
    default:
      return /^(08|53|57P)/.test(state) ? say("STORE_UNAVAILABLE", `${place} is not available: ${why}`) : toError(error, why);
  }
}

function toError(error: unknown, why: string): Error {
  return error instanceof Error ? error : new Error(why);
}
