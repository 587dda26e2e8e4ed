// The outbox of a round: a schema, a database or a file of its own, and how events get into it without any library.
import pg from "pg";
import { createPool } from "mysql2/promise";
import { from } from "./package.mjs";

const chunk = 100_000;

/** The aggregate whose share of the events is `task.hot`. */
export const hotAggregate = "hot";

export const databaseOf = (task) => task.database ?? "postgres";

/** A table of the service's own, with one row for each transaction. */
export const workTable = (task, { named, run }) =>
  run(`CREATE TABLE ${named("work")} (id ${databaseOf(task) === "mariadb" ? "varchar(100)" : "text"} PRIMARY KEY, body text NOT NULL)`);

/**
 * `insert(count)` adds events of `task.payload` bytes. `task.hot` is the share that one aggregate has; the rest is spread over 20,000.
 * `published(count)` adds events that were published before. `named(table)` is a table beside the outbox, and `run` runs any statement.
 */
export async function openStore(task, options = {}) {
  const opened = await { postgres: onPostgres, mariadb: onMariadb, sqlite: onSqlite }[databaseOf(task)](task, options);
  await opened.store.schema.migrate();
  const inChunks = (insertSome) => async (count) => {
    for (let left = count; left > 0; left -= chunk) await insertSome(Math.min(left, chunk));
  };
  return { ...opened, insert: inChunks(opened.insertSome), published: inChunks(opened.insertPublished) };
}

/** The length of the text in a JSON payload of `payload` bytes. */
const textBytes = ({ payload = 300 }) => Math.max(0, payload - '{"text":""}'.length);

/** In time order, as `outbox.add` makes ids. The random ids that the table makes for plain SQL fall on all pages of a large index. */
const timeOrderedId = `regexp_replace(
  lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') || '7' || substr(md5(random()::text), 1, 3) || '8' || substr(md5(random()::text), 1, 15),
  '(.{8})(.{4})(.{4})(.{4})(.{12})', '\\1-\\2-\\3-\\4-\\5')`;

async function onPostgres(task, options) {
  const pool = new pg.Pool({ connectionString: task.store, max: task.connections ?? 2 });
  pool.on("error", () => undefined);
  const { postgres } = await from(task.root, "stores/postgres/index.js");
  const store = postgres({ url: task.store, schema: task.schema, ...options });
  return {
    store,
    pool,
    named: (table) => `${task.schema}.${table}`,
    run: (sql) => pool.query(sql),
    insertSome: (count) =>
      pool.query(
        `INSERT INTO ${task.schema}.outbox (id, aggregate_type, aggregate_id, event_type, payload)
         SELECT ${timeOrderedId}, '${task.schema}', CASE WHEN random() < ${task.hot ?? 0} THEN '${hotAggregate}' ELSE 'order-' || (random() * 20000)::int END,
                'OrderPlaced', '{"text":"' || repeat('x', ${textBytes(task)}) || '"}' FROM generate_series(1, $1::int)`,
        [count],
      ),
    insertPublished: (count) =>
      pool.query(
        `INSERT INTO ${task.schema}.outbox (id, aggregate_type, aggregate_id, event_type, payload, status, published_at)
         SELECT ${timeOrderedId}, '${task.schema}', 'order-' || i % 20000, 'OrderPlaced', '{"text":"' || repeat('x', ${textBytes(task)}) || '"}',
                'PUBLISHED', clock_timestamp() FROM generate_series(1, $1::int) i`,
        [count],
      ),
    /** Does in advance what autovacuum and the checkpointer would do in the middle of the round. */
    settle: async () => {
      await pool.query(`VACUUM ANALYZE ${task.schema}.outbox`);
      await pool.query("CHECKPOINT");
    },
    position: async () => {
      const { rows } = await pool.query("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0') AS at");
      return Number(rows[0].at);
    },
    close: async () => {
      await store[Symbol.asyncDispose]();
      await pool.query(`DROP SCHEMA ${task.schema} CASCADE`);
      await pool.end();
    },
  };
}

async function onMariadb(task) {
  const url = new URL(task.store);
  const admin = createPool(url.href);
  await admin.query(`CREATE DATABASE ${task.schema}`);
  url.pathname = `/${task.schema}`;
  const { mysql } = await from(task.root, "stores/mysql/index.js");
  const store = mysql({ url: url.href });
  return {
    store,
    url: url.href,
    named: (table) => `${task.schema}.${table}`,
    run: (sql) => admin.query(sql),
    insertSome: (count) =>
      admin.query(
        `INSERT INTO ${task.schema}.outbox (aggregate_type, aggregate_id, event_type, payload)
         SELECT '${task.schema}', IF(RAND() < ${task.hot ?? 0}, '${hotAggregate}', CONCAT('order-', FLOOR(RAND() * 20000))),
                'OrderPlaced', CONCAT('{"text":"', REPEAT('x', ${textBytes(task)}), '"}') FROM seq_1_to_${count}`,
      ),
    position: null,
    close: async () => {
      await store[Symbol.asyncDispose]();
      await admin.query(`DROP DATABASE ${task.schema}`);
      await admin.end();
    },
  };
}

async function onSqlite(task) {
  const { sqlite } = await from(task.root, "stores/sqlite/index.js");
  const { defaultDriver } = await from(task.root, "drivers/sqlite/driver.js");
  const path = `${task.store}/${task.schema}.db`;
  const store = sqlite({ path });
  const file = (await defaultDriver())(path);
  return {
    store,
    file,
    named: (table) => table,
    run: async (sql) => file.exec(sql),
    insertSome: async (count) =>
      file.exec(
        `WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < ${count})
         INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
         SELECT '${task.schema}', CASE WHEN abs(random()) % 1000 < ${(task.hot ?? 0) * 1_000} THEN '${hotAggregate}' ELSE 'order-' || (abs(random()) % 20000) END,
                'OrderPlaced', '{"text":"${"x".repeat(textBytes(task))}"}' FROM n`,
      ),
    position: null,
    close: async () => {
      file.close();
      await store[Symbol.asyncDispose]();
    },
  };
}
