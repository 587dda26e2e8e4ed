import { existsSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { systemClock as clock, type Clock } from "../../core/clock.ts";
import { asError, WaybillError } from "../../core/errors.ts";
import { createMutex } from "../../core/queue.ts";
import { systemRandom } from "../../core/random.ts";
import { persist } from "../../core/time.ts";
import { enter } from "./clients.ts";
import {
  defaultDriver,
  explain,
  inTransaction,
  isBusy,
  resultCode,
  type OpenSqlite,
  type SqliteDatabase,
  type SqliteStatement,
  type SqliteValue,
} from "./driver.ts";
import { createTurns } from "./turns.ts";

export type SqliteRow = Readonly<Record<string, string | number | bigint | null | Uint8Array>>;

/** The statements of one open transaction, or of a read. Prepared once per text. */
export interface Statements {
  run(sql: string, values?: readonly SqliteValue[]): number;
  all(sql: string, values?: readonly SqliteValue[]): readonly SqliteRow[];
  get(sql: string, values?: readonly SqliteValue[]): SqliteRow | undefined;
  exec(sql: string): void;
}

/**
 * Waybill's own connection to a file, never the user's: a statement of ours inside the user's open transaction would see events that may
 * still roll back. Work runs one piece after the other.
 */
export interface Connection {
  /**
   * Inside BEGIN IMMEDIATE … COMMIT; durable when it resolves. `work` may be asynchronous. Urgent work goes before all that waits:
   * a subscriber's seat must not expire behind its own handlers.
   */
  write<T>(work: (statements: Statements, db: SqliteDatabase) => T | Promise<T>, urgent?: "urgent"): Promise<T>;
  /** A read without a transaction; `work` must be synchronous. */
  read<T>(work: (statements: Statements) => T): Promise<T>;
  close(): Promise<void>;
}

export interface ConnectionOptions {
  readonly path: string;
  readonly open?: OpenSqlite | undefined;
  /** How long to wait for other processes' locks. */
  readonly lockTimeoutMs: number;
  /** Decides when the event loop gets a turn between two pieces of work. With an injected clock, no real time passes there. */
  readonly clock?: Clock;
}

/** Opens on first use. If that fails, the next use tries again. Waits for locks in real time, whatever clock rows are judged by. */
export function createConnection(options: ConnectionOptions): Connection {
  const { path } = options;
  if (path === "" || path === ":memory:" || path.startsWith("file:")) {
    throw new WaybillError(
      "INVALID_OPTION",
      `a SQLite path must name a file, not ${JSON.stringify(path)}: an in-memory database cannot be shared; use memory() instead`,
    );
  }
  const mutex = createMutex();
  const breathe = createTurns(options.clock ?? clock);
  let opened: Promise<Opened> | null = null;
  let closed = false;

  const connect = (): NonNullable<typeof opened> => {
    if (closed) throw new WaybillError("STOPPED", `the connection to ${path} has been closed`);
    opened ??= openFile(options).catch((error: unknown) => {
      opened = null;
      throw explain(error, path);
    });
    return opened;
  };

  const patiently = <T>(step: () => T): Promise<T> => waiting(options.lockTimeoutMs, step);

  return {
    write: (work, urgent) =>
      mutex.run(async () => {
        await breathe();
        const { db, statements, wal, finish } = await connect();
        try {
          await patiently(() => {
            finish();
            db.exec("BEGIN IMMEDIATE");
          });
          try {
            if (!wal) refuseWal(statements, path);
            const result = await work(statements, db);
            // Some failures (disk full, I/O) make SQLite roll back by itself, and a statement after that would
            // be a transaction of its own.
            if (!inTransaction(db)) throw new WaybillError("TRANSACTION_LOST", `the transaction on ${path} ended before its work was done`);
            await patiently(() => db.exec("COMMIT"));
            return result;
          } catch (error) {
            if (inTransaction(db)) db.exec("ROLLBACK");
            throw error;
          }
        } catch (error) {
          throw explain(error, path);
        }
      }, urgent),
    read: (work) =>
      mutex.run(async () => {
        await breathe();
        const { statements, finish } = await connect();
        try {
          return await patiently(() => {
            finish();
            return work(statements);
          });
        } catch (error) {
          throw explain(error, path);
        }
      }),
    close: () =>
      mutex.run(async () => {
        closed = true;
        if (opened === null) return;
        const { db, leave } = await opened;
        db.close();
        leave();
        opened = null;
      }),
  };
}

/** Waits for locks here and not in SQLite, whose own wait would block the whole process. */
function waiting<T>(lockTimeoutMs: number, step: () => T): Promise<T> {
  const until = clock.monotonic() + lockTimeoutMs;
  const waitMs = (tried: number): number => Math.min(2 ** (tried - 1), 20) * (0.5 + systemRandom.next());
  return persist(step, (error, tried) => (isBusy(error) && clock.monotonic() < until ? clock.sleep(waitMs(tried)) : null));
}

interface Opened {
  readonly db: SqliteDatabase;
  readonly statements: Statements;
  /** Runs a read to its end that was given up before: see `prepared`. */
  readonly finish: () => void;
  readonly leave: () => void;
  /** Whether this library may use a file in WAL mode. */
  readonly wal: boolean;
}

async function openFile({ path, open, lockTimeoutMs }: ConnectionOptions): Promise<Opened> {
  if (!existsSync(dirname(resolve(path)))) {
    throw new WaybillError("STORE_UNAVAILABLE", `the folder of ${path} does not exist: create it first`, { retryable: false });
  }
  const db = opening(open ?? (await defaultDriver()), path);
  const leave = enter(path, db);
  try {
    const { statements, finish } = prepared(db);
    db.exec("PRAGMA busy_timeout = 0"); // `waiting` waits for locks instead
    // Even these statements read the file, and another process may be closing or recovering it.
    const version = await waiting(lockTimeoutMs, () => statements.get("SELECT sqlite_version() AS version")?.["version"]);
    await journal(statements, String(version));
    await waiting(lockTimeoutMs, () => db.exec("PRAGMA synchronous = FULL"));
    return { db, statements, finish, leave, wal: walIsSafe(String(version)) };
  } catch (error) {
    db.close();
    leave();
    throw error;
  }
}

/** libsql's errors about opening carry no code. */
function opening(open: OpenSqlite, path: string): SqliteDatabase {
  try {
    return open(path);
  } catch (cause) {
    if (resultCode(cause) !== 0) throw cause;
    throw new WaybillError("STORE_UNAVAILABLE", `${path} cannot be opened: ${asError(cause).message}`, { cause });
  }
}

/**
 * Uses WAL only where its reset bug (several processes, 3.7.0 to 3.51.2) is fixed, and a rollback journal otherwise.
 * The mode belongs to the file: with an unfixed library, a file that is in WAL mode is taken out of it, or refused.
 */
async function journal(statements: Statements, version: string): Promise<void> {
  const wanted = walIsSafe(version) ? "wal" : "delete";
  for (let tries = 0; ; tries++) {
    let mode = "";
    try {
      mode = String(statements.get("PRAGMA journal_mode")?.["journal_mode"]);
      if (mode === wanted) return;
      // A file that has tables may be open elsewhere, in a library that must not use WAL: it stays as it is.
      if (wanted === "wal" && statements.get("SELECT 1 AS found FROM sqlite_master LIMIT 1") !== undefined) return;
      mode = String(statements.get(`PRAGMA journal_mode = ${wanted}`)?.["journal_mode"]);
      if (mode === wanted) return;
    } catch (error) {
      if (!isBusy(error) || (tries === 100 && mode === "")) throw error;
    }
    // Other programs may have the file open in its present mode. A rollback journal is safe with every version; WAL is not.
    if (mode === "delete" && wanted === "wal") return;
    if (tries === 100) {
      throw new WaybillError(
        "DRIVER_UNFIT",
        `SQLite ${version} must not share a file in WAL mode (fixed in 3.51.3, 3.50.7 and 3.44.6), and other programs keep this one in it: stop them, or use a newer client`,
      );
    }
    await clock.sleep(20);
  }
}

/** Another program may have switched the file since it was opened. */
function refuseWal(statements: Statements, path: string): void {
  if (statements.get("PRAGMA journal_mode")?.["journal_mode"] !== "wal") return;
  throw new WaybillError(
    "DRIVER_UNFIT",
    `${path} was switched to WAL mode by another program, which this SQLite must not share: switch it back, or use a newer client`,
  );
}

export function walIsSafe(version: string): boolean {
  const [major = 0, minor = 0, patch = 0] = version.split(".").map(Number);
  if (major !== 3) return major > 3;
  if (minor === 44) return patch >= 6;
  if (minor === 50) return patch >= 7;
  return minor > 51 || (minor === 51 && patch >= 3);
}

/**
 * libsql leaves a read that met a lock half begun. Whatever the connection does after that, it keeps its shared lock on the file, and no
 * other connection's transaction can end until the same statement has run to its end.
 */
function prepared(db: SqliteDatabase): { readonly statements: Statements; readonly finish: () => void } {
  const cache = new Map<string, { readonly statement: SqliteStatement; readonly places: readonly number[] | null }>();
  const prepare = (sql: string, values: readonly SqliteValue[]): { statement: SqliteStatement; bound: readonly SqliteValue[] } => {
    let known = cache.get(sql);
    if (known === undefined) {
      const { plain, places } = unnumbered(sql);
      cache.set(sql, (known = { statement: db.prepare(plain), places }));
    }
    return { statement: known.statement, bound: known.places?.map((place) => values[place]!) ?? values };
  };
  let begun: (() => unknown[]) | null = null;
  const finish = (): void => {
    begun?.();
    begun = null;
  };
  const all: Statements["all"] = (sql, values = []) => {
    const { statement, bound } = prepare(sql, values);
    const read = (): unknown[] => statement.all(...bound);
    try {
      return read() as SqliteRow[];
    } catch (error) {
      if (isBusy(error)) begun = read;
      throw error;
    }
  };
  return {
    finish,
    statements: {
      run(sql, values = []) {
        const { statement, bound } = prepare(sql, values);
        return Number(statement.run(...bound).changes);
      },
      all,
      get: (sql, values) => all(sql, values)[0],
      exec: (sql) => void db.exec(sql),
    },
  };
}

/** Binds values by position only: better-sqlite3, and node:sqlite before Node 24.7, treat `?1` as a name. */
function unnumbered(sql: string): { readonly plain: string; readonly places: readonly number[] | null } {
  if (!/\?\d/.test(sql)) return { plain: sql, places: null };
  const places: number[] = [];
  const plain = sql.replaceAll(/\?(\d*)/g, (_, number: string) => {
    places.push(number === "" ? Math.max(-1, ...places) + 1 : Number(number) - 1);
    return "?";
  });
  return { plain, places };
}

/** Blobs come as Buffer, Uint8Array or ArrayBuffer, depending on the client library. */
export function bytesOf(value: unknown): Uint8Array {
  if (value instanceof Uint8Array) return value;
  if (value instanceof ArrayBuffer) return new Uint8Array(value);
  throw new TypeError(`not a blob: ${typeof value}`);
}
