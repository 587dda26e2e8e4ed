// Checks that a subscriber of the topic gets all events, and each aggregate's in order.
import { topicOf } from "./brokers.mjs";
import { createCount, refuse } from "./measure.mjs";
import { from } from "./package.mjs";

/** Fails the round if the order is wrong. If an event never comes, the round runs into its time limit. */
export async function checkOrder(task, broker, events) {
  const [{ createSubscriber }, { memory }] = [await from(task.root, "index.js"), await from(task.root, "memory.js")];
  const inbox = memory();
  await inbox.schema.migrate();
  const [last, came] = [new Map(), createCount()];
  const take = ({ aggregateId, seq }) => {
    const before = last.get(aggregateId) ?? 0n;
    if (seq <= before) refuse({ type: "order", error: `${aggregateId}: ${seq} came after ${before}` });
    last.set(aggregateId, seq);
    came.add(1);
  };
  const all = came.plus(events);
  const handlers = { OrderPlaced: take };
  const subscriber = createSubscriber({ consumer: "bench", source: broker, inbox, topics: [topicOf(task)], observe: false, handlers });
  await subscriber.start();
  await all;
  await subscriber.stop();
}
