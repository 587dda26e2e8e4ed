import type { Begins, Handle, ProvingWriter, SqlWriter, StayingWriter } from "../../contracts/handle.ts";
import type { OutboxWriter, Transactor } from "../../contracts/outbox-store.ts";
import { committed } from "../../core/commit.ts";
import { unlent } from "../../core/lend.ts";

/** The parts of the store that use a transaction, for the transactions of a library. */
export function throughLibrary<Db, Tx>(
  handle: Handle<Db, Tx, Begins>,
  { append, prove, staying }: Pick<SqlWriter, "append"> & Partial<Pick<ProvingWriter, "prove"> & Pick<StayingWriter, "staying">>,
) {
  const begin = <T>(on: Db, work: (tx: Tx) => T | Promise<T>): Promise<T> => committed((inner) => handle.begin(on, inner), work);
  const transaction = <T>(on: Db, work: (tx: Tx) => T | Promise<T>): Promise<T> =>
    committed(
      (inner) => handle.begin(on, inner),
      (tx: Tx) => (staying === undefined ? work(tx) : staying(handle(unlent(tx)), () => work(tx))),
      prove === undefined ? undefined : (tx) => prove(handle(unlent(tx))),
    );
  return {
    begin,
    transactor: { transaction } satisfies Transactor<Db, Tx>,
    writer: { synchronous: false, append: async (tx, rows) => append(handle(tx), rows) } satisfies OutboxWriter<Tx>,
  };
}
