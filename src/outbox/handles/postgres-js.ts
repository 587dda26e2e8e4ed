import type { Begins } from "../../contracts/handle.ts";
import { lend, lending } from "../../core/lend.ts";
import type { Method, TakenBy } from "./method.ts";
import { handle, isMethod, noTransaction } from "./handle.ts";
import { rowsOf } from "./result.ts";

/** The `sql` that `sql.begin(…)` gives to its callback. */
export interface PostgresJsTransaction {
  readonly savepoint: Method;
}

export interface PostgresJsDb {
  readonly begin: Method;
}

interface PostgresJsBegins extends Begins {
  readonly tx: this["db"] extends { readonly begin: (options: string, work: infer Work) => unknown } ? TakenBy<Work> : never;
}

interface Inside {
  readonly savepoint?: unknown;
  unsafe(sql: string, values: readonly unknown[]): PromiseLike<unknown>;
  typed(value: unknown, type: number): unknown;
}

interface Begin {
  begin<T>(work: (sql: PostgresJsTransaction) => Promise<T>): Promise<T>;
}

/** PostgreSQL's type number of text. Without it, postgres.js would encode a string for a `json` parameter as a JSON string. */
const text = 25;

/** The transaction that `sql.begin(…)` of postgres.js gives to its callback. */
export const fromPostgresJs = handle<PostgresJsDb, PostgresJsTransaction, PostgresJsBegins>({
  name: "postgres.js",
  owns: ({ unsafe }) => isMethod(unsafe),
  open(given) {
    const sql = given as unknown as Inside;
    if (typeof sql.savepoint !== "function") throw noTransaction("the sql of postgres.js was given in place of the one that begin gives");
    return async (statement, values) => {
      const typed = values.map((value) => (typeof value === "string" ? sql.typed(value, text) : value));
      return { rows: rowsOf(await sql.unsafe(statement, typed)) };
    };
  },
  isInside: (db) => "savepoint" in db,
  lend: (tx) => lend(tx),
  async begin(db, work) {
    const { value } = await (db as Begin).begin(async (sql) => {
      const letGo = keepSession(sql);
      try {
        // Wrapped in an object: postgres.js would look for promises inside an array.
        return await lending(sql, async (tx) => ({ value: await work(tx) }));
      } finally {
        letGo();
      }
    });
    return value;
  },
});

/** Of postgres.js, and not public: what a session does when it is reserved and has answered. */
interface Session {
  readonly reserved?: { release?: boolean } | null;
}

/**
 * After a COMMIT or ROLLBACK of the callback's own, postgres.js gives the session to other callers while the callback goes on: their
 * statements mix, and some are never answered. A session that `reserve()` gave stays with its caller, and so does this one until it is let
 * go. An empty statement, which goes out together with the next one, shows which session it is.
 */
export function keepSession(sql: object): () => void {
  let reserved: { release?: boolean } | null | undefined;
  const onexecute = (session: Session): true => {
    reserved = session.reserved;
    if (reserved) reserved.release = true;
    return true;
  };
  const { unsafe } = sql as { unsafe(text: string, values: readonly [], options: object): PromiseLike<unknown> };
  unsafe("", [], { onexecute }).then(undefined, () => undefined);
  return () => {
    if (reserved) reserved.release = false;
  };
}
