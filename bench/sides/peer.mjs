// Other libraries for PostgreSQL drain their own tables. Their handlers publish with the broker's own client, as their users would.
import { createRequire } from "node:module";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { clients } from "./bare.mjs";
import { openBroker } from "./brokers.mjs";
import { createCount, measured, now } from "./measure.mjs";
import { openStore } from "./stores.mjs";

const text = `{"text":"${"x".repeat(289)}"}`;

/**
 * Each creates its tables and returns `insert`, which adds events, and `start`, which starts the work. `start` resolves to a function that
 * stops the work when all is settled. `publish(count)` sends that many messages at once, and resolves when the broker has them.
 */
const peers = {
  /** As its page on performance says: jobs are fetched and completed in batches. */
  async "graphile-worker"(task, { require, pool, publish }) {
    const { run, runMigrations, Logger } = require("graphile-worker");
    const preset = {
      worker: {
        connectionString: task.store,
        schema: task.schema,
        concurrentJobs: 100,
        maxPoolSize: 26,
        localQueue: { size: 500 },
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
        logger: new Logger(() => () => undefined), // logging a line for each job would be most of its work
      },
    };
    await runMigrations({ preset });
    return {
      insert: (count) =>
        pool.query(
          `SELECT count(*) FROM ${task.schema}.add_jobs((SELECT array_agg(ROW('work', $2::json, NULL, NULL, NULL, NULL, NULL, NULL)::${task.schema}.job_spec)
             FROM generate_series(1, $1::int)))`,
          [count, text],
        ),
      start: async () => {
        const runner = await run({ preset, taskList: { work: () => publish(1) } });
        return () => runner.stop();
      },
    };
  },

  /** Its batches, without a pause between them. `task.ordered`: FIFO for each key, as the relay has it for each aggregate. */
  async "pg-boss"(task, { require, publish }) {
    const { PgBoss } = require("pg-boss");
    const boss = new PgBoss({ connectionString: task.store, schema: task.schema, max: 10, supervise: false, schedule: false });
    boss.on("error", (error) => void process.stderr.write(`${error}\n`));
    await boss.start();
    await boss.createQueue("work", task.ordered ? { policy: "key_strict_fifo" } : {});
    let going = true;
    const worker = async () => {
      while (going) {
        const jobs = await boss.fetch("work", { batchSize: 500 });
        if (jobs.length === 0) {
          await sleep(20);
          continue;
        }
        await publish(jobs.length);
        await boss.complete(
          "work",
          jobs.map(({ id }) => id),
        );
      }
    };
    const job = () => ({
      data: { text: "x".repeat(289) },
      ...(task.ordered ? { singletonKey: `order-${Math.floor(Math.random() * 20_000)}` } : {}),
    });
    return {
      insert: async (count) => {
        for (let left = count; left > 0; left -= 1_000) await boss.insert("work", Array.from({ length: Math.min(left, 1_000) }, job));
      },
      start: async () => {
        going = true;
        const workers = Array.from({ length: task.ordered ? 1 : 2 }, worker);
        return () => ((going = false), Promise.all(workers));
      },
    };
  },

  /** The polling listener. By default it first fetches one message at a time; here it fetches whole batches from the start. */
  async "pg-transactional-outbox"(task, { require, pool, publish }) {
    const { DatabaseSetup, getDisabledLogger, initializePollingMessageListener } = require("pg-transactional-outbox");
    const setup = {
      outboxOrInbox: "outbox",
      schema: task.schema,
      table: "messages",
      nextMessagesSchema: task.schema,
      nextMessagesName: "next_messages",
    };
    for (const step of ["dropAndCreateTable", "createPollingFunction", "setupPollingIndexes"]) await pool.query(DatabaseSetup[step](setup));
    const batch = 100;
    const settings = {
      dbSchema: task.schema,
      dbTable: "messages",
      enableMaxAttemptsProtection: false,
      enablePoisonousMessageProtection: false,
      nextMessagesFunctionSchema: task.schema,
      nextMessagesFunctionName: "next_messages",
      nextMessagesBatchSize: batch,
      nextMessagesPollingIntervalInMs: 20,
    };
    const config = {
      outboxOrInbox: "outbox",
      dbListenerConfig: { connectionString: task.store },
      dbHandlerConfig: { connectionString: task.store, max: 24 },
      settings,
    };
    return {
      insert: (count) =>
        pool.query(
          `INSERT INTO ${task.schema}.messages (id, aggregate_type, aggregate_id, message_type, segment, payload, concurrency)
           SELECT gen_random_uuid(), 'Order', key, 'OrderPlaced', key, $2::jsonb, 'sequential'
           FROM (SELECT 'order-' || (random() * 20000)::int AS key FROM generate_series(1, $1::int)) keys`,
          [count, text],
        ),
      start: async () => {
        const [stop] = initializePollingMessageListener(config, { handle: () => publish(1) }, getDisabledLogger(), {
          batchSizeStrategy: async () => batch,
        });
        return stop;
      },
    };
  },

  /** The loop that articles about the pattern show: each event is published and marked by itself. It pauses only when none are left. */
  async loop(task, { pool, publish }) {
    await pool.query(
      `CREATE TABLE ${task.schema}.events (
         id uuid PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL, payload jsonb NOT NULL,
         created_at timestamptz NOT NULL DEFAULT now(), published_at timestamptz)`,
    );
    await pool.query(`CREATE INDEX events_pending ON ${task.schema}.events (created_at) WHERE published_at IS NULL`);
    const pass = async (client) => {
      await client.query("BEGIN");
      const { rows } = await client.query(
        `SELECT id, aggregate_type, aggregate_id, event_type, payload FROM ${task.schema}.events
         WHERE published_at IS NULL ORDER BY created_at LIMIT 100 FOR UPDATE SKIP LOCKED`,
      );
      for (const { id } of rows) {
        await publish(1);
        await client.query(`UPDATE ${task.schema}.events SET published_at = now() WHERE id = $1`, [id]);
      }
      await client.query("COMMIT");
      return rows.length;
    };
    return {
      insert: (count) =>
        pool.query(
          `INSERT INTO ${task.schema}.events (id, aggregate_type, aggregate_id, event_type, payload)
           SELECT gen_random_uuid(), 'Order', 'order-' || (random() * 20000)::int, 'OrderPlaced', $2::jsonb FROM generate_series(1, $1::int)`,
          [count, text],
        ),
      start: async () => {
        let going = true;
        const client = await pool.connect();
        const loop = (async () => {
          while (going) if ((await pass(client)) === 0) await sleep(20);
          client.release();
        })();
        return () => ((going = false), loop);
      },
    };
  },
};

export default async function peer(task) {
  const { pool, position } = await openStore(task);
  await pool.query(`DROP SCHEMA ${task.schema} CASCADE`); // Waybill's tables, which the peer does not need
  await pool.query(`CREATE SCHEMA ${task.schema}`);
  await (await openBroker(task))[Symbol.asyncDispose](); // creates the topic
  const [count, send] = [createCount(), await clients[task.broker](task)];
  const publish = async (some) => {
    await send(some);
    count.add(some);
  };
  const require = task.folder === undefined ? null : createRequire(join(task.folder, "package.json"));
  const { insert, start } = await peers[task.peer](task, { require, pool, publish });
  let stopSeconds = 0;
  /** Measured like the relay: from the start until all is settled. */
  const pass = async (some) => {
    const reached = count.plus(some);
    const stop = await start();
    await reached;
    const from = now();
    await stop();
    stopSeconds = (now() - from) / 1_000;
  };
  const warm = Math.ceil(task.events / 10);
  await insert(warm);
  await pass(warm);
  await insert(task.events);
  const taken = await measured(task, () => pass(task.events), { position });
  return { ...taken, stopSeconds };
}
