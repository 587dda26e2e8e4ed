import type { Begins, Library, SqlWriter, TxOf } from "../../contracts/handle.ts";
import type { Store } from "../../contracts/store.ts";
import { systemClock, type Clock } from "../../core/clock.ts";
import { show, WaybillError } from "../../core/errors.ts";
import { uuidv7 } from "../../core/ids.ts";
import { checkOptions, positive, whole } from "../../core/options.ts";
import { systemRandom } from "../../core/random.ts";
import { createWake } from "../../core/wake.ts";
import { createConnection, type ConnectionOptions } from "./connection.ts";
import { settingsOf, urlOf, type MysqlConnection, type MysqlPool } from "./driver.ts";
import { createExamination } from "./examine.ts";
import { createInbox, onOwnConnections } from "./inbox.ts";
import { partitionUnits, type PartitionUnit } from "../kit/partition-units.ts";
import { createLeaseStore } from "./lease-store.ts";
import { throughLibrary } from "./library.ts";
import { namesOf, type MysqlNames } from "./names.ts";
import { createOperator } from "./operator.ts";
import { createOutboxStore } from "./outbox-store.ts";
import { createPartitions } from "./partitions.ts";
import { createSchema } from "./schema.ts";
import { createTransactor, type MysqlDatabase } from "./transactor.ts";
import { readWatch } from "./watch.ts";
import { createWriter } from "./writer.ts";

export type { MysqlConnection, MysqlPool } from "./driver.ts";
export type { MysqlTransaction } from "./handle.ts";
export type { PartitionUnit } from "../kit/partition-units.ts";
export type { MysqlNames } from "./names.ts";
export type { MysqlDatabase } from "./transactor.ts";

export interface MysqlOptions {
  /**
   * Where the database is, as mysql://user:password@host:3306/database; a pool of Waybill's own is made. Either this or `pool`.
   * With `?sslmode=verify-full` the connection is encrypted and the server verified, against `sslrootcert` where that is given.
   */
  readonly url?: string;
  /** Your own pool of `mysql2/promise`. Waybill uses it and never ends it. */
  readonly pool?: MysqlPool;
  /** Connections of a pool of Waybill's own; a subscriber has another one of this size. @default 10 */
  readonly connections?: number;
  /** @default 10000 */
  readonly connectTimeoutMs?: number;
  /** How long a statement of Waybill's own, or its wait for a connection, may take. @default 30000 */
  readonly statementTimeoutMs?: number;
  /** The database that holds the tables. @default that of the connection */
  readonly schema?: string;
  readonly names?: MysqlNames;
  /** What becomes of a published event: kept until it is purged, or deleted at once. @default "keep" */
  readonly onPublish?: "keep" | "delete";
  /**
   * A new outbox has a partition for each day, week or month, which are dropped whole when they are old. One that is there
   * stays as it is, whatever it is; asking for another layout is refused.
   */
  readonly partitions?: PartitionUnit;
  /** For tests: by what other processes' leases are counted once they were seen. @default the system's */
  readonly clock?: Clock;
}

const options = [
  "url",
  "pool",
  "connections",
  "connectTimeoutMs",
  "statementTimeoutMs",
  "schema",
  "names",
  "onPublish",
  "partitions",
  "clock",
  "tx",
  "db",
] as const;

/** Its writer takes the transactions of libraries too. */
export type MysqlStore = { readonly writer: SqlWriter } & Store<MysqlDatabase, MysqlConnection>;

/** The outbox, inbox, leases and letters in a MariaDB or MySQL database. */
export function mysql<Db, Tx, Of extends Db, B extends Begins>(given: MysqlOptions & Library<Db, Tx, Of, B>): Store<Of, TxOf<B, Of>>;
export function mysql(given: MysqlOptions): MysqlStore;
export function mysql<Db, Tx, Of extends Db, B extends Begins>(
  given: MysqlOptions & Partial<Library<Db, Tx, Of, B>>,
): MysqlStore | Store<Of, Tx> {
  checkOptions("mysql", given, options);
  const names = namesOf(given.schema, given.names);
  const onPublish = given.onPublish ?? "keep";
  if (onPublish !== "keep" && onPublish !== "delete")
    throw new WaybillError("INVALID_OPTION", `onPublish must be "keep" or "delete", not ${show(onPublish)}`);
  const { partitions = null } = given;
  if (partitions !== null && !partitionUnits.includes(partitions))
    throw new WaybillError("INVALID_OPTION", `partitions must be one of ${partitionUnits.join(", ")}, not ${show(partitions)}`);
  const settings = poolOf(given);
  const connection = createConnection(settings);
  // A handler may take long inside its transaction; leases must not wait for it.
  const inboxConnection = given.pool === undefined ? createConnection(settings) : connection;
  const { place } = settings;
  const clock = given.clock ?? systemClock;
  const writer = createWriter(names, place);
  const own = {
    name: "mysql",
    schema: createSchema(connection, names, systemClock, partitions),
    outbox: createOutboxStore({
      connection,
      names,
      clock: systemClock,
      random: systemRandom,
      newId: uuidv7(systemClock, systemRandom),
      onPublish,
    }),
    leases: createLeaseStore(connection, names, clock),
    operator: createOperator(connection, names),
    housekeeping: {
      watch: () => connection.snapshot((run) => readWatch(run, names)),
      partitions: createPartitions(connection, names, systemClock),
    },
    wake: createWake(),
    ...createExamination(connection, names, systemClock),
    async [Symbol.asyncDispose]() {
      await connection.close();
      await inboxConnection.close();
    },
  };
  const library = libraryOf(given);
  if (library === null) {
    const inbox = createInbox(inboxConnection, names, onOwnConnections(inboxConnection), clock);
    return { ...own, writer, transactor: createTransactor(connection), inbox } satisfies MysqlStore;
  }
  const { applying, ...parts } = throughLibrary<Of, Tx>(library.tx, library.db, writer);
  return { ...own, ...parts, inbox: createInbox(inboxConnection, names, applying, clock) };
}

function libraryOf<Db, Tx, Of extends Db, B extends Begins>({ tx, db }: Partial<Library<Db, Tx, Of, B>>): Library<Db, Tx, Of, B> | null {
  if (tx === undefined && db === undefined) return null;
  if (typeof tx === "function" && "begin" in tx && db !== undefined && db !== null) return { tx, db };
  throw new WaybillError(
    "INVALID_OPTION",
    "mysql: tx and db belong together: mysql({ pool, tx: fromDrizzle, db }), where db is what the library begins transactions on",
  );
}

function poolOf(given: MysqlOptions): ConnectionOptions {
  const { url, pool } = given;
  const statementTimeoutMs = whole("statementTimeoutMs", given.statementTimeoutMs ?? 30_000);
  if ((url === undefined) === (pool === undefined))
    throw new WaybillError("INVALID_OPTION", "mysql needs either a url or a pool of mysql2/promise: mysql({ pool })");
  if (pool !== undefined) {
    // The pool of `mysql2` itself answers by callback.
    if (typeof pool?.getConnection !== "function" || typeof (pool as { promise?: unknown }).promise === "function")
      throw new WaybillError("INVALID_OPTION", 'mysql: pool must be made by createPool of "mysql2/promise"');
    return { pool, place: "the MySQL database", statementTimeoutMs };
  }
  settingsOf(url!);
  const connections = whole("connections", given.connections ?? 10);
  const connectTimeoutMs = positive("connectTimeoutMs", given.connectTimeoutMs ?? 10_000);
  const { host, pathname } = urlOf(url!);
  return { pool: { url: url!, connections, connectTimeoutMs }, place: `MySQL at ${host}${pathname}`, statementTimeoutMs };
}
