import type { Examination } from "../contracts/examination.ts";
import type { Sink } from "../contracts/sink.ts";
import type { Store } from "../contracts/store.ts";
import type { Added, Draft } from "../core/event.ts";

/** A store as commands use it; only the adapters know which one it is. */
export interface OpenedStore extends AsyncDisposable {
  readonly store: Pick<Store<never>, "name" | "schema" | "outbox" | "leases" | "operator" | "housekeeping" | "wake" | "examine">;
  /** Why its log cannot be tailed; null where it can. */
  readonly noTail: string | null;
  /** Adds events in a transaction on a connection of its own, as a service would. */
  add(drafts: readonly Draft[]): Promise<readonly Added[]>;
}

export interface OpenedBroker extends AsyncDisposable {
  readonly sink: Sink & Examination;
  /** Creates what is missing of the topics, and of each consumer's place in them. */
  provision(topics: readonly string[], consumers: readonly string[]): Promise<void>;
  /** Deletes what is older, from these topics where the broker must be told them and from all where not; says how many. */
  purge(before: Date, topics: readonly string[]): Promise<number>;
}
