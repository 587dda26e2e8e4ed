// Trouble beside the events of a round: a transaction that stays open, and events that are blocked.
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
