import type { Begins, Library, SqlWriter, TxOf } from "../../contracts/handle.ts";
import type { Inbox } from "../../contracts/inbox.ts";
import type { Store } from "../../contracts/store.ts";
import { systemClock, type Clock } from "../../core/clock.ts";
import { WaybillError } from "../../core/errors.ts";
import { uuidv7 } from "../../core/ids.ts";
import { reclaim, unlent } from "../../core/lend.ts";
import { systemRandom } from "../../core/random.ts";
import { createWake } from "../../core/wake.ts";
import { throughLibrary } from "../kit/library.ts";
import { inboxInOurWords, inOurWords } from "../kit/misread.ts";
import { checkServerOptions, libraryOf, poolOf } from "../kit/options.ts";
import type { PartitionUnit } from "../kit/schema.ts";
import { createConnection } from "./connection.ts";
import { settingsOf, urlOf, type MysqlConnection, type MysqlPool } from "./driver.ts";
import { createExamination } from "./examine.ts";
import { createInbox, onOwnConnections, type Applying } from "./inbox.ts";
import { createLeaseStore } from "./lease-store.ts";
import { askOf } from "./handle.ts";
import { createConsumers } from "./consumers.ts";
import { createLetters } from "./letters.ts";
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
export type { PartitionUnit } from "../kit/schema.ts";
export type { MysqlNames } from "./names.ts";
export type { MysqlDatabase } from "./transactor.ts";

export interface MysqlOptions {
  /**
   * The database, as mysql://user:password@host:3306/database. Waybill makes its own pool for it. Give either this or `pool`. With
   * `?sslmode=verify-full` the connection is encrypted and the server verified, against `sslrootcert` where that is given.
   */
  readonly url?: string;
  /** Your own pool of `mysql2/promise`. Waybill uses it and never ends it. */
  readonly pool?: MysqlPool;
  /** Connections in Waybill's own pool. A subscriber has a second pool of this size. @default 10 */
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
   * A new outbox gets a partition for each day, week or month, and old partitions are dropped whole. An existing outbox keeps its layout,
   * with or without partitions; asking for another layout is refused.
   */
  readonly partitions?: PartitionUnit;
  /** For tests: the clock that measures other processes' leases once they were seen. @default the system's */
  readonly clock?: Clock;
}

/** A store whose writer takes the transactions of other libraries too. */
export type MysqlStore = { readonly writer: SqlWriter } & Store<MysqlDatabase, MysqlConnection>;

/** The outbox, inbox, leases and letters in a MariaDB or MySQL database. */
export function mysql<Db, Tx, Of extends Db, B extends Begins>(given: MysqlOptions & Library<Db, Tx, Of, B>): Store<Of, TxOf<B, Of>>;
export function mysql(given: MysqlOptions): MysqlStore;
export function mysql<Db, Tx, Of extends Db, B extends Begins>(
  given: MysqlOptions & Partial<Library<Db, Tx, Of, B>>,
): MysqlStore | Store<Of, Tx> {
  const { onPublish, partitions, statementTimeoutMs } = checkServerOptions("mysql", given);
  const names = namesOf(given.schema, given.names);
  const settings = { ...poolOf("mysql", "mysql2/promise", given, { pool: checkPool, url: checkUrl }), statementTimeoutMs };
  const connection = createConnection(settings);
  // A handler may take long inside its transaction; leases must not wait for it.
  const inboxConnection = given.pool === undefined ? createConnection(settings) : connection;
  const { place } = settings;
  const clock = given.clock ?? systemClock;
  const writer = createWriter(names, place);
  const told = <Part extends object>(part: Part): Part => inOurWords(part, place);
  const newId = uuidv7(systemClock, systemRandom);
  const own = {
    name: "mysql",
    schema: told(createSchema(connection, names, systemClock, partitions)),
    outbox: told(createOutboxStore({ connection, names, clock: systemClock, random: systemRandom, newId, onPublish })),
    leases: told(createLeaseStore(connection, names, clock)),
    letters: told(createLetters(inboxConnection, names)),
    consumers: told(createConsumers(inboxConnection, names)),
    operator: told(createOperator(connection, names)),
    housekeeping: {
      ...told({ watch: () => connection.snapshot((run) => readWatch(run, names)) }),
      partitions: told(createPartitions(connection, names, systemClock)),
    },
    wake: createWake(),
    ...told(createExamination(connection, names, systemClock)),
    async [Symbol.asyncDispose]() {
      await connection.close();
      await inboxConnection.close();
    },
  };
  const inboxBy = <Tx>(applying: Applying<Tx>): Inbox<Tx> => inboxInOurWords(createInbox(inboxConnection, names, applying, clock), place);
  const library = libraryOf("mysql", given);
  if (library === null) {
    const inbox = inboxBy(onOwnConnections(inboxConnection));
    return { ...own, writer, transactor: createTransactor(connection), inbox } satisfies MysqlStore;
  }
  const { tx: handle, db } = library;
  const { begin, ...parts } = throughLibrary<Of, Tx>(handle, writer);
  const applying: Applying<Tx> = {
    hearsOfRollback: false,
    transaction: (_shared, work) =>
      begin(db, (tx) => {
        const lend = async (handler: (tx: Tx) => void | Promise<void>): Promise<void> => {
          try {
            await handler(tx);
          } finally {
            reclaim(tx);
          }
        };
        const turn = () => handle.lend?.(tx) ?? { handle: tx, takeBack: () => undefined };
        return work({ ask: askOf(handle(unlent(tx))), lend, turn, guarded: false });
      }),
  };
  return { ...own, ...parts, inbox: inboxBy(applying) };
}

function checkPool(pool: MysqlPool): string {
  // The pool of `mysql2` itself answers by callback.
  if (typeof pool?.getConnection !== "function" || typeof (pool as { promise?: unknown }).promise === "function")
    throw new WaybillError("INVALID_OPTION", 'mysql: pool must be made by createPool of "mysql2/promise"');
  return "the MySQL database";
}

function checkUrl(url: string): string {
  settingsOf(url);
  const { host, pathname } = urlOf(url);
  return `MySQL at ${host}${pathname}`;
}
