import type { Begins, Handle, SqlWriter } from "../../contracts/handle.ts";
import type { OutboxWriter, Transactor } from "../../contracts/outbox-store.ts";
import { committed } from "../../core/commit.ts";

/** Checks that the work stayed inside its transaction. */
type Staying<Tx> = <T>(tx: Tx, work: () => T | Promise<T>) => Promise<T>;

/** The parts of the store that use a transaction, for the transactions of a library. */
export function throughLibrary<Db, Tx>(handle: Handle<Db, Tx, Begins>, { append }: Pick<SqlWriter, "append">, staying: Staying<Tx>) {
  const begin = <T>(on: Db, work: (tx: Tx) => T | Promise<T>): Promise<T> => committed((inner) => handle.begin(on, inner), work);
  return {
    begin,
    transactor: { transaction: (on, work) => begin(on, (tx) => staying(tx, () => work(tx))) } satisfies Transactor<Db, Tx>,
    writer: { synchronous: false, append: async (tx, rows) => append(handle(tx), rows) } satisfies OutboxWriter<Tx>,
  };
}
