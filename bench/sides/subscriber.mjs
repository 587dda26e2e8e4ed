// What is in the broker already goes through an inbox, with one insert of the service's own for each event; `task.way` says how.
import pg from "pg";
import { openBroker, topicOf } from "./brokers.mjs";
import { createCount, measured, refuse } from "./measure.mjs";
import { from } from "./package.mjs";
import { relayOf, storedOf } from "./relay.mjs";
import { openStore } from "./stores.mjs";

/** As many as a subscriber has by default: handlers side by side, and messages that it has asked for. */
const [concurrency, prefetch] = [16, 256];

async function subscribing(task, { store, broker, handled }, options) {
  const { createSubscriber } = await from(task.root, "index.js");
  const observe = (event) => (event.type === "subscriber.handled" ? handled() : refuse(event));
  const service = createSubscriber({ consumer: "bench", source: broker, inbox: store, topics: [topicOf(task)], observe, ...options });
  return () => service.start();
}

const ways = {
  subscriber: (task, parts) =>
    subscribing(task, parts, {
      handlers: { OrderPlaced: (event, tx) => tx.query(`INSERT INTO ${task.schema}.work VALUES ($1, 'handled')`, [event.id]) },
    }),

  /** As many events share a transaction as may, and one statement does their work. */
  batched: (task, parts) =>
    subscribing(task, parts, {
      batch: 100,
      concurrency: 4,
      batchHandlers: {
        OrderPlaced: (events, tx) =>
          tx.query(`INSERT INTO ${task.schema}.work SELECT id, 'handled' FROM unnest($1::text[]) AS id`, [events.map(({ id }) => id)]),
      },
    }),

  /** A transaction of four statements for each message. */
  async byHand(task, parts) {
    return consume(task, parts, async (client, id) => {
      await client.query("BEGIN");
      const { rowCount } = await client.query(`INSERT INTO ${task.schema}.mark VALUES ($1) ON CONFLICT DO NOTHING`, [id]);
      if (rowCount === 1) await client.query(`INSERT INTO ${task.schema}.work VALUES ($1, 'handled')`, [id]);
      await client.query("COMMIT");
    });
  },

  /** The mark and the work in one statement, which is possible only when the work is one statement itself. */
  async oneStatement(task, parts) {
    const statement = `WITH mark AS (INSERT INTO ${task.schema}.mark VALUES ($1) ON CONFLICT DO NOTHING RETURNING id)
      INSERT INTO ${task.schema}.work SELECT id, 'handled' FROM mark`;
    return consume(task, parts, (client, id) => client.query(statement, [id]));
  },
};

/** A consumer of JetStream as people write it, with as many messages in flight. */
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
  const pool = new pg.Pool({ connectionString: task.store, max: concurrency });
  return async () => {
    const source = await consumer.consume({ max_messages: prefetch });
    const messages = source[Symbol.asyncIterator]();
    const worker = async () => {
      for (let next = await messages.next(); next.done !== true; next = await messages.next()) {
        const client = await pool.connect();
        await apply(client, next.value.headers.get("ce-id"));
        client.release();
        next.value.ack();
        handled();
      }
    };
    for (let i = 0; i < concurrency; i++) void worker();
  };
}

export default async function subscriber(task) {
  const { store, pool, insert, position } = await openStore(task);
  await pool.query(`CREATE TABLE ${task.schema}.work (id text PRIMARY KEY, body text NOT NULL)`);
  await pool.query(`CREATE TABLE ${task.schema}.mark (id text PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())`);
  const broker = await openBroker(task);
  const warm = Math.ceil(task.events / 10);
  const stored = createCount();
  const relay = await relayOf(task, store, broker, (_, results) => stored.add(storedOf(results)));
  const published = stored.plus(warm + task.events);
  await insert(warm + task.events);
  await relay.start();
  await published;
  await relay.drain();
  const count = createCount();
  const start = await ways[task.way](task, { store, broker, handled: () => count.add(1) });
  const first = count.plus(warm);
  await start();
  await first;
  const all = count.plus(task.events);
  return measured(task, () => all, { position });
}
