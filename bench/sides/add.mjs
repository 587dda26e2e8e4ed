// Transactions of ten writers, each with a row of the service's own, and with events the way that `task.way` names.
import { randomUUID } from "node:crypto";
import { libraries } from "./libraries.mjs";
import { measured } from "./measure.mjs";
import { from } from "./package.mjs";
import { openStore } from "./stores.mjs";

const writers = 10;
const payload = { text: "x".repeat(289) };

/** Each takes the transaction and the ids of its events. */
const ways = {
  /** What the transaction costs without events. */
  async none() {
    return () => undefined;
  },

  /** A table and a statement of the usual kind. */
  async plain({ schema }, { pool, byHand }) {
    await pool.query(
      `CREATE TABLE ${schema}.plain (
         id uuid PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL,
         payload jsonb NOT NULL, headers jsonb NOT NULL, status text NOT NULL DEFAULT 'PENDING', created_at timestamptz NOT NULL DEFAULT now());
       CREATE INDEX ON ${schema}.plain (created_at) WHERE status = 'PENDING'`,
    );
    const into = `INSERT INTO ${schema}.plain (id, aggregate_type, aggregate_id, event_type, payload, headers) VALUES `;
    return (tx, ids) =>
      byHand(
        tx,
        into + tuples(ids, 6),
        ids.flatMap((id) => [randomUUID(), "Order", id, "OrderPlaced", JSON.stringify(payload), "{}"]),
      );
  },

  /** Our table, without our checks. */
  async byHand({ schema }, { byHand }) {
    const into = `INSERT INTO ${schema}.outbox (aggregate_type, aggregate_id, event_type, payload) VALUES `;
    return (tx, ids) =>
      byHand(
        tx,
        into + tuples(ids, 4),
        ids.flatMap((id) => ["Order", id, "OrderPlaced", JSON.stringify(payload)]),
      );
  },

  async outbox({ root }, { store, handle }) {
    const { createOutbox } = await from(root, "index.js");
    const { [handle]: tx } = await from(root, "outbox/handles/index.js");
    const outbox = createOutbox({ store, tx });
    const draft = (id) => ({ aggregateType: "Order", aggregateId: id, type: "OrderPlaced", payload });
    return (tx, ids) => outbox.add(tx, ids.length === 1 ? draft(ids[0]) : ids.map(draft));
  },
};

export default async function add(task) {
  const { way, library = "pg", perCommit = 1, listen = false } = task;
  const opened = await openStore(task, { listen });
  const table = `${task.schema}.work`;
  await opened.pool.query(`CREATE TABLE ${table} (id text PRIMARY KEY, body text NOT NULL)`);
  const { handle, transaction, work, byHand } = await libraries[library](task.store, writers, table);
  const events = await ways[way](task, { ...opened, handle, byHand });
  let made = 0;
  const write = async (count) => {
    const end = made + count;
    const writer = async () => {
      while (made < end) {
        const ids = Array.from({ length: perCommit }, () => `order-${made++}`);
        await transaction(async (tx) => {
          await work(tx, ids[0]);
          await events(tx, ids);
        });
      }
    };
    await Promise.all(Array.from({ length: writers }, writer));
  };
  await write(Math.ceil(task.events / 10));
  return measured(task, () => write(task.events), { position: opened.position });
}

const tuples = (ids, columns) => ids.map((_, row) => `(${Array.from({ length: columns }, (__, i) => `$${row * columns + i + 1}`)})`).join();
