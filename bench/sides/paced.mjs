// A relay, or Debezium, beside writers at a steady rate: the cost of an event, and its latency to the broker and to its effect.
import { fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { openBroker } from "./brokers.mjs";
import { startDebezium } from "./connect.mjs";
import { measured, now, percentile } from "./measure.mjs";
import { relayOf } from "./relay.mjs";
import { hotAggregate, openStore } from "./stores.mjs";
import { createTopic } from "./topic.mjs";
import { invent } from "./trouble.mjs";

const child = (file, task) => fork(fileURLToPath(new URL(file, import.meta.url)), [JSON.stringify(task)]);

/** Ends a child and returns what it recorded. A reader waits for the expected events first. */
async function told(process, expected = []) {
  process.send(expected);
  const [list] = await once(process, "message");
  return list;
}

/**
 * With `relays: 0` there are only the writers, or Debezium instead of the relay. `subscriber` also measures the latency to the effect,
 * `consumer` the latency to a consumer that only reads. `warm` events go first. `cold` also measures other aggregates than the hot one by
 * themselves. The hot one has the share `task.hot` of all events, or a `backlog`. `invented` hostile rows of a `kind` come in one
 * statement: when the measuring begins, or with `already` before it, until the relay has dealt with them.
 */
export default async function paced(task) {
  const { listen = false, pollIntervalMs = 100, relays = 1, subscriber = false, warm = 0, warmSeconds = 2, seconds } = task;
  const { store, pool, insert, settle, position } = await openStore(task.backlog > 0 ? { ...task, hot: 1 } : task, { listen });
  await pool.query(`CREATE TABLE ${task.schema}.work (id text PRIMARY KEY, body text NOT NULL)`);
  const broker = await openBroker(task);
  const acked = new Map();
  const remember = (batch, results) => {
    const at = now();
    results.forEach(({ status }, i) => status === "stored" && acked.set(batch[i].envelope.id, at));
  };
  const relay =
    relays === 0
      ? null
      : await relayOf(task, store, broker, remember, { pollIntervalMs, ...(task.invented > 0 ? { observe: false } : {}) });
  await relay?.start();
  const debezium = task.debezium === true ? await startDebezium(task, pool) : null;
  if (warm > 0) {
    await insert(warm);
    await createTopic(task).reach(warm);
    await settle();
  }
  if (task.already === true) await invent(task, { run: (sql) => pool.query(sql), dealtWith: true });
  const reader = subscriber ? child("./effects.mjs", task) : task.consumer === true ? child("./arrivals.mjs", task) : null;
  if (reader !== null) await once(reader, "message");
  const load = child("./load.mjs", task);
  await sleep(warmSeconds * 1_000);
  if (task.backlog > 0) await insert(task.backlog);
  const begun = now();
  if (task.invented > 0 && task.already !== true) await invent(task, { run: (sql) => pool.query(sql) });
  let until = 0;
  const costs = debezium === null ? {} : { helpers: [debezium.pid], apart: true };
  const taken = await measured(task, async () => void (await sleep(seconds * 1_000), (until = now())), { position, events: 1, ...costs });
  const committed = (await told(load)).filter(([, at]) => at >= begun && at < until);
  if (relay !== null) await within(10, () => committed.every(([id]) => acked.has(id)));
  const ids = committed.map(([id]) => id);
  const seen = reader === null ? [] : await told(reader, ids);
  await debezium?.stop();
  const count = committed.length;
  return {
    ...perEvent(taken, count),
    ...waits("ack", committed, acked),
    ...(task.cold === true ? await besideHot(task, pool, committed, acked) : {}),
    ...waits(subscriber ? "effect" : "arrival", committed, seen),
  };
}

/** Aggregates other than the hot one. Those of its lane wait with it, those of other lanes must not. */
async function besideHot(task, pool, committed, acked) {
  const inItsLane = `SELECT DISTINCT aggregate_id FROM ${task.schema}.outbox WHERE lane = ${task.schema}.waybill_lane(aggregate_type, $1)`;
  const { rows } = await pool.query(inItsLane, [hotAggregate]);
  const mates = new Set(rows.map(({ aggregate_id: aggregate }) => aggregate));
  const others = committed.filter(([, , aggregate]) => aggregate !== hotAggregate);
  const [ofItsLane, ofOtherLanes] = [true, false].map((mate) => others.filter(([, , aggregate]) => mates.has(aggregate) === mate));
  return { ...waits("cold", ofOtherLanes, acked), ...waits("mate", ofItsLane, acked) };
}

function perEvent(sums, count) {
  const { seconds, rssMb } = sums;
  const each = Object.fromEntries(Object.entries(sums).map(([name, value]) => [name, value / count]));
  return { ...each, perSecond: count / seconds, rssMb, seconds };
}

/** Latency from the commit to the time that was recorded for the same event. */
function waits(name, committed, seen) {
  const at = new Map(seen);
  if (at.size === 0 || committed.length === 0) return {};
  const all = committed.flatMap(([id, began]) => (at.has(id) ? [Math.max(0, at.get(id) - began)] : []));
  const unseen = committed.length - all.length; // reported too: the percentiles leave them out, which would flatter
  return {
    [`${name}P50`]: percentile(all, 0.5),
    [`${name}P99`]: percentile(all, 0.99),
    ...(unseen > 0 ? { [`${name}Unseen`]: unseen } : {}),
  };
}

async function within(seconds, done) {
  for (const end = now() + seconds * 1_000; now() < end && !done();) await sleep(20);
}
