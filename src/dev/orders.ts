import type { Draft } from "../core/event.ts";
import type { NewId } from "../core/ids.ts";
import type { SqliteDatabase } from "../drivers/sqlite/driver.ts";
import type { SqliteStore } from "../stores/sqlite/index.ts";
import { creditLimit, poisonHeader, type EventType, type OrderItem, type OrderPayload } from "./shop.ts";

/** An order's event, before it is published. */
export type OrderDraft = Draft<EventType, OrderPayload> & { readonly id: string; readonly idempotencyKey: string };

/** How a change is announced: through the outbox, or, in the naive shop, by a second write. */
export interface Announce {
  inTransaction(tx: SqliteDatabase, draft: OrderDraft): Promise<void>;
  afterCommit(draft: OrderDraft): Promise<void>;
}

export interface Change {
  readonly orderId: string;
  /** The version that the client has seen; 0 for an order that is to be placed. */
  readonly seen: number;
  readonly type: EventType;
  readonly customerId: string | null;
  readonly items: readonly OrderItem[] | null;
  readonly poison: boolean;
}

export type OrderOutcome =
  { readonly status: "done" | "known"; readonly version: number } | { readonly status: "declined" | "conflict" | "unknown" };

export interface Orders {
  change(change: Change): Promise<OrderOutcome>;
}

interface Order {
  readonly customer_id: string;
  readonly items: string;
  readonly version: number;
}

class Declined extends Error {}

/** Each change is one transaction: the order, its history, and whatever `announce` does within it. */
export function createOrders({
  db,
  store,
  announce,
  newId,
}: {
  readonly db: SqliteDatabase;
  readonly store: Pick<SqliteStore, "transactor">;
  readonly announce: Announce;
  readonly newId: NewId;
}): Orders {
  const within = async (change: Change, id: string): Promise<OrderDraft | OrderOutcome> =>
    store.transactor.transaction(db, async (tx): Promise<OrderDraft | OrderOutcome> => {
      const before = read(tx, change.orderId);
      if (before === null && change.seen > 0) return { status: "unknown" };
      const version = before?.version ?? 0;
      // A client that did not get the answer asks again.
      if (version === change.seen + 1) return { status: "known", version };
      if (version !== change.seen) return { status: "conflict" };
      const draft = draftOf(change, before, id);
      write(tx, draft);
      await announce.inTransaction(tx, draft);
      if (draft.payload.total > creditLimit) throw new Declined();
      return draft;
    });

  return {
    async change(change) {
      const id = newId();
      try {
        const result = await within(change, id);
        if ("status" in result) return result;
        await announce.afterCommit(result);
        return { status: "done", version: result.payload.version };
      } catch (error) {
        if (!(error instanceof Declined)) throw error;
      }
      await store.transactor.transaction(db, (tx) => {
        tx.prepare("INSERT INTO rollbacks (event_id, order_id) VALUES (?, ?)").run(id, change.orderId);
      });
      return { status: "declined" };
    },
  };
}

function read(db: SqliteDatabase, orderId: string): Order | null {
  const [row] = db.prepare("SELECT customer_id, items, version FROM orders WHERE id = ?").all(orderId);
  return (row as Order | undefined) ?? null;
}

const verbs: Readonly<Record<EventType, string>> = { OrderPlaced: "placed", OrderUpdated: "updated", OrderCancelled: "cancelled" };

function draftOf(change: Change, before: Order | null, id: string): OrderDraft {
  const { orderId, type } = change;
  const version = change.seen + 1;
  const items = change.items ?? (JSON.parse(before?.items ?? "[]") as OrderItem[]);
  const total = items.reduce((sum, { quantity, price }) => sum + quantity * price, 0);
  return {
    id,
    aggregateType: "Order",
    aggregateId: orderId,
    type,
    payload: { order_id: orderId, customer_id: before?.customer_id ?? change.customerId ?? "nobody", total, items, version },
    idempotencyKey: `order-${verbs[type]}-${orderId}${type === "OrderUpdated" ? `-${version}` : ""}`,
    ...(change.poison ? { headers: { [poisonHeader]: "yes" } } : {}),
  };
}

function write(tx: SqliteDatabase, { id, type, payload }: OrderDraft): void {
  const { order_id, customer_id, total, items, version } = payload;
  const status = type === "OrderCancelled" ? "cancelled" : "open";
  tx.prepare(
    `INSERT INTO orders (id, customer_id, total, items, status, version) VALUES (?, ?, ?, ?, ?, ?)
     ON CONFLICT DO UPDATE SET total = excluded.total, items = excluded.items, status = excluded.status, version = excluded.version`,
  ).run(order_id, customer_id, total, JSON.stringify(items), status, version);
  tx.prepare("INSERT INTO history (event_id, order_id, version, event_type) VALUES (?, ?, ?, ?)").run(id, order_id, version, type);
}
