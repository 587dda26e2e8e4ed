import type { Envelope } from "../core/event.ts";
import type { Observe } from "../core/path-events.ts";
import type { RetryOptions } from "../core/retry.ts";
import type { Examination } from "./doctor.ts";
import type { Archive } from "./operator.ts";
import type { Sink } from "./sink.ts";
import type { Store } from "./store.ts";

/**
 * What `waybill.config.mjs` or `waybill.config.ts` exports by default. A flag wins over a key. Times are texts with a unit: "100ms", "10s",
 * "7d".
 */
export interface ConfigFile {
  /** The outbox: a URL, a store, or a function that makes one. The command that uses it closes it. */
  readonly store?: string | ConfiguredStore | (() => ConfiguredStore | Promise<ConfiguredStore>);
  /** What `outbox.transaction` begins transactions on, such as a pool. `waybill events add` needs it when `store` is not a URL. */
  readonly db?: unknown;
  /** The broker: a URL, a sink, or a function that makes one. The command that uses it closes it. */
  readonly broker?: string | ConfiguredBroker | (() => ConfiguredBroker | Promise<ConfiguredBroker>);
  /** Topics that `migrate` creates, and that `doctor` looks at. */
  readonly topics?: string | readonly string[];

  /** These four, and `listen`, are options of a store that is given by its URL. Pass them to your own store yourself. */
  readonly schema?: string;
  readonly names?: Readonly<Record<string, string>>;
  readonly partitions?: "day" | "week" | "month";
  readonly onPublish?: "keep" | "delete";
  /** Wakes relays of other processes with LISTEN and NOTIFY, on PostgreSQL. @default false */
  readonly listen?: boolean;

  /** @default "poll" */
  readonly mode?: "poll" | "tail";
  /** @default "partitioned" */
  readonly coordination?: "partitioned" | "leader" | "static" | "competing";
  /** The lanes of coordination "static", such as "0-21". */
  readonly own?: string | readonly number[];
  /**
   * Consumers whose inboxes are in other databases, with their topics: `status` and a relay's `/metrics` report how far they are behind.
   * Those that have their inbox beside the outbox are known without this.
   */
  readonly consumers?: Readonly<Record<string, readonly string[]>>;
  /** Names the relay in `status`. */
  readonly relayId?: string;
  /** The most events per window. Windows widen while there is a backlog. @default 1000 */
  readonly batch?: number;
  /** How many windows may be claimed and not settled at once. @default 3 */
  readonly batchesInFlight?: number;
  /** Payload bytes per window. @default 8388608 */
  readonly windowBytes?: number;
  /** @default "100ms" */
  readonly pollInterval?: string;
  /** @default "10s" */
  readonly lease?: string;
  /** @default half of the lease */
  readonly publishTimeout?: string;
  /** @default "{aggregate_type|lower}.events" */
  readonly route?: string | ((event: Envelope) => string);
  /** The only topics that the relay publishes to; `topics` does not limit it. @default any topic */
  readonly onlyTopics?: string | readonly string[];
  /** CloudEvents `source` of every message. @default "/waybill" */
  readonly source?: string;
  readonly retry?: RetryOptions;
  /** Waits between probes of a broken topic. @default 1000 and 30000 */
  readonly probeMs?: { readonly first: number; readonly last: number };
  /** How many topics in trouble have a record of their own. @default 32 */
  readonly topicRecords?: number;
  /** Aggregate types whose followers go on when an event dies. */
  readonly skip?: string | readonly string[];
  /** Receives path events, in addition to the command's own log and metrics. */
  readonly observe?: Observe;
  /** Where a relay serves its HTTP pages, such as "127.0.0.1:9464". */
  readonly http?: string;

  /** False leaves purging and watching the tables to other relays, or to `waybill purge`. @default true */
  readonly housekeeping?: boolean | { readonly everyMs?: number; readonly warn?: Readonly<Record<string, number>> };
  /** How long published and discarded events stay. @default "7d" */
  readonly retention?: string;
  /** How long idempotency keys are kept. @default "7d" */
  readonly keyRetention?: string;
  /** Receives events before the purge deletes them. */
  readonly archive?: Archive;
}

/** Any `Store`, whatever its transactions are. */
export interface ConfiguredStore extends Omit<Store<never, never>, "writer" | "transactor" | "inbox"> {
  readonly writer: object;
  readonly transactor: object;
  readonly inbox: object;
}

/** A broker as commands use it. A sink is enough for a relay. */
export interface ConfiguredBroker extends Sink, Partial<Examination> {
  /** Creates missing topics, and each consumer's place in them: for `waybill migrate`. */
  provision?(topics: readonly string[], consumers: readonly string[]): Promise<void>;
}
