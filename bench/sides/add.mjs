// Transactions of ten writers. Each inserts one row of the service's own, and adds events in the way that `task.way` names.
import { randomUUID } from "node:crypto";
import { libraries } from "./libraries.mjs";
import { measured } from "./measure.mjs";
import { from } from "./package.mjs";
import { databaseOf, openStore, workTable } from "./stores.mjs";

const writers = 10;
const payload = { text: "x".repeat(289) };
const clients = { postgres: "pg", mariadb: "mysql2", sqlite: "sqlite" };
const pending = "(created_at) WHERE status = 'PENDING'";
const plainTypes = {
  postgres: { id: "uuid", name: "text", json: "jsonb", time: "timestamptz NOT NULL DEFAULT now()", index: pending },
  mariadb: {
    ...{ id: "char(36)", name: "varchar(100)", json: "json" },
    ...{ time: "datetime(6) NOT NULL DEFAULT now(6)", index: "(status, created_at)" },
  },
  sqlite: { id: "text", name: "text", json: "text", time: "text NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))", index: pending },
};

/** Each resolves to a function of the transaction and the ids of its events. */
const ways = {
  /** What the transaction costs without events. */
  async none() {
    return () => undefined;
  },

  /** A table and a statement of the usual kind. */
  async plain(task, { named, run, byHand }) {
    const types = plainTypes[databaseOf(task)];
    await run(
      `CREATE TABLE ${named("plain")} (
         id ${types.id} PRIMARY KEY, aggregate_type ${types.name} NOT NULL, aggregate_id ${types.name} NOT NULL,
         event_type ${types.name} NOT NULL, payload ${types.json} NOT NULL, headers ${types.json} NOT NULL,
         status ${types.name} NOT NULL DEFAULT 'PENDING', created_at ${types.time})`,
    );
    await run(`CREATE INDEX plain_pending ON ${named("plain")} ${types.index}`);
    const into = `INSERT INTO ${named("plain")} (id, aggregate_type, aggregate_id, event_type, payload, headers) VALUES `;
    return (tx, ids) =>
      byHand(
        tx,
        into + tuples(ids, 6),
        ids.flatMap((id) => [randomUUID(), "Order", id, "OrderPlaced", JSON.stringify(payload), "{}"]),
      );
  },

  /** Our table, without our checks. */
  async byHand(_, { named, byHand }) {
    const into = `INSERT INTO ${named("outbox")} (aggregate_type, aggregate_id, event_type, payload) VALUES `;
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
    const outbox = createOutbox(handle === null ? { store } : { store, tx });
    const draft = (id) => ({ aggregateType: "Order", aggregateId: id, type: "OrderPlaced", payload });
    return (tx, ids) => outbox.add(tx, ids.length === 1 ? draft(ids[0]) : ids.map(draft));
  },
};

export default async function add(task) {
  const { way, library = clients[databaseOf(task)], perCommit = 1, listen = false } = task;
  const opened = await openStore(task, { listen });
  const { named, url = task.store, file } = opened;
  await workTable(task, opened);
  const { handle, transaction, work, byHand } = await libraries[library]({ url, file, max: writers, table: named("work") });
  const events = await ways[way](task, { ...opened, handle, byHand });
  let made = 0;
  /** A synchronous client, which needs no handle, has done its work when it returns. */
  const inside =
    handle === null
      ? (tx, ids) => void (work(tx, ids[0]), events(tx, ids))
      : async (tx, ids) => void (await work(tx, ids[0]), await events(tx, ids));
  const write = async (count) => {
    const end = made + count;
    const writer = async () => {
      while (made < end) {
        const ids = Array.from({ length: perCommit }, () => `order-${made++}`);
        await transaction((tx) => inside(tx, ids));
      }
    };
    await Promise.all(Array.from({ length: writers }, writer));
  };
  await write(Math.ceil(task.events / 10));
  return measured(task, () => write(task.events), { position: opened.position });
}

const tuples = (ids, columns) => ids.map(() => `(${new Array(columns).fill("?")})`).join();
