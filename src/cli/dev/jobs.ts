import type { ErrorCode } from "../../core/errors.ts";
import type { PathEvent } from "../../core/path-events.ts";
import type { SubscriberName } from "./shop.ts";

/** What one process of the shop is started with. */
export type Job =
  | { readonly role: "orders"; readonly name: "orders"; readonly folder: string; readonly naive: boolean; readonly port: number }
  | { readonly role: "relay"; readonly name: string; readonly folder: string }
  | { readonly role: "subscriber"; readonly name: SubscriberName; readonly folder: string; readonly naive: boolean };

/** From a child to its parent. */
export type Report =
  | { readonly type: "ready"; readonly port: number | null }
  | { readonly type: "failed"; readonly code: ErrorCode | null; readonly message: string }
  /** What it did last, and how many so far. */
  | { readonly type: "did"; readonly what: string; readonly done: number }
  | { readonly type: "path"; readonly event: PathEvent };

/** What a role gives the process it runs in. */
export interface Running {
  readonly port: number | null;
  drain(): Promise<void>;
  /** Rejects when the role has failed and cannot go on. */
  readonly stopped: Promise<void>;
}

/** How a role tells what it does. */
export interface Reporter {
  did(what: string, more: number): void;
  path(event: PathEvent): void;
}
