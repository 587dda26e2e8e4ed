import type { ConfiguredBroker, ConfiguredStore } from "./contracts/config.ts";
import type { Archive } from "./contracts/operator.ts";
import type { Observe } from "./core/path-events.ts";
import type { Setting, SettingTable, ValueOf } from "./core/settings.ts";
import type { housekeepingSettings, relaySettings } from "./relay/settings.ts";

/** How a setting is written in the file: a time as text, and a list also as one text. */
type Written<S extends Setting> = S["kind"] extends "time"
  ? string
  : S["kind"] extends "names" | "lanes"
    ? string | ValueOf<S>
    : ValueOf<S>;

/** The keys of settings: those with the setting's own name show its comment in an editor, and the others do not. */
type KeysOf<T extends SettingTable> = { readonly [K in keyof T as T[K] extends { readonly key: unknown } ? never : K]?: Written<T[K]> } & {
  readonly [K in keyof T as T[K] extends { readonly key: infer Key extends string } ? Key : never]?: Written<T[K]>;
};

/**
 * What `waybill.config.mjs` or `waybill.config.ts` exports by default. A flag wins over a key. Times are texts with a unit: "100ms", "10s",
 * "7d". Every setting of a relay has a key.
 */
export interface ConfigFile extends KeysOf<typeof relaySettings>, KeysOf<typeof housekeepingSettings> {
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

  /** The server whose log a relay reads, for a PostgreSQL store whose URL leads to a pooler. @default the store's URL */
  readonly logUrl?: string;

  /** @default "poll" */
  readonly mode?: "poll" | "tail" | "auto";
  /** Wait after a poll that found nothing. @default "100ms" */
  readonly pollInterval?: string;
  /** How long other relays wait before they take a dead relay's lanes. @default "10s" */
  readonly lease?: string;
  /** A publish without an answer by then is unknown; must be shorter than the lease. @default half of the lease */
  readonly publishTimeout?: string;
  /** The only topics that the relay publishes to; `topics` does not limit it. @default any topic */
  readonly onlyTopics?: string | readonly string[];
  /** How long published and discarded events stay. @default "7d" */
  readonly retention?: string;
  /** How long idempotency keys are known. @default "7d" */
  readonly keyRetention?: string;
  /**
   * Consumers whose inboxes are in other databases, with their topics: `status` and a relay's `/metrics` report how far they are behind.
   * Those that have their inbox beside the outbox are known without this.
   */
  readonly consumers?: Readonly<Record<string, readonly string[]>>;
  /** Receives path events, in addition to the command's own log and metrics. */
  readonly observe?: Observe;
  /** Where a relay serves its HTTP pages, such as "127.0.0.1:9464". */
  readonly http?: string;
  /** False leaves purging and watching the tables to other relays, or to `waybill purge`. @default true */
  readonly housekeeping?: boolean | { readonly everyMs?: number; readonly warn?: Readonly<Record<string, number>> };
  /** Receives events before the purge deletes them. */
  readonly archive?: Archive;
}
