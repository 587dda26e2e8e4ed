import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { seededRandom } from "../../../dist/core/random.js";
import { createOutbox } from "../../../dist/index.js";
import { defaultDriver } from "../../../dist/drivers/sqlite/driver.js";
import { sqlite } from "../../../dist/stores/sqlite/index.js";
import { config, heard, tell } from "./child.mjs";

const { transactions = Infinity, pauseMs = 0, most = 1, rollBack = 0.1 } = config;
const random = seededRandom(config.seed);
const store = sqlite({ path: config.store });
const outbox = createOutbox({ store });
const db = (await defaultDriver())(config.store);
db.exec("PRAGMA busy_timeout = 20000");

/** Eight of ten transactions go to a hot aggregate. */
function pick() {
  const among = random.next() < 0.8 ? config.hot : config.cold;
  return among[Math.floor(random.next() * among.length)];
}

/** Counter, ledger and drafts of one transaction; nothing of it must ever be seen when it is doomed. */
function work(tx, { aggregateType, aggregateId }, events, doomed) {
  return Array.from({ length: events }, () => {
    const [{ v }] = tx
      .prepare("UPDATE counters SET v = v + 1 WHERE aggregate_type = ? AND aggregate_id = ? RETURNING v")
      .all(aggregateType, aggregateId);
    const id = randomUUID();
    tx.prepare("INSERT INTO written (id, aggregate_type, aggregate_id, n) VALUES (?, ?, ?, ?)").run(id, aggregateType, aggregateId, v);
    return { id, aggregateType, aggregateId, type: "Counted", payload: doomed ? { n: v, doomed } : { n: v } };
  });
}

const rolledBack = new Error("rolled back");

/** Through the library's transaction and through one of our own, in turn: both are what users do. */
async function transact(nth, aggregate, events, doomed) {
  if (nth % 2 === 0) {
    const done = outbox.transaction(db, (tx, buffer) => {
      buffer.add(work(tx, aggregate, events, doomed));
      if (doomed) throw rolledBack;
    });
    return done.catch((error) => {
      if (error !== rolledBack) throw error;
    });
  }
  db.exec("BEGIN IMMEDIATE");
  await outbox.add(db, work(db, aggregate, events, doomed));
  db.exec(doomed ? "ROLLBACK" : "COMMIT");
}

let doomedCount = 0;
let nth = 0;
tell({ type: "ready" });
for (; nth < transactions && !heard("stop"); nth++) {
  const doomed = random.next() < rollBack;
  if (doomed) doomedCount++;
  await transact(nth, pick(), 1 + Math.floor(random.next() * most), doomed);
  await sleep(pauseMs * (0.5 + random.next()));
}
tell({ type: "wrote", transactions: nth, doomed: doomedCount });
db.close();
await store[Symbol.asyncDispose]();
process.exit(0);
