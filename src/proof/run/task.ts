import type { RelayOptions } from "../../relay/create-relay.ts";
import type { Fail } from "../crew/failpoints.ts";

/** Where a run takes place. */
export interface RunPlace {
  /** URLs as the workers reach them, perhaps through a network that can be broken. */
  readonly store: string;
  readonly broker: string;
  /** Names everything of the run's own: tables, files, topics. */
  readonly run: string;
}

interface Common {
  /** This life of the worker; no other has the same. */
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
  /** Of ordinary events: how many bytes of filling. */
  readonly bytes: number;
  /** The share of events that are hard to carry, and of those that are as large as an event may be. */
  readonly hard: number;
  readonly large: number;
}

export interface RelayTask extends Common {
  readonly role: "relay";
  readonly options: RelaySettings;
  /** Aggregates whose events are refused for what they are. */
  readonly poison?: readonly string[];
  /** Everything is published so many times more, and nobody is told. */
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
}

export type Task = WriterTask | RelayTask | SubscriberTask;
