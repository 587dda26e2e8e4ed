export type Database = "PostgreSQL" | "MariaDB" | "MySQL" | "SQLite";

/** One library on one database, as a user would have it. */
export interface Adapter<Tx = unknown> {
  readonly library: string;
  readonly database: Database;
  /** The handle; its types are the business of another test. */
  readonly handle: unknown;
  /** Whether `add` is refused without a transaction, and with one that has ended. */
  readonly refuses: { readonly none: boolean; readonly ended: boolean };
  /** With its URL, or the path of its file. */
  open(place: string): Promise<Opened<Tx>>;
}

export interface Opened<Tx = unknown> {
  /** What the library begins transactions on. */
  readonly db: unknown;
  /** What somebody might take for a transaction, and none of it is. */
  readonly none: Readonly<Record<string, unknown>>;
  /** The library's own transaction. */
  transaction<T>(work: (tx: Tx) => Promise<T>): Promise<T>;
  /** The library's own way to a savepoint: rolled back to when `work` fails, which rejects. */
  savepoint(tx: Tx, work: (inner: Tx) => Promise<void>): Promise<void>;
  /** A statement of the user's, in the transaction. */
  run(tx: Tx, sql: string): PromiseLike<unknown>;
  close(): Promise<unknown>;
}

/** An adapter whose own types were checked, among others with other types. */
export function adapter<Tx>(of: Adapter<Tx>): Adapter {
  return of;
}
