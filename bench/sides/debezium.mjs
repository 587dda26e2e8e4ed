// Debezium drains an outbox: from the moment PostgreSQL may stream to it until the last event is in Kafka.
import { openBroker } from "./brokers.mjs";
import { startDebezium } from "./connect.mjs";
import { measured } from "./measure.mjs";
import { openStore } from "./stores.mjs";
import { createTopic } from "./topic.mjs";

/** `task.warm` events go through the same process first. Without them, Debezium has only just begun to stream. */
export default async function debezium(task) {
  const { warm = 0, events } = task;
  const { pool, insert, position, close } = await openStore(task);
  const broker = await openBroker(task); // creates the topic
  const topic = createTopic(task);
  const service = await startDebezium(task, pool);
  const load = async (count) => {
    const release = await service.hold();
    await insert(count);
    return release;
  };
  if (warm > 0) {
    (await load(warm))();
    await topic.reach(warm);
  }
  const release = await load(events);
  const pass = () => (release(), topic.reach(warm + events));
  const taken = await measured(task, pass, { position, helpers: [service.pid], apart: true });
  await service.stop();
  await broker[Symbol.asyncDispose]();
  await close();
  return taken;
}
