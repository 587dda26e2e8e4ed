import { join } from "node:path";
import { debeziumBinaries } from "../../scripts/servers.mjs";
import { compare, here, ours } from "../measure/compare.ts";
import { brokers, logical, type Ground, type Place } from "../measure/ground.ts";
import type { Finding } from "../report/finding.ts";
import { beyondWriters } from "./latency.ts";

type Debezium = Awaited<ReturnType<typeof debeziumBinaries>>;

/** Java compiles code that runs often: a process that has seen fewer events is not at full speed yet. */
const first = 200_000;

/** The relay and Debezium on the same outbox table, by turns, PostgreSQL to Kafka. */
export async function* debezium(ground: Ground): AsyncGenerator<Finding> {
  const found = await debeziumBinaries(join(here, ".cache/bench")).catch((error: Error) => error);
  if (found instanceof Error) {
    const lack = `left out: Debezium cannot be had: ${found.message.trim().split("\n")[0]}`;
    console.warn(lack);
    yield { question: "The relay beside Debezium", figures: [], ratio: null, bound: null, notes: [lack] };
    return;
  }
  await using store = await logical();
  await using broker = await brokers.kafka.open();
  yield await drained(ground, { store, broker, found });
  yield await paced(ground, { store, broker, found });
}

interface Stage {
  readonly store: Place;
  readonly broker: Place;
  readonly found: Debezium;
}

async function drained(ground: Ground, { store, broker, found }: Stage): Promise<Finding> {
  const events = ground.size(60_000);
  const warm = ground.size(first);
  const its = (name: string, task: object) => ({ name: `Debezium, ${name}`, side: "debezium", task: { ...found, ...task } });
  const finding = await compare(ground, {
    question: `The relay beside Debezium ${found.version}, PostgreSQL to Kafka, ${events.toLocaleString("en")} events`,
    store,
    broker,
    sides: [
      ...ours(ground, { name: "relay, warm", side: "relay", task: { warm } }),
      { name: "relay, freshly started", side: "relay", task: { warm: 0 } },
      its("warm", { warm }),
      its("freshly started", { warm: 0 }),
      its("warm, its own two headers", { warm, message: "its" }),
    ],
    base: "relay, warm",
    task: { events, broker: "kafka" },
    minutes: 5,
  });
  const notes = [`warm: the same process has drained ${warm.toLocaleString("en")} events before`];
  return { ...finding, ratio: finding.bound === null ? null : finding.ratio, notes: [...finding.notes!, ...notes] };
}

async function paced(ground: Ground, { store, broker, found }: Stage): Promise<Finding> {
  const rate = ground.quick ? 200 : 1_000;
  const task = { broker: "kafka", rate, seconds: ground.quick ? 3 : 10, warmSeconds: ground.quick ? 2 : 10 };
  const side = (name: string, own: object) => ({ name, side: "paced", task: own });
  const warm = ground.size(first / 2);
  const finding = await compare(ground, {
    question: `${rate.toLocaleString("en")} events a second, one in each transaction, to a consumer of the topic`,
    store,
    broker,
    sides: [
      ...ours(ground, side("relay, listen", { listen: true, consumer: true, warm })),
      side("Debezium", { ...found, relays: 0, debezium: true, consumer: true, warm }),
      side("writers alone", { relays: 0 }),
    ],
    task,
    minutes: 3.5,
  });
  return { ...finding, figures: ["relay, listen", "Debezium"].flatMap((name) => beyondWriters(finding.rows!, name)) };
}
