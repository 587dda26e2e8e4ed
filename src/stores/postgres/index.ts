import type { Begins, Library, TxOf } from "../../contracts/handle.ts";
import type { Store } from "../../contracts/store.ts";
import { type Clock, systemClock } from "../../core/clock.ts";
import { WaybillError } from "../../core/errors.ts";
import { uuidv7 } from "../../core/ids.ts";
import { checkOptions, positive, whole } from "../../core/options.ts";
import { systemRandom } from "../../core/random.ts";
import { createWake } from "../../core/wake.ts";
import { partitionUnits, type PartitionUnit } from "../kit/partition-units.ts";
import { createConnection } from "./connection.ts";
import type { PgClient, PgPool } from "./driver.ts";
import { createExamination } from "./examine.ts";
import { createInbox, onOwnClients } from "./inbox.ts";
import { createLeaseStore } from "./lease-store.ts";
import { createListening } from "./listen.ts";
import { throughLibrary } from "./library.ts";
import { namesOf, type PostgresNames } from "./names.ts";
import { createOperator } from "./operator.ts";
import { createOutboxStore } from "./outbox-store.ts";
import { createPartitions } from "./partitions.ts";
import { createSchema } from "./schema.ts";
import { createTransactor, type PgDatabase } from "./transactor.ts";
import { checkedUrl } from "./url.ts";
import { readWatch } from "./watch.ts";
import { createWriter } from "./writer.ts";

export type { PgClient, PgPool } from "./driver.ts";
export type { PostgresNames } from "./names.ts";
export type { PartitionUnit } from "../kit/partition-units.ts";
export type { PgDatabase } from "./transactor.ts";

export interface PostgresOptions {
  /** Where the database is; a pool of Waybill's own is made. Either this or `pool`. */
  readonly url?: string;
  /** Your own pool of `pg`. Waybill uses it and never ends it. */
  readonly pool?: PgPool;
  /** Connections of a pool of Waybill's own; a subscriber's handlers have another one of this size. @default 10 */
  readonly connections?: number;
  /** @default 10000 */
  readonly connectTimeoutMs?: number;
  /** How long a statement of Waybill's own, or its wait for a lock, may take. @default 30000 */
  readonly statementTimeoutMs?: number;
  /** @default "public" */
  readonly schema?: string;
  readonly names?: PostgresNames;
  /** What becomes of a published event: kept until it is purged, or deleted at once. @default "keep" */
  readonly onPublish?: "keep" | "delete";
  /**
   * A new outbox is made of one table for each day, week or month, which are dropped whole when they are old. One that is
   * there stays as it is, whatever it is; asking for another layout is refused.
   */
  readonly partitions?: PartitionUnit;
  /**
   * Wakes relays of other processes with LISTEN and NOTIFY, after the commit and once for many. It costs one connection of
   * a relay's pool, and a short statement of a producer's now and then; it does not work through a pooler in transaction mode.
   * @default false
   */
  readonly listen?: boolean;
  /** For tests: by what other processes' leases are counted once they were seen. @default the system's */
  readonly clock?: Clock;
}

export type PostgresStore = Store<PgDatabase, PgClient>;

/** The outbox, inbox, leases and letters in a PostgreSQL schema. */
export function postgres<Db, Tx, Of extends Db, B extends Begins>(
  options: PostgresOptions & Library<Db, Tx, Of, B>,
): Store<Of, TxOf<B, Of>>;
export function postgres(options: PostgresOptions): PostgresStore;
export function postgres<Db, Tx, Of extends Db, B extends Begins>(
  options: PostgresOptions & Partial<Library<Db, Tx, Of, B>>,
): PostgresStore | Store<Of, Tx> {
  checkOptions("postgres", options, [
    "url",
    "pool",
    "connections",
    "connectTimeoutMs",
    "statementTimeoutMs",
    "schema",
    "names",
    "onPublish",
    "partitions",
    "listen",
    "clock",
    "tx",
    "db",
  ]);
  const names = namesOf(options.schema ?? "public", options.names);
  const onPublish = options.onPublish ?? "keep";
  if (onPublish !== "keep" && onPublish !== "delete")
    throw new WaybillError("INVALID_OPTION", `onPublish must be "keep" or "delete", not ${JSON.stringify(onPublish)}`);
  const { partitions = null } = options;
  if (partitions !== null && !partitionUnits.includes(partitions))
    throw new WaybillError("INVALID_OPTION", `partitions must be one of ${partitionUnits.join(", ")}, not ${JSON.stringify(partitions)}`);
  const settings = { ...poolOf(options), statementTimeoutMs: whole("statementTimeoutMs", options.statementTimeoutMs ?? 30_000) };
  const connection = createConnection(settings);
  // Handlers may take all connections of a pool, and take long; leases and seats must not wait for them.
  const handlers = options.pool === undefined ? createConnection(settings) : connection;
  const clock = options.clock ?? systemClock;
  const newId = uuidv7(systemClock, systemRandom);
  const listening = options.listen === true ? createListening(connection) : null;
  const writer = createWriter(names, connection.place);
  const own = {
    name: "postgres",
    schema: createSchema(connection, names, partitions),
    outbox: createOutboxStore({ connection, names, clock, newId, onPublish }),
    leases: createLeaseStore(connection, names, clock),
    operator: createOperator(connection, names),
    housekeeping: {
      watch: () => connection.snapshot((run) => readWatch(run, names)),
      partitions: createPartitions(connection, names, systemClock),
    },
    wake: listening?.wake ?? createWake(),
    ...createExamination(connection, names, systemClock),
    async [Symbol.asyncDispose]() {
      await listening?.close();
      await handlers.close();
      await connection.close();
    },
  };
  const library = libraryOf(options);
  if (library === null) {
    const inbox = createInbox(connection, names, onOwnClients(handlers, settings.statementTimeoutMs), clock);
    return { ...own, writer, transactor: createTransactor(connection.place, settings.statementTimeoutMs), inbox };
  }
  const { applying, ...parts } = throughLibrary<Of, Tx>(library.tx, library.db, writer);
  return { ...own, ...parts, inbox: createInbox(connection, names, applying, clock) };
}

function libraryOf<Db, Tx, Of extends Db, B extends Begins>({ tx, db }: Partial<Library<Db, Tx, Of, B>>): Library<Db, Tx, Of, B> | null {
  if (tx === undefined && db === undefined) return null;
  if (typeof tx === "function" && "begin" in tx && db !== undefined && db !== null) return { tx, db };
  throw new WaybillError(
    "INVALID_OPTION",
    "postgres: tx and db belong together: postgres({ pool, tx: fromDrizzle, db }), where db is what the library begins transactions on",
  );
}

function poolOf(options: PostgresOptions): Pick<Parameters<typeof createConnection>[0], "pool" | "place"> {
  const { url, pool } = options;
  if ((url === undefined) === (pool === undefined))
    throw new WaybillError("INVALID_OPTION", "postgres needs either a url or a pool of pg: postgres({ pool })");
  if (pool !== undefined) {
    if (typeof pool.connect !== "function" || typeof pool.totalCount !== "number")
      throw new WaybillError("INVALID_OPTION", "postgres: pool must be a Pool of pg: new pg.Pool({ … })");
    return { pool, place: "the PostgreSQL database" };
  }
  const place = checkedUrl(url!);
  return {
    pool: {
      url: url!,
      connections: whole("connections", options.connections ?? 10),
      connectTimeoutMs: positive("connectTimeoutMs", options.connectTimeoutMs ?? 10_000),
    },
    place: `PostgreSQL at ${place.host}${place.pathname}`,
  };
}
