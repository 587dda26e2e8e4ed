import { join } from "node:path";

/** Names and times that every process of the shop shares. */

export const topic = "order.events";

export const subscriberNames = ["inventory", "payment", "notification"] as const;
export type SubscriberName = (typeof subscriberNames)[number];

/** Where each subscriber's effects are: one row for every time an event was applied. */
export const effectTables: Readonly<Record<SubscriberName, string>> = {
  inventory: "movements",
  payment: "charges",
  notification: "mails",
};

export interface ShopFiles extends Readonly<Record<SubscriberName, string>> {
  readonly orders: string;
  readonly broker: string;
  /** While this file is there, the broker is stopped. */
  readonly stopped: string;
}

/** A database of its own for each service, as in a real shop. */
export function shopFiles(folder: string): ShopFiles {
  const file = (name: string): string => join(folder, name);
  return {
    orders: file("orders.db"),
    broker: file("broker.db"),
    stopped: file("broker-stopped"),
    inventory: file("inventory.db"),
    payment: file("payment.db"),
    notification: file("notification.db"),
  };
}

/** Short, so that a viewer sees the shop recover from a fault, and long enough for a slow machine with all processes on it. */
export const leaseMs = 3_000;
export const seatMs = 2_000;
export const retryDelaysMs = [100, 200, 400];
export const probeMs = { first: 250, last: 1_000 };

export const batch = 50;
export const batchesInFlight = 3;

/** The broker refuses an event with this header, every time. */
export const poisonHeader = "shop-poison";

/** An order above this is declined: after its row and its event have been written, so that the transaction rolls back. */
export const creditLimit = 1_000;

export type EventType = "OrderPlaced" | "OrderUpdated" | "OrderCancelled";

export interface OrderItem {
  readonly sku: string;
  readonly quantity: number;
  readonly price: number;
}

/** What an order's events carry. `version` is the order's own count of changes, so that order can be judged. */
export interface OrderPayload {
  readonly order_id: string;
  readonly customer_id: string;
  readonly total: number;
  readonly items: readonly OrderItem[];
  readonly version: number;
}
