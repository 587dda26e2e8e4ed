// Writers in their own process: `task.rate` events per second, however long a transaction takes.
// They record when each commit had returned.
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { now } from "./measure.mjs";
import { from } from "./package.mjs";
import { hotAggregate } from "./stores.mjs";

const task = JSON.parse(process.argv[2]);
const { createOutbox } = await from(task.root, "index.js");
const { postgres } = await from(task.root, "stores/postgres/index.js");
const pool = new pg.Pool({ connectionString: task.store, max: 10 });
const store = postgres({ url: task.store, schema: task.schema, listen: task.listen ?? false });
const outbox = createOutbox({ store });
const payload = { text: "x".repeat(289) };
const { rate, perCommit = 1, hot = 0 } = task;
const committed = [];
let [made, open, going] = [0, 0, true];

async function write() {
  open += 1;
  const client = await pool.connect();
  await client.query("BEGIN");
  const drafts = Array.from({ length: perCommit }, () => {
    const aggregateId = Math.random() < hot ? hotAggregate : `order-${Math.floor(Math.random() * 20_000)}`;
    return { aggregateType: task.schema, aggregateId, type: "OrderPlaced", payload };
  });
  const added = await outbox.add(client, drafts);
  await client.query("COMMIT");
  const at = now();
  client.release();
  added.forEach(({ id }, nth) => committed.push([id, at, drafts[nth].aggregateId]));
  open -= 1;
}

process.once("disconnect", () => process.exit(0)); // the worker that started it has ended
process.once("message", async () => {
  going = false;
  while (open > 0) await sleep(1);
  process.send(committed, () => process.exit(0));
});

const began = now();
while (going) {
  const due = Math.floor(((now() - began) / 1_000) * rate) - made;
  // At most a second's worth of events is open: a machine that cannot keep up shows a lower rate, not an endless queue.
  for (let left = due; left >= perCommit && open * perCommit < rate; left -= perCommit) {
    made += perCommit;
    void write();
  }
  await sleep(1);
}
