import postgres from "postgres";
import { fromPostgresJs } from "../../../src/outbox/handles/index.ts";
import { adapter } from "../adapter.ts";

export const onPostgresJs = adapter({
  library: "postgres.js",
  database: "PostgreSQL",
  handle: fromPostgresJs,
  refuses: { none: true, ended: false },
  async open(url) {
    const sql = postgres(url, { max: 5, onnotice: () => undefined });
    return {
      db: sql,
      none: { "the sql itself": sql, "a reserved connection": await sql.reserve() },
      transaction: <T>(work: (tx: postgres.TransactionSql) => Promise<T>) => sql.begin(work) as Promise<T>,
      savepoint: async (tx: postgres.TransactionSql, work) => void (await tx.savepoint(work)),
      run: (tx: postgres.TransactionSql, text) => tx.unsafe(text),
      close: () => sql.end({ timeout: 1 }),
    };
  },
});
