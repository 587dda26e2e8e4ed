import type { Url } from "../core/url.ts";
import type { Examination, Rule } from "./doctor.ts";
import type { Sink } from "./sink.ts";
import type { Source } from "./source.ts";
import type { BrokerStarter, StoreStarter } from "./starter.ts";
import type { Store } from "./store.ts";

/** What the command line knows about an adapter. No other file names the adapter, or depends on which one it is. */
export interface Adapter {
  /** The name as people write it, such as PostgreSQL. */
  readonly name: string;
  /** The schemes of its URLs, in lower case. No two adapters share one. */
  readonly schemes: readonly string[];
  readonly example: string;
  /** Null for a file. */
  readonly server: Server | null;
  /** The doctor's rules, in the order of docs/doctor.md. */
  readonly rules: readonly Rule<never>[];
}

/** A URL with the adapter that answers to it. */
export type Named<A extends Adapter> = Url & { readonly adapter: A };

/** How a server is reached. */
export interface Server {
  /** The default port, or the reason why verify cannot put a network between the server and its clients. */
  readonly port: number | string;
  /** How to get verified encryption, as advice: "write the URL with kafkas:". */
  readonly remedy: string;
  /** True when a single word before the "@" of a URL is a token, which is as secret as a password. */
  readonly token?: true;
  /** How this URL's connection is protected. `env` is the environment, where some clients read settings. */
  guard(url: string, env: Readonly<Record<string, string | undefined>>): Guard;
}

/** An unverified connection is encrypted, but another host could answer in the server's place. */
type Guard = "verified" | "unverified" | "none";

export interface BrokerAdapter extends Adapter {
  /** Absent where `waybill init` does not offer it. */
  readonly starter?: BrokerStarter;
  /** What --management means, where the broker has an HTTP API. Other brokers refuse the flag. */
  readonly management?: string;
  /** For commands. Without `create`, a file must be there; nothing is connected yet. */
  open(url: Url, options: { readonly create: boolean; readonly management?: string }): OpenedBroker;
  /** For a verify run with the name `run`. */
  openRun(url: Url, run: string, pace: Pace): RunBroker;
}

/** Disposing the sink closes the broker. */
export interface OpenedBroker {
  /** A sink that the user wrote need not report its settings. */
  readonly sink: Sink & Partial<Examination> & Pick<Source, "lag">;
  /** Creates missing topics, and each consumer's place in them where the broker needs one: one command provisions every broker. */
  provision(topics: readonly string[], consumers: readonly string[]): Promise<void>;
  /** Deletes older messages from all topics, or from these topics where the broker cannot list its own. Answers how many. */
  purge(before: Date, topics: readonly string[]): Promise<number>;
}

/** How long to wait for a broker's answer, and for a heartbeat of a member of a consumer group. */
export interface Pace {
  readonly timeoutMs: number;
  readonly sessionMs: number;
}

/** A broker as a verify run uses it, with topics that the run creates and removes. Disposing `broker` closes it. */
export interface RunBroker {
  readonly broker: Sink & Source;
  /** A new consumer may wait long for its first message. */
  readonly slow?: true;
  /** Rejects when something that the user set up would receive messages of these topics. Creates nothing. */
  vacant?(topics: readonly string[]): Promise<void>;
  provision(topics: readonly string[], consumers: readonly string[]): Promise<void>;
  /** Removes as much as it can, whatever fails in between, and rejects with all that is left. A missing topic is not a failure. */
  remove(topics: readonly string[], consumers: readonly string[]): Promise<void>;
}

export interface StoreAdapter extends Adapter {
  /** Absent where `waybill init` does not offer it. */
  readonly starter?: StoreStarter;
  /** Why a relay cannot read its log. Absent where one can. */
  readonly noTail?: string;
  /** What --log-url means, where a relay can read the log. Other stores refuse the flag. */
  readonly logUrl?: string;
  /** The database has one writer at a time, and does not serve waiting writers in order. */
  readonly oneWriter?: true;
  /** For commands. Without `create`, a file must be there; nothing is connected yet. */
  open(url: Url, create: boolean, placing: Placing): OpenedStore;
  /** For a verify run: everything is in tables of its own, which are named after `run`. A file knows nothing of `placing`. */
  openRun(url: Url, run: string, placing?: RunPlacing): RunStore;
}

/** Where in the database the tables are, and how they keep events. */
export interface Placing {
  readonly schema?: string;
  readonly names?: Readonly<Record<string, string>>;
  readonly partitions?: "day" | "week" | "month";
  readonly onPublish?: "keep" | "delete";
  readonly listen?: true;
  /** The server whose log is read. */
  readonly logUrl?: Url;
}

/** How the tables of a run keep events. Where they are, its name says. */
export type RunPlacing = Pick<Placing, "partitions" | "onPublish" | "listen">;

/** A store, and a service's connection beside it. The types are `never` because only the adapter knows its transactions. */
export interface OpenedStore extends AsyncDisposable {
  readonly store: Store<never, never>;
  /** A service's transaction: it commits when `work` resolves. */
  transaction<T>(work: (tx: never) => T | Promise<T>): Promise<T>;
}

/** The values replace question marks. Rows are keyed by column names. */
export type Ask = (sql: string, values?: readonly (string | number | null)[]) => Promise<readonly SqlRow[]>;
export type SqlRow = Readonly<Record<string, unknown>>;

export interface RunStore extends OpenedStore {
  /** SQL for the run's tables: the type of a column for names, the column that numbers rows, and the text after the list of columns. */
  readonly dialect: { readonly key: string; readonly position: string; readonly table?: string };
  /** Runs outside any transaction. */
  readonly ask: Ask;
  /** Runs inside a transaction of a service or of a handler. */
  within(tx: unknown): Ask;
  /** The SQL name of one of the run's own tables. "outbox" is the store's. */
  table(name: string): string;
  /** Removes everything of the run. */
  remove(): Promise<void>;
}
