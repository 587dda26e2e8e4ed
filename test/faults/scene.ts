import { execFileSync } from "node:child_process";
import { randomInt, randomUUID } from "node:crypto";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "vitest";
import { embedded } from "../../src/brokers/embedded/index.ts";
import { seededRandom, type Random } from "../../src/core/random.ts";
import { defaultDriver, isBusy, type SqliteDatabase, type SqliteValue } from "../../src/drivers/sqlite/driver.ts";
import { sqlite } from "../../src/stores/sqlite/index.ts";
import { built } from "../cli/build.ts";
import { createProcesses, until, within, type Process } from "./processes.ts";

export type SqlRow = Readonly<Record<string, string | number | null>>;
export type Sql = (text: string, ...values: SqliteValue[]) => readonly SqlRow[];

export interface Aggregate {
  readonly aggregateType: string;
  readonly aggregateId: string;
}

/** Files, processes and one connection that judges them; all of it goes with the test. */
export interface Scene {
  readonly folder: string;
  /** Decides the test's choices; told when the test fails, and taken from WAYBILL_SEED when that is set. */
  readonly seed: number;
  readonly random: Random;
  /**
   * Plain SQL on both files: the product's tables, `counters`, `written` (what was committed, with its counter) and
   * `effects` of the writers and subscribers, and the view `log` over the broker's messages.
   */
  readonly sql: Sql;
  readonly one: (text: string, ...values: SqliteValue[]) => number;
  /** Makes counters for this many aggregates. */
  aggregates(count: number, prefix: string): readonly Aggregate[];
  /** One committed event, by plain SQL; says its id. */
  add(aggregate: Aggregate, id?: string): string;
  /** Writes until it is told to stop, or for as many `transactions`. */
  writer(name: string, config: Writing): Process;
  /** In the tables its name is `name:` and something of its own. */
  relay(name: string, options: object, more?: object): Process;
  subscriber(name: string, options: object, more?: object): Process;
  /** The real command line, as a user runs it. */
  cli(name: string, ...args: readonly string[]): Process;
  readonly storeUrl: string;
  readonly brokerUrl: string;
  /** Says "stop" to a writer; resolves with how many transactions it rolled back. */
  stop(writer: Process): Promise<number>;
  /** SIGSTOP, at a moment when the process has no lock on the file: nobody could take over from one that has. */
  freeze(process: Process): Promise<void>;
  /** SIGTERM, and then as `done`. */
  drain(...processes: readonly Process[]): Promise<void>;
  /** Resolves when they have ended by themselves, with exit code 0. */
  done(...processes: readonly Process[]): Promise<void>;
}

interface Writing {
  /** Eight of ten transactions go to one of these. */
  readonly hot: readonly Aggregate[];
  readonly cold: readonly Aggregate[];
  readonly transactions?: number;
  /** About this long between two transactions. @default 0 */
  readonly pauseMs?: number;
  /** Events of a transaction, at most. @default 1 */
  readonly most?: number;
}

const tables = `
CREATE TABLE counters (aggregate_type TEXT, aggregate_id TEXT, v INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (aggregate_type, aggregate_id));
CREATE TABLE written (id TEXT, aggregate_type TEXT, aggregate_id TEXT, n INTEGER);
CREATE TABLE effects (
  pos INTEGER PRIMARY KEY AUTOINCREMENT, event_id TEXT, aggregate_type TEXT, aggregate_id TEXT, n INTEGER, doomed INTEGER
);`;

const log = (file: string): string => `
CREATE TEMP VIEW log AS
SELECT "offset", topic, attributes ->> 'id' AS id, attributes ->> 'aggregatetype' AS aggregate_type, "key" AS aggregate_id,
       CAST(data AS TEXT) ->> 'n' AS n, CAST(data AS TEXT) ->> 'doomed' AS doomed
FROM ${file}.waybill_broker_messages;`;

/** One of three types, and so of three topics. */
const types = ["Order", "Stock", "User"];
export const topics = types.map((type) => `${type.toLowerCase()}.events`);

export async function createScene(context: TestContext, { ownBroker = false }: { readonly ownBroker?: boolean } = {}): Promise<Scene> {
  const main = await built();
  const folder = mkdtempSync(join(tmpdir(), "waybill-faults-"));
  context.onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const store = join(folder, "app.db");
  const broker = ownBroker ? join(folder, "broker.db") : store;
  await prepare(store, broker);

  const db = (await defaultDriver())(store);
  context.onTestFinished(() => db.close());
  db.exec("PRAGMA busy_timeout = 20000");
  db.exec(tables);
  if (ownBroker) db.exec(`ATTACH '${broker}' AS broker`);
  db.exec(log(ownBroker ? "broker" : "main"));
  const sql: Sql = (text, ...values) => db.prepare(text).all(...values) as SqlRow[];

  const processes = createProcesses(folder);
  context.onTestFinished(() => processes.end());
  const seed = Number(process.env["WAYBILL_SEED"] ?? randomInt(2 ** 31));
  context.onTestFailed(() => console.error(`"${context.task.name}" failed with WAYBILL_SEED=${seed}\n${processes.story()}`));
  const random = seededRandom(seed);
  const files = { store, broker };

  return {
    folder,
    seed,
    random,
    sql,
    one: (text, ...values) => Number(Object.values(sql(text, ...values)[0] ?? {})[0] ?? 0),
    aggregates(count, prefix) {
      const made = Array.from({ length: count }, (_, i) => ({ aggregateType: types[i % types.length]!, aggregateId: `${prefix}-${i}` }));
      for (const { aggregateType, aggregateId } of made) {
        db.prepare("INSERT INTO counters (aggregate_type, aggregate_id) VALUES (?, ?)").run(aggregateType, aggregateId);
      }
      return made;
    },
    add({ aggregateType, aggregateId }, id = randomUUID()) {
      sql("BEGIN IMMEDIATE");
      const [row] = sql(
        "UPDATE counters SET v = v + 1 WHERE aggregate_type = ? AND aggregate_id = ? RETURNING v",
        aggregateType,
        aggregateId,
      );
      const n = Number(row?.["v"]);
      const values = [id, aggregateType, aggregateId];
      db.prepare("INSERT INTO written (id, aggregate_type, aggregate_id, n) VALUES (?, ?, ?, ?)").run(...values, n);
      db.prepare("INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES (?, ?, ?, 'Counted', ?)").run(
        ...values,
        JSON.stringify({ n }),
      );
      sql("COMMIT");
      return id;
    },
    writer: (name, config) => processes.start("writer", name, { store, seed: Math.floor(random.next() * 2 ** 31), ...config }),
    relay: (name, options, more = {}) => processes.start("relay", name, { ...files, ...more, options: { relayId: name, ...options } }),
    subscriber: (name, options, more = {}) =>
      processes.start("subscriber", name, { ...files, ...more, options: { owner: name, topics, ...options } }),
    cli: (name, ...args) => processes.run(name, [main, ...args]),
    storeUrl: `sqlite:${store}`,
    brokerUrl: `embedded:${broker}`,
    async stop(writer) {
      writer.say("stop");
      const { doomed } = await writer.told("how much it wrote", ({ type }) => type === "wrote", 30_000);
      return Number(doomed);
    },
    async freeze(child) {
      db.exec("PRAGMA busy_timeout = 200");
      try {
        for (const deadline = performance.now() + 60_000; ;) {
          child.signal("SIGSTOP");
          await until(`${child.name} stands still`, () => isStopped(child.pid), 20_000);
          if (mayWrite(db)) return;
          if (performance.now() > deadline) throw new Error(`${child.name} always has a lock`);
          child.signal("SIGCONT");
          // Stopped again at once, it would not come to let go of the lock: on a busy machine it has not run by then.
          await until(`${child.name} lets go of its lock`, () => mayWrite(db), 20_000);
        }
      } finally {
        db.exec("PRAGMA busy_timeout = 20000");
      }
    },
    async drain(...children) {
      for (const child of children) await child.ready();
      for (const child of children) child.signal("SIGTERM");
      await done(...children);
    },
    done,
  };
}

async function done(...children: readonly Process[]): Promise<void> {
  for (const child of children) {
    const ending = await within(`the end of ${child.name}`, 60_000, child.ended);
    if (ending.code !== 0) throw new Error(`${child.name} ended with ${ending.signal ?? ending.code}`);
  }
}

function isStopped(pid: number): boolean {
  const path = `/proc/${pid}/stat`;
  const state = existsSync(path)
    ? readFileSync(path, "utf8").split(") ").at(-1)
    : execFileSync("ps", ["-o", "stat=", "-p", String(pid)], { encoding: "utf8" });
  return state?.trim().startsWith("T") === true;
}

/** A prepared statement that meets a lock would stay half begun, and keep a share of the file. */
function mayWrite(db: Pick<SqliteDatabase, "exec">): boolean {
  try {
    db.exec("UPDATE counters SET v = v");
    return true;
  } catch (error) {
    if (isBusy(error)) return false;
    throw error;
  }
}

/** Tables of ours, before any process asks for them. */
async function prepare(storePath: string, brokerPath: string): Promise<void> {
  const store = sqlite({ path: storePath });
  await store.schema.migrate();
  await store[Symbol.asyncDispose]();
  const broker = embedded({ path: brokerPath });
  await broker.connect(new AbortController().signal);
  await broker[Symbol.asyncDispose]();
}
