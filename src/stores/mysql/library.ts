import type { Begins, Handle } from "../../contracts/handle.ts";
import type { OutboxWriter, Transactor } from "../../contracts/outbox-store.ts";
import { committed } from "../../core/commit.ts";
import { askOf } from "./handle.ts";
import type { Applying } from "./inbox.ts";
import type { MysqlWriter } from "./writer.ts";

/** The store's parts that meet a transaction, in those of a library. */
export function throughLibrary<Db, Tx>(handle: Handle<Db, Tx, Begins>, db: Db, writer: MysqlWriter) {
  const transactor: Transactor<Db, Tx> = {
    transaction: (on, work) =>
      committed(
        (inner) => handle.begin(on, inner),
        (tx: Tx) => writer.staying(handle(tx), () => work(tx)),
      ),
  };
  const applying: Applying<Tx> = {
    transaction: (work) =>
      committed(
        (inner) => handle.begin(db, inner),
        (tx: Tx) => work(askOf(handle(tx)), (handler) => handler(tx)),
      ),
  };
  return {
    applying,
    transactor,
    writer: { synchronous: false, append: async (tx, rows) => writer.append(handle(tx), rows) } satisfies OutboxWriter<Tx>,
  };
}
