import { compare, ours } from "../measure/compare.ts";
import { brokers, databases, type Ground } from "../measure/ground.ts";
import type { Finding } from "../report/finding.ts";

/** From JetStream through the inbox, beside consumers that are written by hand. */
export async function* subscriber(ground: Ground): AsyncGenerator<Finding> {
  const events = ground.size(5_000);
  await using broker = await brokers.nats.open();
  await using store = await databases.postgres.open(ground);
  yield await compare(ground, {
    question: `A subscriber, JetStream to PostgreSQL, ${events.toLocaleString("en")} events, one insert each`,
    store,
    broker,
    sides: [
      ...ours(ground, { name: "subscriber", side: "subscriber", task: { way: "subscriber" } }),
      { name: "subscriber, batches of up to 100", side: "subscriber", task: { way: "batched" } },
      { name: "by hand, one transaction each", side: "subscriber", task: { way: "byHand" } },
      { name: "by hand, one statement each", side: "subscriber", task: { way: "oneStatement" } },
    ],
    base: "by hand, one transaction each",
    task: { events, broker: "nats" },
    minutes: 2,
  });
}
