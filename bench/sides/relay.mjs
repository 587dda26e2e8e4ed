// Drains an outbox: from the moment the events are in the table to the last acknowledgement.
import { fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { openBroker } from "./brokers.mjs";
import { createCount, measured, refuse } from "./measure.mjs";
import { from } from "./package.mjs";
import { openStore } from "./stores.mjs";

/** A relay that reports how many events the broker has acknowledged. */
export async function relayOf(task, store, broker, stored, options = {}) {
  const { createRelay } = await from(task.root, "index.js");
  const publish = async (batch, signal) => {
    const results = await broker.publish(batch, signal);
    stored(batch, results);
    return results;
  };
  return createRelay({ store, sink: { ...broker, publish }, observe: refuse, ...options });
}

export const storedOf = (results) => results.filter(({ status }) => status === "stored").length;

/** All events are there before the relay starts; the first tenth warms it up. */
export default async function drain(task) {
  const { store, insert, published, position, close } = await openStore(task);
  const broker = await openBroker(task);
  const stored = createCount();
  const relay = await relayOf(task, store, broker, (_, results) => stored.add(storedOf(results)));
  const warm = Math.ceil(task.events / 10);
  await published(task.published ?? 0);
  await insert(warm + task.events + (task.pending ?? 0));
  const warmedUp = stored.plus(warm);
  const others = await Promise.all(Array.from({ length: (task.relays ?? 1) - 1 }, () => another(task, stored)));
  await relay.start();
  await warmedUp;
  const all = stored.plus(task.events);
  const taken = await measured(task, () => all, { position, helpers: others.map(({ pid }) => pid) });
  for (const other of others) other.kill();
  if (task.pending > 0) return taken; // the rest would take minutes; the database goes with the scenario
  await relay.drain();
  await broker[Symbol.asyncDispose]();
  await close();
  return taken;
}

/** One more relay on the same outbox, in a process of its own. */
function another(task, stored) {
  const child = fork(fileURLToPath(new URL("./another-relay.mjs", import.meta.url)), [JSON.stringify(task)]);
  return new Promise((resolve, reject) => {
    child.once("exit", (code) => reject(new Error(`another relay ended (${code})`)));
    child.on("message", (message) => (message === "started" ? resolve(child) : stored.add(message)));
  });
}
