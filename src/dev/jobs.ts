import type { SubscriberName } from "./shop.ts";

/** What one process of the shop is started with. */
export type Job =
  | { readonly role: "orders"; readonly name: "orders"; readonly folder: string; readonly naive: boolean; readonly port: number }
  | { readonly role: "relay"; readonly name: string; readonly folder: string }
  | { readonly role: "subscriber"; readonly name: SubscriberName; readonly folder: string; readonly naive: boolean };
