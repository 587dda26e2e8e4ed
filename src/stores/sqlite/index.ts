import type { SqlWriter } from "../../contracts/handle.ts";
import type { Store } from "../../contracts/store.ts";
import { type Clock, systemClock } from "../../core/clock.ts";
import { uuidv7 } from "../../core/ids.ts";
import { checkOptions, positive } from "../../core/options.ts";
import { systemRandom } from "../../core/random.ts";
import { createWake } from "../../core/wake.ts";
import { createConnection } from "../../drivers/sqlite/connection.ts";
import type { OpenSqlite, SqliteDatabase } from "../../drivers/sqlite/driver.ts";
import { createExamination } from "./examine.ts";
import { createInbox } from "./inbox.ts";
import { createLeaseStore } from "./lease-store.ts";
import { createConsumers } from "./consumers.ts";
import { createLetters } from "./letters.ts";
import { createOperator } from "./operator.ts";
import { createOutboxStore } from "./outbox-store.ts";
import { createSchema } from "./schema.ts";
import { readWatch } from "./status.ts";
import { createTransactor, createWriter } from "./writer.ts";

export type { OpenSqlite, SqliteDatabase, SqliteStatement, SqliteValue } from "../../drivers/sqlite/driver.ts";

export interface SqliteOptions {
  /** The file. Several processes may share it. */
  readonly path: string;
  /** Opens the file with a client of your choice. @default the first of node:sqlite, better-sqlite3, libsql */
  readonly open?: OpenSqlite;
  /** How long to wait for other processes' locks. @default 10000 */
  readonly lockTimeoutMs?: number;
  /** The database uses this machine's clock, so an injected clock replaces both. */
  readonly clock?: Clock;
}

/** Its writer also accepts the transactions of libraries. */
export type SqliteStore = { readonly writer: SqlWriter } & Store<SqliteDatabase>;

/** The outbox, inbox, leases and letters in one SQLite file, over connections of their own. */
export function sqlite(options: SqliteOptions): SqliteStore {
  checkOptions("sqlite", options, ["path", "open", "lockTimeoutMs", "clock"]);
  const { path, open } = options;
  const clock = options.clock ?? systemClock;
  const lockTimeoutMs = positive("lockTimeoutMs", options.lockTimeoutMs ?? 10_000);
  const connect = (): ReturnType<typeof createConnection> => createConnection({ path, open, lockTimeoutMs, clock });
  const connection = connect();
  const inboxConnection = connect(); // a handler may take long inside its transaction; leases must not wait for it in this process
  return {
    name: "sqlite",
    schema: createSchema(connection, path),
    writer: createWriter(path),
    transactor: createTransactor(path, lockTimeoutMs),
    outbox: createOutboxStore(connection, clock, uuidv7(clock, systemRandom)),
    leases: createLeaseStore(connection, clock),
    inbox: createInbox(inboxConnection, clock),
    letters: createLetters(inboxConnection, clock),
    consumers: createConsumers(inboxConnection, clock),
    operator: createOperator(connection, clock),
    housekeeping: { watch: () => connection.read(readWatch) },
    wake: createWake(),
    ...createExamination(connection, path),
    async [Symbol.asyncDispose]() {
      await connection.close();
      await inboxConnection.close();
    },
  };
}
