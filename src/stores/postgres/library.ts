import type { Begins, Handle, SqlWriter } from "../../contracts/handle.ts";
import type { OutboxWriter, Transactor } from "../../contracts/outbox-store.ts";
import { committed } from "../../core/commit.ts";
import type { Applying } from "./inbox.ts";

/** The store's parts that meet a transaction, in those of a library. */
export function throughLibrary<Db, Tx>(handle: Handle<Db, Tx, Begins>, db: Db, writer: SqlWriter) {
  const applying: Applying<Tx> = {
    transaction: (work) => committed((inner) => handle.begin(db, inner), work),
    query: async (tx, sql, values) => (await handle(tx).query(sql, [...values])).rows,
  };
  const transactor: Transactor<Db, Tx> = {
    transaction: (on, work) =>
      committed(
        (inner) => handle.begin(on, inner),
        async (tx: Tx) => {
          const result = await work(tx);
          // A transaction in which a statement failed "commits" nothing, and PostgreSQL says so to those who ask.
          await handle(tx).query("SELECT 1", []);
          return result;
        },
      ),
  };
  return {
    applying,
    transactor,
    writer: { synchronous: false, append: async (tx, rows) => writer.append(handle(tx), rows) } satisfies OutboxWriter<Tx>,
  };
}
