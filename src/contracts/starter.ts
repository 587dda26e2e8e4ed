/** What `waybill init` writes for a store or a broker. */
export interface Starter {
  /** The word after --store or --broker. It is also the adapter's subpath and factory: `import { nats } from "waybill/nats"`. */
  readonly word: string;
  /** The npm packages that the adapter needs. */
  readonly packages: readonly string[];
  /** Where the compose file has the server, or the file's path. */
  readonly url: string;
  /** The lines of its service in the compose file, and the folder of its data; null for a file. */
  readonly service: { readonly lines: readonly string[]; readonly data: string } | null;
}

export interface BrokerStarter extends Starter {
  /** The options of its factory, in terms of `config.broker`. */
  readonly options: string;
  /** False where `migrate` has nothing to do for a consumer, and refuses --consumers. */
  readonly consumers: boolean;
}

export interface StoreStarter extends Starter {
  /** The first is the store's own client. */
  readonly libraries: readonly StarterLibrary[];
}

/** The tables of the project that init writes: `orders (id, total)` of the producer, and `parcels (order_id)` of the handler. */
export type StarterTable = "orders" | "parcels";

/** How a first producer and a first handler look with one library. `config.store` is the URL. */
export interface StarterLibrary {
  /** The word after --handle. */
  readonly word: string;
  readonly packages: readonly string[];
  /** What a program that writes to this table imports, in the order of the packages. */
  readonly imports: Readonly<Record<StarterTable, readonly string[]>>;
  /** Opens what transactions begin on. */
  readonly open: readonly string[];
  /** What transactions begin on. */
  readonly db: string;
  /** The store's options, such as `{ pool }`. */
  readonly options: string;
  /** The name in waybill/handles; null for the store's own client. */
  readonly handle: string | null;
  /** Makes the table known to the library, and creates it where it is missing. */
  readonly table: Readonly<Record<StarterTable, readonly string[]>>;
  /** Inserts through `tx`: `order` into orders, `event.aggregateId` into parcels. */
  readonly insert: Readonly<Record<StarterTable, string>>;
  /** Closes what `open` has opened. */
  readonly close: string;
  /** A file that the library needs, by its path in the project, and the command that makes a client of it. */
  readonly generated?: { readonly file: string; readonly lines: readonly string[]; readonly run: string };
}
