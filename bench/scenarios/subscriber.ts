import { compare, ours } from "../measure/compare.ts";
import { brokers, databases, type Ground, type Place } from "../measure/ground.ts";
import type { Finding } from "../report/finding.ts";

/** From JetStream through the inbox, compared with consumers that are written by hand. */
export async function* subscriber(ground: Ground): AsyncGenerator<Finding> {
  // The warm-up has as many events: the code that a process compiles in its first seconds is not a cost of an event.
  const events = ground.size(5_000);
  await using broker = await brokers.nats.open();
  for (const database of ground.chosen(["postgres", "mariadb", "sqlite"] as const)) {
    await using store: Place = await databases[database].open(ground);
    yield await compare(ground, {
      question: `A subscriber, JetStream to ${databases[database].name}, ${events.toLocaleString("en")} events, one insert each`,
      store,
      broker,
      sides: [
        ...ours(ground, { name: "subscriber", side: "subscriber", task: { way: "subscriber" } }),
        { name: "subscriber, batches of up to 100", side: "subscriber", task: { way: "batched" } },
        { name: "by hand, one transaction each", side: "subscriber", task: { way: "byHand" } },
        ...(database === "postgres" ? [{ name: "by hand, one statement each", side: "subscriber", task: { way: "oneStatement" } }] : []),
      ],
      base: "by hand, one transaction each",
      task: { events, warm: events, broker: "nats", database },
      minutes: database === "postgres" ? 1.4 : 0.7,
    });
    if (database !== "postgres") continue;
    yield await compare(ground, {
      question: `The same, ${events.toLocaleString("en")} events that each update one of ten rows`,
      store,
      broker,
      sides: [
        { name: "one by one", side: "subscriber", task: { way: "sharedRows", batch: 1 } },
        { name: "batches of up to 100", side: "subscriber", task: { way: "sharedRows", batch: 100 } },
      ],
      base: "one by one",
      task: { events, warm: 100, broker: "nats", database },
      minutes: 0.7,
    });
  }
}
