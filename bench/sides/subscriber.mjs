// Events that are already in the broker go through an inbox, with one insert of the service's own for each. `task.way` says how.
import pg from "pg";
import { openBroker, topicOf } from "./brokers.mjs";
import { createCount, measured, refuse } from "./measure.mjs";
import { from } from "./package.mjs";
import { relayOf, storedOf } from "./relay.mjs";
import { databaseOf, openStore, workTable } from "./stores.mjs";

/** The defaults of a subscriber: concurrent handlers, and prefetched messages. */
const [concurrency, prefetch] = [16, 256];

async function subscribing(task, { store, broker, handled, unworried = false }, options) {
  const { createSubscriber } = await from(task.root, "index.js");
  const observe = (event) => {
    if (event.type === "subscriber.handled") handled();
    else if (!unworried || event.type !== "subscriber.trouble") refuse(event);
  };
  const service = createSubscriber({ consumer: "bench", source: broker, inbox: store, topics: [topicOf(task)], observe, ...options });
  return () => service.start();
}

/** The work of one event, and of several, in a transaction that a handler is given. */
const works = {
  postgres: (work) => ({
    one: (tx, id) => tx.query(`INSERT INTO ${work} VALUES ($1, 'handled')`, [id]),
    many: (tx, ids) => tx.query(`INSERT INTO ${work} SELECT id, 'handled' FROM unnest($1::text[]) AS id`, [ids]),
  }),
  mariadb: (work) => ({
    one: (tx, id) => tx.query(`INSERT INTO ${work} VALUES (?, 'handled')`, [id]),
    many: (tx, ids) => tx.query(`INSERT INTO ${work} VALUES ?`, [ids.map((id) => [id, "handled"])]),
  }),
  sqlite: (work) => ({
    one: (tx, id) => tx.prepare(`INSERT INTO ${work} VALUES (?, 'handled')`).run(id),
    many: (tx, ids) => tx.prepare(`INSERT INTO ${work} VALUES ${ids.map(() => "(?, 'handled')").join()}`).run(...ids),
  }),
};

const ways = {
  subscriber: (task, parts) => subscribing(task, parts, { handlers: { OrderPlaced: (event, tx) => parts.work.one(tx, event.id) } }),

  /** As many events as possible share a transaction, and one statement does their work. */
  batched: (task, parts) =>
    subscribing(task, parts, {
      batch: 100,
      concurrency: 4,
      batchHandlers: {
        OrderPlaced: (events, tx) =>
          parts.work.many(
            tx,
            events.map(({ id }) => id),
          ),
      },
    }),

  /** Each event updates one of ten rows, as counters and stocks are updated. `task.batch` events may share a transaction. */
  async sharedRows(task, parts) {
    const shared = parts.named("shared");
    await parts.run(`CREATE TABLE ${shared} (id integer PRIMARY KEY, events integer NOT NULL)`);
    await parts.run(`INSERT INTO ${shared} SELECT n, 0 FROM generate_series(0, 9) AS n`);
    const OrderPlaced = (event, tx) =>
      tx.query(`UPDATE ${shared} SET events = events + 1 WHERE id = $1`, [Number.parseInt(event.id.slice(-6), 16) % 10]);
    return subscribing(task, { ...parts, unworried: true }, { batch: task.batch, handlers: { OrderPlaced } });
  },

  /** A transaction for each message, with its mark and its work. */
  async byHand(task, parts) {
    return consume(task, parts, await byHand[databaseOf(task)](task, parts));
  },

  /** The mark and the work in one statement, which is possible only when the work is one statement itself. */
  async oneStatement(task, parts) {
    const statement = `WITH mark AS (INSERT INTO ${task.schema}.mark VALUES ($1) ON CONFLICT DO NOTHING RETURNING id)
      INSERT INTO ${task.schema}.work SELECT id, 'handled' FROM mark`;
    const pool = new pg.Pool({ connectionString: task.store, max: concurrency });
    return consume(task, parts, (id) => pool.query(statement, [id]));
  },
};

/** Each applies the event with an id once, as people write it by hand. */
const byHand = {
  async postgres(task, { named, work }) {
    const pool = new pg.Pool({ connectionString: task.store, max: concurrency });
    return async (id) => {
      const client = await pool.connect();
      await client.query("BEGIN");
      const { rowCount } = await client.query(`INSERT INTO ${named("mark")} VALUES ($1) ON CONFLICT DO NOTHING`, [id]);
      if (rowCount === 1) await work.one(client, id);
      await client.query("COMMIT");
      client.release();
    };
  },

  async mariadb(_, { url, named, work }) {
    const { createPool } = await import("mysql2/promise");
    const pool = createPool({ uri: url, connectionLimit: concurrency });
    return async (id) => {
      const connection = await pool.getConnection();
      await connection.beginTransaction();
      const [{ affectedRows }] = await connection.query(`INSERT IGNORE INTO ${named("mark")} (id) VALUES (?)`, [id]);
      if (affectedRows === 1) await work.one(connection, id);
      await connection.commit();
      connection.release();
    };
  },

  async sqlite(_, { file, named, work }) {
    const mark = file.prepare(`INSERT OR IGNORE INTO ${named("mark")} (id) VALUES (?)`);
    return async (id) => {
      file.exec("BEGIN IMMEDIATE");
      if (Number(mark.run(id).changes) === 1) work.one(file, id);
      file.exec("COMMIT");
    };
  },
};

/** A JetStream consumer as people write it by hand, with as many messages in flight as a subscriber has. */
async function consume(task, { handled }, apply) {
  const [{ connect }, { jetstream, jetstreamManager, AckPolicy }] = [
    await import("@nats-io/transport-node"),
    await import("@nats-io/jetstream"),
  ];
  const nc = await connect({ servers: task.brokerUrl });
  const manager = await jetstreamManager(nc);
  const stream = await manager.streams.find(topicOf(task));
  const settings = { durable_name: "by-hand", filter_subject: topicOf(task), ack_policy: AckPolicy.Explicit, max_ack_pending: prefetch };
  await manager.consumers.add(stream, settings);
  const consumer = await jetstream(nc).consumers.get(stream, "by-hand");
  return async () => {
    const source = await consumer.consume({ max_messages: prefetch });
    const messages = source[Symbol.asyncIterator]();
    const worker = async () => {
      for (let next = await messages.next(); next.done !== true; next = await messages.next()) {
        await apply(next.value.headers.get("ce-id"));
        next.value.ack();
        handled();
      }
    };
    for (let i = 0; i < concurrency; i++) void worker();
  };
}

export default async function subscriber(task) {
  const opened = await openStore(task);
  const { store, insert, position, named, run } = opened;
  await workTable(task, opened);
  const id = databaseOf(task) === "mariadb" ? "char(36)" : "text";
  const at = databaseOf(task) === "postgres" ? "timestamptz" : "timestamp";
  await run(`CREATE TABLE ${named("mark")} (id ${id} PRIMARY KEY, at ${at} NOT NULL DEFAULT CURRENT_TIMESTAMP)`);
  const broker = await openBroker(task);
  const { warm = Math.ceil(task.events / 10) } = task;
  const stored = createCount();
  const relay = await relayOf(task, store, broker, (_, results) => stored.add(storedOf(results)));
  const published = stored.plus(warm + task.events);
  await insert(warm + task.events);
  await relay.start();
  await published;
  await relay.drain();
  const count = createCount();
  const start = await ways[task.way](task, {
    ...opened,
    broker,
    work: works[databaseOf(task)](named("work")),
    handled: () => count.add(1),
  });
  const first = count.plus(warm);
  await start();
  await first;
  const all = count.plus(task.events);
  return measured(task, () => all, { position });
}
