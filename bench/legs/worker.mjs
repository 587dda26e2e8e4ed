// One round of one leg in a process of its own, on the built package of any checkout: `node worker.mjs '{"root": …}'`.
// It prints what the round took as one line of JSON.
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import { pathToFileURL } from "node:url";
import pg from "pg";
import { ownCpu, serverCpu } from "./cpu.mjs";

const task = JSON.parse(process.argv[2]);
const from = (file) => import(pathToFileURL(join(task.root, "dist", file)).href);
const { createOutbox, createRelay, createSubscriber } = await from("index.js");
const { postgres } = await from("stores/postgres/index.js");

const pool = new pg.Pool({ connectionString: task.store, max: writers() });
pool.on("error", () => undefined);
const store = postgres({ url: task.store, schema: task.schema });
await store.schema.migrate();
await pool.query(`CREATE TABLE ${task.schema}.work (id text PRIMARY KEY, body text NOT NULL)`);

const legs = { add, byHand, drain, subscriber };
const taken = await legs[task.leg]();
await store[Symbol.asyncDispose]();
await pool.query(`DROP SCHEMA ${task.schema} CASCADE`);
await pool.end();
process.stdout.write(`${JSON.stringify(taken)}\n`);
process.exit(0);

/** A tenth of the events goes before the clock starts, so that what is measured is compiled and cached. */
async function measured(some, all) {
  await some(Math.ceil(task.events / 10));
  const before = { at: performance.now(), own: ownCpu(), server: serverCpu(task.server) };
  await all(task.events);
  return {
    perSecond: (task.events / (performance.now() - before.at)) * 1_000,
    ownMicros: (ownCpu() - before.own) / task.events,
    serverMicros: (serverCpu(task.server) - before.server) / task.events,
  };
}

function writers() {
  return task.leg === "add" || task.leg === "byHand" ? 10 : 2;
}

/** Transactions of ten writers, each with a row of the service's own and an event. */
async function transactions(event) {
  let made = 0;
  const write = async (count) => {
    const end = made + count;
    const writer = async () => {
      while (made < end) {
        const id = `order-${made++}`;
        const client = await pool.connect();
        await client.query("BEGIN");
        await client.query(`INSERT INTO ${task.schema}.work VALUES ($1, 'placed')`, [id]);
        await event(client, id);
        await client.query("COMMIT");
        client.release();
      }
    };
    await Promise.all(Array.from({ length: writers() }, writer));
  };
  return measured(write, write);
}

function add() {
  const outbox = createOutbox({ store });
  return transactions((tx, id) =>
    outbox.add(tx, { aggregateType: "Order", aggregateId: id, type: "OrderPlaced", payload: { text: "x".repeat(290) } }),
  );
}

/** The same row in one statement of the service's own, without any of our checks. */
function byHand() {
  const statement = `INSERT INTO ${task.schema}.outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', $1, 'OrderPlaced', $2)`;
  return transactions((tx, id) => tx.query(statement, [id, JSON.stringify({ text: "x".repeat(290) })]));
}

async function openBroker() {
  const { [task.broker]: open } = await from(`brokers/${task.broker}/index.js`);
  const broker = open({ url: task.brokerUrl });
  await broker.provision([`${task.schema}.events`], ["bench"]);
  return broker;
}

function insert(count) {
  return pool.query(
    `INSERT INTO ${task.schema}.outbox (aggregate_type, aggregate_id, event_type, payload)
     SELECT '${task.schema}', 'order-' || (random() * 20000)::int, 'OrderPlaced', '{"text":"' || repeat('x', 289) || '"}' FROM generate_series(1, $1::int)`,
    [count],
  );
}

/** Something that counts, and tells when it has come to a number. */
function createCount() {
  let [count, goal, reached] = [0, Infinity, () => undefined];
  return {
    add(some) {
      count += some;
      if (count >= goal) reached();
    },
    plus(some) {
      return new Promise((resolve) => {
        [goal, reached] = [goal === Infinity ? some : goal + some, resolve];
        if (count >= goal) resolve();
      });
    },
  };
}

/** A round in which an event fails measures nothing. */
function refuse(event) {
  if (!("error" in event)) return;
  process.stderr.write(`${event.type}: ${event.error}\n`);
  process.exit(1);
}

function relayTo(broker, stored) {
  const publish = async (batch, signal) => {
    const results = await broker.publish(batch, signal);
    stored.add(results.filter(({ status }) => status === "stored").length);
    return results;
  };
  return createRelay({ store, sink: { ...broker, publish }, observe: refuse });
}

/** From the moment the events are in the table to the last acknowledgement. */
async function drain() {
  const broker = await openBroker();
  const stored = createCount();
  const relay = relayTo(broker, stored);
  await relay.start();
  let all;
  const taken = await measured(
    async (some) => {
      const first = stored.plus(some);
      await insert(some);
      await first;
      all = stored.plus(task.events);
      await insert(task.events);
    },
    () => all,
  );
  await relay.drain();
  await broker[Symbol.asyncDispose]();
  return taken;
}

/** What is in the broker already goes through the inbox, with one insert of the service's own for each event. */
async function subscriber() {
  const broker = await openBroker();
  const [stored, handled] = [createCount(), createCount()];
  const service = createSubscriber({
    consumer: "bench",
    source: broker,
    inbox: store,
    topics: [`${task.schema}.events`],
    observe: refuse,
    handlers: {
      OrderPlaced: async (event, tx) => {
        await tx.query(`INSERT INTO ${task.schema}.work VALUES ($1, 'handled')`, [event.id]);
        handled.add(1);
      },
    },
  });
  let all;
  const taken = await measured(
    async (some) => {
      const published = stored.plus(some + task.events);
      const relay = relayTo(broker, stored);
      await relay.start();
      await insert(some + task.events);
      await published;
      await relay.drain();
      const first = handled.plus(some);
      await service.start();
      await first;
      all = handled.plus(task.events);
    },
    () => all,
  );
  await service.drain();
  await broker[Symbol.asyncDispose]();
  return taken;
}
