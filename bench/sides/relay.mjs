// Drains an outbox: from the moment the events are in the table until the relay has settled them.
import { fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { openBroker } from "./brokers.mjs";
import { createCount, measured, refuse } from "./measure.mjs";
import { checkOrder } from "./order.mjs";
import { from } from "./package.mjs";
import { openStore } from "./stores.mjs";
import { block, holdHorizon } from "./trouble.mjs";

/** A relay that passes each batch and the broker's results to `stored`. */
export async function relayOf(task, store, broker, stored, options = {}) {
  const { createRelay } = await from(task.root, "index.js");
  const publish = async (batch, signal) => {
    const results = await broker.publish(batch, signal);
    stored(batch, results);
    return results;
  };
  return createRelay({ store, sink: { ...broker, publish }, observe: refuse, ...task.options, ...options });
}

export const storedOf = (results) => results.filter(({ status }) => status === "stored").length;

/**
 * A first relay passes `task.warm` events to warm up, a tenth of the events by default, and drains. The measured relay finds all events in
 * the table. It is measured until it has settled them: it has 1,500 events in flight, whose cost would otherwise be left out.
 */
export default async function drain(task) {
  const { store, insert, published, settle, position, run, close } = await openStore(task);
  const broker = await openBroker(task);
  const letGo = task.held === true ? await holdHorizon(task) : async () => undefined;
  if (task.blocked > 0) await block(task, { store, sink: broker, run }, task.blocked);
  const stored = createCount();
  const begin = async () => {
    const relay = await relayOf(task, store, broker, (_, results) => stored.add(storedOf(results)));
    await relay.start();
    return relay;
  };
  const others = await Promise.all(Array.from({ length: (task.relays ?? 1) - 1 }, () => another(task, stored)));
  const pass = async (count, drained = true) => {
    const reached = stored.plus(count);
    const relay = await begin();
    for (const { start } of others) start();
    await reached;
    if (drained) await Promise.all([relay.drain(), ...others.map(({ drain }) => drain())]);
    return relay;
  };
  const warm = task.warm ?? Math.ceil(task.events / 10);
  if (warm > 0) {
    await insert(warm);
    await pass(warm);
  }
  await published(task.published ?? 0);
  await insert(task.events + (task.pending ?? 0));
  if (task.published > 0 || task.pending > 0 || task.warm > 0) await settle();
  const drains = !(task.pending > 0); // to drain the rest would take minutes
  let relay;
  const work = async () => (relay = await pass(task.events, drains));
  const taken = await measured(task, work, { position, helpers: others.map(({ pid }) => pid) });
  if (!drains) await relay.stop();
  for (const { kill } of others) kill();
  if (task.order === true) await checkOrder(task, broker, warm + task.events);
  await broker[Symbol.asyncDispose]();
  await letGo();
  await close();
  return taken;
}

/** One more relay on the same outbox, in its own process, which stays alive until its CPU has been read. */
function another(task, stored) {
  const child = fork(fileURLToPath(new URL("./another-relay.mjs", import.meta.url)), [JSON.stringify(task)]);
  let drained = () => undefined;
  return new Promise((resolve, reject) => {
    child.once("exit", (code) => reject(new Error(`another relay ended (${code})`)));
    child.on("message", (message) => {
      if (message === "ready")
        resolve({
          pid: child.pid,
          start: () => child.send("start"),
          drain: () => new Promise((done) => void ((drained = done), child.send("drain"))),
          kill: () => child.kill(),
        });
      else if (message === "drained") drained();
      else stored.add(message);
    });
  });
}
