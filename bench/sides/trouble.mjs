// Trouble beside the events of a round: a transaction that stays open, events that are blocked, and events of invented types.
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { from } from "./package.mjs";

/** Each blocked aggregate has one dead event, and this many events behind it. */
const behindEach = 1_000;

/** Keeps a reader open in the database of the round. Rows that die from now on cannot be vacuumed. */
export async function holdHorizon(task) {
  const client = new pg.Client({ connectionString: task.store });
  client.on("error", () => undefined);
  await client.connect();
  await client.query("BEGIN ISOLATION LEVEL REPEATABLE READ");
  await client.query("SELECT 1");
  return () => client.end();
}

/** A relay whose sink refuses everything blocks `count` events. */
export async function block(task, { store, sink, run }, count) {
  const aggregates = Math.ceil(count / behindEach);
  await run(
    `INSERT INTO ${task.schema}.outbox (aggregate_type, aggregate_id, event_type, payload)
     SELECT '${task.schema}', 'blocked-' || i % ${aggregates}, 'OrderPlaced', '{}' FROM generate_series(1, ${count + aggregates}) i`,
  );
  const { createRelay } = await from(task.root, "index.js");
  const result = { status: "refused", blame: "event", retryable: false, error: new Error("refused, to block what follows") };
  const relay = createRelay({ store, sink: { ...sink, publish: async (batch) => batch.map(() => result) }, observe: false });
  await relay.start();
  while ((await store.operator.status()).states.BLOCKED < count) await sleep(100);
  await relay.drain();
}

/** One statement of a writer who may only insert: `task.invented` events, each of a type, and so of a topic, that does not exist. */
export async function invent(task, { run, dealtWith = false }) {
  const table = `${task.schema}.outbox`;
  await run(
    `INSERT INTO ${table} (aggregate_type, aggregate_id, event_type, payload, headers)
     SELECT 'Invented' || i, 'a', 'Placed', '{}', ${task.headerBytes > 0 ? `json_build_object('h', repeat('x', ${task.headerBytes}))` : "'{}'"}
     FROM generate_series(1, ${task.invented}) i`,
  );
  const pending = async () => (await run(`SELECT 1 FROM ${table} WHERE status = 'PENDING' LIMIT 1`)).rows.length > 0;
  while (dealtWith && (await pending())) await sleep(100);
}
