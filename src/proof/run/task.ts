import type { RunPlacing } from "../../contracts/adapter.ts";
import type { RelayOptions } from "../../relay/create-relay.ts";
import type { SubscriberOptions } from "../../subscriber/subscriber.ts";
import type { Fail } from "../crew/failpoints.ts";

/** Where a run takes place. */
export interface RunPlace {
  /** URLs as the workers reach them, perhaps through a network that can be broken. */
  readonly store: string;
  readonly broker: string;
  /** Names everything of the run's own: tables, files, topics. */
  readonly run: string;
  /** How the store keeps events, where it is not as usual. */
  readonly placing?: RunPlacing;
}

interface Common {
  /** The name of this life of the worker. No other life has it. */
  readonly name: string;
  readonly place: RunPlace;
  readonly history: string;
  readonly log: string;
  readonly failpoints?: readonly Fail[];
  /** How far its wall clock is off. */
  readonly skewMs?: number;
}

export interface WriterTask extends Common {
  readonly role: "writer";
  readonly seed: number;
  readonly load: Load;
  /** A text that is in every event, and must never be in an output. */
  readonly canary: string;
}

export interface Load {
  /** How many aggregates each type has. */
  readonly aggregates: number;
  /** The share of transactions that goes to the first aggregate of all. */
  readonly hot: number;
  /** Between two transactions, on average. */
  readonly pauseMs: number;
  /** The longest that one transaction stays open on purpose. */
  readonly sleepMs: number;
  /** Filler bytes of an ordinary event. */
  readonly bytes: number;
  /** The share of events that are difficult to carry, and the share of events that are as large as an event may be. */
  readonly hard: number;
  readonly large: number;
  /** The share of events with an idempotency key. Each is added twice, under two ids, of which the second must never be seen. */
  readonly keyed?: number;
}

export interface RelayTask extends Common {
  readonly role: "relay";
  readonly options: RelaySettings;
  /** Aggregates whose events the broker refuses, and blames. */
  readonly poison?: readonly string[];
  /** Everything is published this many times more, without the relay's knowledge. */
  readonly again?: number;
}

export type RelaySettings = Pick<
  RelayOptions,
  "batch" | "batchesInFlight" | "pollIntervalMs" | "leaseMs" | "publishTimeoutMs" | "probeMs" | "retry" | "coordination" | "housekeeping"
>;

export interface SubscriberTask extends Common {
  readonly role: "subscriber";
  readonly consumer: string;
  readonly seatMs: number;
  readonly options?: SubscriberSettings;
  /** The share of events whose handler adds an event of its own, in its transaction. */
  readonly echoes?: number;
}

export type SubscriberSettings = Pick<SubscriberOptions<never>, "batch" | "concurrency">;

export type Task = WriterTask | RelayTask | SubscriberTask;
