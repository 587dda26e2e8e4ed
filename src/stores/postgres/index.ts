import type { Begins, Library, TxOf } from "../../contracts/handle.ts";
import type { Inbox } from "../../contracts/inbox.ts";
import type { Store } from "../../contracts/store.ts";
import type { Tail } from "../../contracts/tail-ledger.ts";
import { type Clock, systemClock } from "../../core/clock.ts";
import { WaybillError } from "../../core/errors.ts";
import { uuidv7 } from "../../core/ids.ts";
import { systemRandom } from "../../core/random.ts";
import { createWake } from "../../core/wake.ts";
import { throughLibrary } from "../kit/library.ts";
import { inboxInOurWords, inOurWords } from "../kit/misread.ts";
import { checkServerOptions, libraryOf, poolOf } from "../kit/options.ts";
import type { PartitionUnit } from "../kit/schema.ts";
import { createConnection } from "./connection.ts";
import type { PgClient, PgPool } from "./driver.ts";
import { createConsumers } from "./consumers.ts";
import { createExamination } from "./examine.ts";
import { createFloors } from "./floors.ts";
import { inLibrary, onOwnClients, type EventTransactions } from "./applying.ts";
import { createInbox } from "./inbox.ts";
import { createLeaseStore } from "./lease-store.ts";
import { createLetters } from "./letters.ts";
import { createListening } from "./listen.ts";
import { createLedger } from "./log/ledger.ts";
import { createSetup } from "./log/setup.ts";
import { createTailer } from "./log/tailer.ts";
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
export type { PartitionUnit } from "../kit/schema.ts";
export type { PgDatabase } from "./transactor.ts";

export interface PostgresOptions {
  /** URL of the database; Waybill opens a pool of its own. Give either this or `pool`. */
  readonly url?: string;
  /** Your own pool of `pg`. Waybill uses it and never ends it. */
  readonly pool?: PgPool;
  /** Size of Waybill's own pool. A subscriber's handlers get a second pool of the same size. @default 10 */
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
   * A new outbox gets one partition per day, week or month. Old partitions are dropped whole. An existing outbox keeps its layout, and
   * asking for another one is refused.
   */
  readonly partitions?: PartitionUnit;
  /**
   * Wakes relays in other processes with LISTEN and NOTIFY, after the commit, and once for many commits. It costs one connection of a
   * relay's pool, and now and then a short statement by a producer. It does not work through a pooler in transaction mode.
   * @default false
   */
  readonly listen?: boolean;
  /**
   * URL of the server itself, for a relay that reads its log, where `url` leads to a pooler or Waybill is given a pool: no pooler carries the
   * log. @default `url`
   */
  readonly logUrl?: string;
  /** For tests: the clock that times other processes' leases once they were seen. @default the system's */
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
  const { onPublish, partitions, statementTimeoutMs } = checkServerOptions("postgres", options, ["listen", "logUrl"]);
  const names = namesOf(options.schema ?? "public", options.names);
  const settings = { ...poolOf("postgres", "pg", options, { pool: checkPool, url: checkUrl }), statementTimeoutMs };
  const connection = createConnection(settings);
  // Handlers may take all connections of a pool, and take long; leases and seats must not wait for them.
  const handlers = options.pool === undefined ? createConnection(settings) : connection;
  const clock = options.clock ?? systemClock;
  const newId = uuidv7(systemClock, systemRandom);
  const listening = options.listen === true ? createListening(connection) : null;
  const writer = createWriter(names, connection);
  const floors = createFloors(clock);
  if (options.logUrl !== undefined) checkedUrl(options.logUrl, "logUrl");
  const logUrl = options.logUrl ?? options.url;
  const told = <Part extends object>(part: Part): Part => inOurWords(part, settings.place);
  const tailAt = (url: string): Tail => {
    const reading = { connection, names, url, connectTimeoutMs: options.connectTimeoutMs ?? 10_000 };
    const tailer = createTailer({ ...reading, clock: systemClock });
    const ledger = told(createLedger({ connection, names, clock, floors, onPublish }));
    return { tailer, ledger, setup: told(createSetup({ ...reading, tailer })) };
  };
  const own = {
    name: "postgres",
    schema: told(createSchema(connection, names, partitions)),
    outbox: told(createOutboxStore({ connection, names, newId, onPublish, floors })),
    leases: told(createLeaseStore(connection, names, clock)),
    letters: told(createLetters(connection, names)),
    consumers: told(createConsumers(connection, names)),
    operator: told(createOperator(connection, names)),
    housekeeping: {
      ...told({ watch: () => connection.snapshot((run) => readWatch(run, names)) }),
      partitions: told(createPartitions(connection, names, systemClock)),
    },
    ...(logUrl !== undefined && { tail: tailAt(logUrl) }),
    wake: listening?.wake ?? createWake(),
    ...told(createExamination(connection, names, systemClock)),
    async [Symbol.asyncDispose]() {
      await listening?.close();
      await handlers.close();
      await connection.close();
    },
  };
  const inboxBy = <Tx>(applying: EventTransactions<Tx>): Inbox<Tx> =>
    inboxInOurWords(createInbox(connection, names, applying, clock), settings.place);
  const library = libraryOf("postgres", options);
  if (library === null) {
    const applying = onOwnClients(handlers, statementTimeoutMs);
    return { ...own, writer, transactor: createTransactor(connection.place, statementTimeoutMs), inbox: inboxBy(applying) };
  }
  const { tx: handle, db } = library;
  const { begin, ...parts } = throughLibrary<Of, Tx>(handle, writer);
  const inTransaction = {
    begin: <T>(work: (tx: Tx) => Promise<T>) => begin(db, work),
    query: async (tx: Tx, sql: string, values: unknown[]) => handle(tx).query(sql, values),
    ...(handle.lend !== undefined && { lend: handle.lend }),
  };
  const applying = inLibrary(inTransaction, connection.place);
  return { ...own, ...parts, inbox: inboxBy(applying) };
}

function checkPool(pool: PgPool): string {
  if (typeof pool.connect !== "function" || typeof pool.totalCount !== "number")
    throw new WaybillError("INVALID_OPTION", "postgres: pool must be a Pool of pg: new pg.Pool({ … })");
  return "the PostgreSQL database";
}

function checkUrl(url: string): string {
  const { host, pathname } = checkedUrl(url);
  return `PostgreSQL at ${host}${pathname}`;
}
