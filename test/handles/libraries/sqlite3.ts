import Database from "libsql";

type Callback = (this: object, error: Error | null, rows?: unknown) => void;

/**
 * As much of the `sqlite3` package as Sequelize asks for, over libsql: the package itself is compiled when it is
 * installed, or downloaded from elsewhere than the registry.
 */
class Handle {
  readonly #db: Database.Database;
  readonly uuid?: string;

  constructor(path: string, _mode: number, opened: (error: Error | null) => void) {
    this.#db = new Database(path);
    queueMicrotask(() => opened(null));
  }
  #answer(sql: string, values: unknown, done: Callback | undefined, read: boolean): this {
    let error: Error | null = null;
    let rows: unknown = [];
    let changes = {};
    try {
      const bound = named(values);
      const statement = this.#db.prepare(sql);
      if (read) rows = statement.all(...bound);
      else changes = statement.run(...bound);
    } catch (caught) {
      error = caught as Error;
    }
    queueMicrotask(() => done?.call({ sql, ...changes }, error, rows));
    return this;
  }
  run(sql: string, values?: unknown, done?: Callback): this {
    if (typeof values === "function") return this.#answer(sql, [], values as Callback, false);
    return this.#answer(sql, values, done, false);
  }
  all(sql: string, values?: unknown, done?: Callback): this {
    return this.#answer(sql, values, done, /^\s*(select|with|pragma)|\breturning\b/i.test(sql));
  }
  serialize(work: () => void): void {
    work();
  }
  close(done?: (error: Error | null) => void): void {
    this.#db.close();
    queueMicrotask(() => done?.(null));
  }
}

/** Sequelize gives values by the names of their placeholders, $1 and so on; libsql takes names without the sign. */
function named(values: unknown): unknown[] {
  if (typeof values !== "object" || values === null) return [];
  if (Array.isArray(values)) return values as unknown[];
  const entries = Object.entries(values as Record<string, unknown>);
  return entries.length === 0 ? [] : [Object.fromEntries(entries.map(([name, value]) => [name.replace(/^\$/, ""), value]))];
}

export const sqlite3 = { Database: Handle, OPEN_READONLY: 1, OPEN_READWRITE: 2, OPEN_CREATE: 4 };
