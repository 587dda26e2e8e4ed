import type { Url } from "../core/url.ts";
import type { Examination } from "./examination.ts";
import type { Sink } from "./sink.ts";
import type { Source } from "./source.ts";
import type { Store } from "./store.ts";

/** What the command line knows of an adapter. Everything that names the adapter, or depends on which one it is, is said here. */
export interface Adapter {
  /** As people write it, such as PostgreSQL. */
  readonly name: string;
  /** Of its URLs, in lower case. No other adapter has any of them. */
  readonly schemes: readonly string[];
  readonly example: string;
  /** Null for a file. */
  readonly server: Server | null;
}

/** How a server is reached. */
export interface Server {
  /** The default port; or why no network can be put between the server and its clients. */
  readonly port: number | string;
  /** How to ask for verified encryption, as an advice: "write the URL with kafkas:". */
  readonly remedy: string;
  /** One word before the "@" of a URL is a token, and as secret as a password. */
  readonly token?: true;
  /** What the connection of this URL is protected by. `env`: clients read settings from the environment. */
  guard(url: string, env: Readonly<Record<string, string | undefined>>): Guard;
}

/** Unverified: encrypted, but anybody can answer in the server's place. */
export type Guard = "verified" | "unverified" | "none";

export interface BrokerAdapter extends Adapter {
  /** What --management is, where the broker has an HTTP API of its own; other brokers refuse the flag. */
  readonly management?: string;
  /** For commands. Without `create`, a file must be there; nothing is connected yet. */
  open(url: Url, options: { readonly create: boolean; readonly management?: string }): OpenedBroker;
  /** For a verify run, whose name is `run`. */
  openRun(url: Url, run: string, pace: Pace): RunBroker;
}

/** Disposing the sink ends it. */
export interface OpenedBroker {
  readonly sink: Sink & Examination;
  /** Creates missing topics, and each consumer's place in them. */
  provision(topics: readonly string[], consumers: readonly string[]): Promise<void>;
  /** Deletes older messages: from these topics where the broker must be told them, otherwise from all. Says how many. */
  purge(before: Date, topics: readonly string[]): Promise<number>;
}

/** How long a broker has for an answer, and a member of a consumer group for a sign of life. */
export interface Pace {
  readonly timeoutMs: number;
  readonly sessionMs: number;
}

/** A broker as a verify run uses it: with topics that the run creates and removes. Disposing the broker ends it. */
export interface RunBroker {
  readonly broker: Sink & Source;
  /** A new consumer may wait for long before its first message. */
  readonly slow?: true;
  /** Rejects when something of the user's would take what goes to these topics. Creates nothing. */
  vacant?(topics: readonly string[]): Promise<void>;
  provision(topics: readonly string[], consumers: readonly string[]): Promise<void>;
  /** Removes as much as it can, whatever fails in between; rejects with all that is left. What is not there is no failure. */
  remove(topics: readonly string[], consumers: readonly string[]): Promise<void>;
}

export interface StoreAdapter extends Adapter {
  /** Why its log cannot be tailed; null where it can. */
  readonly noTail: string | null;
  /** It has one writer at a time, and whoever waits longest need not be next. */
  readonly oneWriter?: true;
  /** For commands. Without `create`, a file must be there; nothing is connected yet. */
  open(url: Url, create: boolean, placing: Placing): OpenedStore;
  /** For a verify run: everything in tables of its own, which are named after `run`. */
  openRun(url: Url, run: string): RunStore;
}

/** Where in the database the tables are, and how they keep events. */
export interface Placing {
  readonly schema?: string;
  readonly names?: Readonly<Record<string, string>>;
  readonly partitions?: "day" | "week" | "month";
  readonly onPublish?: "keep" | "delete";
}

/** A store, and a service's connection beside it. `never`: only the adapter knows which transactions it has. */
export interface OpenedStore extends AsyncDisposable {
  readonly store: Store<never, never>;
  /** A service's transaction: it commits when `work` resolves. */
  transaction<T>(work: (tx: never) => T | Promise<T>): Promise<T>;
}

/** Values stand for question marks; rows come by the names of their columns. */
export type Ask = (sql: string, values?: readonly (string | number | null)[]) => Promise<readonly SqlRow[]>;
export type SqlRow = Readonly<Record<string, unknown>>;

export interface RunStore extends OpenedStore {
  /** How the run's tables are written: a column for names, one that numbers rows, and what follows the columns. */
  readonly dialect: { readonly key: string; readonly position: string; readonly table?: string };
  /** Outside of any transaction. */
  readonly ask: Ask;
  /** Inside a transaction of a service or of a handler. */
  within(tx: unknown): Ask;
  /** A table of the run's own as SQL writes it; "outbox" is the store's. */
  table(name: string): string;
  /** Removes everything of the run. */
  remove(): Promise<void>;
}
