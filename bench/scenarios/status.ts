import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createPool } from "mysql2/promise";
import type { Operator } from "../../src/contracts/operator.ts";
import { defaultDriver } from "../../src/drivers/sqlite/driver.ts";
import { mysql } from "../../src/stores/mysql/index.ts";
import { sqlite } from "../../src/stores/sqlite/index.ts";
import { startMariadb } from "../../test/servers/mariadb.ts";
import type { Finding } from "../report/finding.ts";
import { subjectOn, timed } from "./subject.ts";

const step = 1_000_000;
/** 1,000 events that wait, beside those that are published. */
const waiting = 1_000;

/** A store whose outbox is filled with plain SQL, without a log, triggers or an index where that makes the filling faster. */
interface Filled extends AsyncDisposable {
  readonly name: string;
  readonly operator: Pick<Operator, "status">;
  /** Adds published events with these `seq`. */
  fill(from: number, to: number): Promise<unknown>;
  /** Recreates the index if it was dropped, and adds the events that wait. */
  filled(last: number): Promise<unknown>;
  /** Refreshes the statistics, as a database does by itself over time. */
  analyze(): Promise<unknown>;
}

/** Status with many published events in the table, which it must not count row by row. */
export async function status(url: string, events: number): Promise<readonly Finding[]> {
  const findings: Finding[] = [];
  for (const open of [() => onPostgres(url), onMariadb, onSqlite]) {
    await using store = await open();
    for (let from = 1; from <= events; from += step) await store.fill(from, Math.min(events, from + step - 1));
    await store.filled(events);
    findings.push(await looksAt(store, events));
  }
  return findings;
}

async function looksAt({ name, operator, analyze }: Filled, events: number): Promise<Finding> {
  let counted = false;
  const look = async (what: string): Promise<{ readonly ms: number; readonly what: string; readonly note: string }> => {
    const { ms, value } = await timed(() => operator.status());
    const { states, estimated } = value;
    counted ||= !estimated.includes("PUBLISHED");
    return { what, ms, note: `${what}: ${states.PENDING} PENDING, ${states.PUBLISHED} PUBLISHED, estimated: ${estimated.join(", ")}` };
  };
  const looks = [await look("the first look, without statistics"), await look("the next look")];
  await analyze();
  looks.push(await look("with fresh statistics"));
  return {
    question: `Status on ${name} beside ${events.toLocaleString("en")} published events: does it answer within a second?`,
    figures: looks.map(({ what, ms }) => ({ what, value: ms, unit: "ms" })),
    // An exact count breaks the bound even if it was quick: with more rows it would not be.
    ratio: counted ? Infinity : Math.max(...looks.map(({ ms }) => ms)) / 1_000,
    bound: { at: "most", ratio: 1 },
    notes: looks.map(({ note }) => note),
  };
}

async function onPostgres(url: string): Promise<Filled> {
  const subject = await subjectOn(url, "status");
  const { pool, schema, store } = subject;
  await pool.query(`ALTER TABLE ${schema}.outbox SET UNLOGGED; DROP INDEX ${schema}.outbox_id`);
  return {
    name: "PostgreSQL",
    operator: store.operator,
    fill: (from, to) =>
      pool.query(
        `INSERT INTO ${schema}.outbox (seq, aggregate_type, aggregate_id, event_type, payload, status, published_at)
         SELECT i, 'Order', 'order-' || i % 20000, 'OrderPlaced', 'x', 'PUBLISHED', clock_timestamp() FROM generate_series($1::bigint, $2::bigint) i`,
        [from, to],
      ),
    async filled(last) {
      await pool.query(`SELECT setval('${schema}.waybill_seq', ${last})`);
      await pool.query(`CREATE UNIQUE INDEX outbox_id ON ${schema}.outbox (id)`);
      await subject.insert(waiting);
    },
    analyze: () => pool.query(`VACUUM ANALYZE ${schema}.outbox`),
    [Symbol.asyncDispose]: () => subject[Symbol.asyncDispose](),
  };
}

async function onMariadb(): Promise<Filled> {
  const server = await startMariadb({
    settings: { "innodb-buffer-pool-size": "1G", "innodb-log-file-size": "1G", "innodb-flush-log-at-trx-commit": 0 },
  });
  const pool = createPool(server.url("mysql"));
  await pool.query("CREATE DATABASE status");
  await pool.query("USE status");
  const store = mysql({ url: server.url("status") });
  await store.schema.migrate();
  const [triggers] = await pool.query("SELECT trigger_name AS name FROM information_schema.triggers WHERE trigger_schema = 'status'");
  for (const { name } of triggers as { name: string }[]) await pool.query(`DROP TRIGGER status.\`${name}\``);
  const columns = "(seq, id, aggregate_type, aggregate_id, event_type, payload, status, published_at)";
  const insert = (numbers: string, state: string): Promise<unknown> =>
    pool.query(
      `INSERT INTO status.outbox ${columns} SELECT seq, LPAD(HEX(seq), 32, '0'), 'Order', CONCAT('order-', seq % 20000), 'OrderPlaced', 'x', ${state} FROM ${numbers}`,
    );
  return {
    name: "MariaDB",
    operator: store.operator,
    fill: (from, to) => insert(`seq_${from}_to_${to}`, "'PUBLISHED', NOW(6)"),
    filled: (last) => insert(`seq_${last + 1}_to_${last + waiting}`, "'PENDING', NULL"),
    analyze: () => pool.query("ANALYZE TABLE status.outbox"),
    async [Symbol.asyncDispose]() {
      await store[Symbol.asyncDispose]();
      await pool.end();
      await server[Symbol.asyncDispose]();
    },
  };
}

async function onSqlite(): Promise<Filled> {
  const folder = mkdtempSync(join(tmpdir(), "waybill-status-"));
  const path = join(folder, "app.db");
  const store = sqlite({ path });
  await store.schema.migrate();
  const file = (await defaultDriver())(path);
  file.exec("PRAGMA synchronous = OFF");
  const insert = (from: number, to: number, state: string): unknown =>
    file.exec(
      `WITH RECURSIVE n (i) AS (VALUES (${from}) UNION ALL SELECT i + 1 FROM n WHERE i < ${to})
       INSERT INTO outbox (seq, aggregate_type, aggregate_id, event_type, payload, status, published_at)
       SELECT i, 'Order', 'order-' || (i % 20000), 'OrderPlaced', 'x', ${state} FROM n`,
    );
  return {
    name: "SQLite",
    operator: store.operator,
    fill: async (from, to) => insert(from, to, "'PUBLISHED', strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"),
    filled: async (last) => insert(last + 1, last + waiting, "'PENDING', NULL"),
    analyze: async () => file.exec("ANALYZE"),
    async [Symbol.asyncDispose]() {
      file.close();
      await store[Symbol.asyncDispose]();
      rmSync(folder, { recursive: true });
    },
  };
}
