// A subscriber in its own process, which records when each event's effect was committed.
import { setTimeout as sleep } from "node:timers/promises";
import { openBroker, topicOf } from "./brokers.mjs";
import { now, refuse } from "./measure.mjs";
import { from } from "./package.mjs";

const task = JSON.parse(process.argv[2]);
const { createSubscriber } = await from(task.root, "index.js");
const { postgres } = await from(task.root, "stores/postgres/index.js");
const applied = [];
const insert = `INSERT INTO ${task.schema}.work SELECT id, 'handled' FROM unnest($1::text[]) AS id`;
const many = (events, tx) => tx.query(insert, [events.map(({ id }) => id)]);
const one = (event, tx) => tx.query(`INSERT INTO ${task.schema}.work VALUES ($1, 'handled')`, [event.id]);
const subscriber = createSubscriber({
  consumer: "bench",
  source: await openBroker(task),
  inbox: postgres({ url: task.store, schema: task.schema }),
  topics: [topicOf(task)],
  observe: (event) => (event.type === "subscriber.handled" ? applied.push([event.id, now()]) : refuse(event)),
  ...(task.batched === true ? { batch: 100, concurrency: 4, batchHandlers: { OrderPlaced: many } } : { handlers: { OrderPlaced: one } }),
});
await subscriber.start();
process.send("started");
process.once("disconnect", () => process.exit(0)); // the worker that started it has ended
process.once("message", async (expected) => {
  const missing = new Set(expected);
  for (const end = now() + 20_000; now() < end && missing.size > 0; await sleep(20)) for (const [id] of applied) missing.delete(id);
  process.send(applied, () => process.exit(0));
});
