// Trouble beside the events of a round: a transaction that stays open, events that are blocked, and what a writer may add.
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

const mebibyte = 2 ** 20;
/** Columns of the rows that a writer may add, beside those that they all have. `i` is a row's number. */
const kinds = {
  topics: { aggregate_type: "'Invented' || i" },
  headers: { headers: "json_build_object('h', repeat('x', 16000))" },
  // The relay parks an event with such a header, and its aggregate waits for an operator.
  refused: { headers: `'{"Nats-Msg-Id":"x"}'` },
  delayed: { available_at: "clock_timestamp() + interval '4 seconds'" },
  payloads: { payload: `repeat('x', ${2 * mebibyte})` },
};

/** One statement of a writer who may only insert: `task.invented` rows of the kind `task.kind`. The topics do not exist. */
export async function invent(task, { run, dealtWith = false }) {
  const table = `${task.schema}.outbox`;
  const columns = { aggregate_type: `'${task.schema}'`, aggregate_id: "'hostile-' || i", event_type: "'Placed'", payload: "'{}'" };
  Object.assign(columns, kinds[task.kind ?? "topics"]);
  await run(
    `INSERT INTO ${table} (${Object.keys(columns).join(", ")}) SELECT ${Object.values(columns).join(", ")} FROM generate_series(1, ${task.invented}) i`,
  );
  const pending = async () => (await run(`SELECT 1 FROM ${table} WHERE status = 'PENDING' LIMIT 1`)).rows.length > 0;
  while (dealtWith && (await pending())) await sleep(100);
}
