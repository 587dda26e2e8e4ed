import type { Sink } from "../contracts/sink.ts";
import { systemClock } from "../core/clock.ts";
import { never } from "../core/time.ts";
import { createOutbox } from "../outbox/outbox.ts";
import type { SqliteStore } from "../stores/sqlite/index.ts";
import type { Announce, OrderDraft } from "./orders.ts";
import { topic } from "./shop.ts";

/** The event is a row of the same transaction: it is there if and only if the order is. */
export function throughOutbox(store: SqliteStore): Announce {
  const outbox = createOutbox({ store });
  return {
    async inTransaction(tx, draft) {
      await outbox.add(tx, draft);
    },
    afterCommit: () => Promise.resolve(),
  };
}

/**
 * Two writes without a common transaction, in both orders that are met in the wild. A new order is published after its commit, and lost if
 * that fails. A change is published before its commit, and invented if the commit does not come.
 */
export function byDualWrite(sink: Sink, failed: (why: string) => void): Announce {
  const publish = async (draft: OrderDraft): Promise<void> => {
    const envelope = {
      ...{ id: draft.id, seq: 0n, aggregateType: draft.aggregateType, aggregateId: draft.aggregateId, type: draft.type, eventVersion: 1 },
      ...{ contentType: "application/json", headers: draft.headers ?? {}, idempotencyKey: draft.idempotencyKey },
      data: Buffer.from(JSON.stringify(draft.payload)),
      createdAt: new Date(systemClock.now()),
    };
    const [result] = await sink.publish([{ topic, source: "/waybill/dev", envelope }], never);
    if (result?.status !== "stored") failed(`${draft.type} of ${draft.aggregateId} was not published, and nobody will try again`);
  };
  return {
    inTransaction: (_, draft) => (draft.type === "OrderPlaced" ? Promise.resolve() : publish(draft)),
    afterCommit: (draft) => (draft.type === "OrderPlaced" ? publish(draft) : Promise.resolve()),
  };
}
