// A consumer in its own process, which reads the topic and records when each event arrived.
import { Consumer, stringDeserializer } from "@platformatic/kafka";
import { setTimeout as sleep } from "node:timers/promises";
import { topicOf } from "./brokers.mjs";
import { now } from "./measure.mjs";

const task = JSON.parse(process.argv[2]);
const came = [];
const consumer = new Consumer({
  clientId: "bench",
  groupId: `${task.schema}-arrivals`,
  bootstrapBrokers: [new URL(task.brokerUrl).host],
  deserializers: { headerKey: stringDeserializer, headerValue: stringDeserializer },
});
const stream = await consumer.consume({ topics: [topicOf(task)], mode: "latest", minBytes: 1, autocommit: false });
stream.on("data", ({ headers }) => came.push([headers.get("ce_id"), now()]));
process.send("started");
process.once("disconnect", () => process.exit(0)); // the worker that started it has ended
process.once("message", async (expected) => {
  const missing = new Set(expected);
  for (const end = now() + 20_000; now() < end && missing.size > 0; await sleep(20)) for (const [id] of came) missing.delete(id);
  process.send(came, () => process.exit(0));
});
