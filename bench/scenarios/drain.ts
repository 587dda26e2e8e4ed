import { compare, ours } from "../measure/compare.ts";
import { brokers, databases, type BrokerName, type DatabaseName, type Ground, type Place } from "../measure/ground.ts";
import type { Finding } from "../report/finding.ts";

/** The relay from every database to every broker, compared with the broker's client alone. */
export async function* drain(ground: Ground): AsyncGenerator<Finding> {
  const events = ground.size(60_000);
  for (const broker of ground.chosen(["nats", "redis", "kafka", "rabbitmq", "embedded", "none"] as const)) {
    await using server = await brokers[broker].open();
    for (const database of ground.chosen(["postgres", "mariadb", "sqlite"] as const)) {
      await using store: Place = await databases[database].open(ground);
      yield await drained(ground, { broker, database, server, store, events });
    }
  }
}

interface Drain {
  readonly broker: BrokerName;
  readonly database: DatabaseName;
  readonly server: Place;
  readonly store: Place;
  readonly events: number;
}

async function drained(ground: Ground, { broker, database, server, store, events }: Drain): Promise<Finding> {
  const bare = broker !== "embedded" && broker !== "none" && database === "postgres";
  return compare(ground, {
    question: `The relay, ${databases[database].name} to ${brokers[broker].name}, ${events.toLocaleString("en")} events`,
    store,
    broker: server,
    sides: [
      ...ours(ground, { name: "relay", side: "relay" }),
      ...(bare ? [{ name: "bare client, same headers", side: "bare" }] : []),
      ...(bare && broker !== "kafka" ? [{ name: "bare protocol", side: "raw" }] : []),
    ],
    ...(bare ? { base: "bare client, same headers" } : {}),
    task: { events, broker, database },
    minutes: database === "postgres" ? 0.7 : 0.2,
  });
}
