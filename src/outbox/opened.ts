import type { OpenedStore } from "../contracts/adapter.ts";
import { createOutbox, type Outbox } from "./outbox.ts";

/** The outbox of a store that its adapter opened. Its transactions are the adapter's own, and need no handle to begin on. */
export function outboxOn({ store, transaction }: OpenedStore): Outbox<null, never> {
  const transactor = { transaction: <T>(_: null, work: (tx: never) => T | Promise<T>): Promise<T> => transaction(work) };
  return createOutbox({ store: { writer: store.writer, wake: store.wake, transactor } });
}
