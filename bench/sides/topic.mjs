// How many events the topic of a round holds, by Kafka's own offsets: no message is read.
import { Consumer } from "@platformatic/kafka";
import { setTimeout as sleep } from "node:timers/promises";
import { topicOf } from "./brokers.mjs";
import { now } from "./measure.mjs";

const everyMs = 10;
const patienceMs = 120_000;

/** `reach(goal)` resolves when this many events have come to the topic. */
export function createTopic(task) {
  const client = new Consumer({ clientId: "bench", groupId: "bench-count", bootstrapBrokers: [new URL(task.brokerUrl).host] });
  const topic = topicOf(task);
  const count = async () => Number((await client.listOffsets({ topics: [topic] })).get(topic).reduce((sum, offset) => sum + offset, 0n));
  return {
    async reach(goal) {
      for (const until = now() + patienceMs; (await count()) < goal; await sleep(everyMs))
        if (now() > until) throw new Error(`${await count()} of ${goal} events came to Kafka within ${patienceMs / 1_000} s`);
    },
  };
}
