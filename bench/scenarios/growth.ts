import { compare, ours, type Comparison, type Side } from "../measure/compare.ts";
import { brokers, databases, type BrokerName, type Ground } from "../measure/ground.ts";
import type { Finding } from "../report/finding.ts";
import { coldLatency, hotRate } from "./hot-aggregate.ts";
import { troubled } from "./troubled.ts";

interface Part extends Pick<Comparison, "question" | "sides" | "rounds" | "base"> {
  readonly broker: BrokerName;
  readonly events: number;
}

const relay = (name: string, task: object): Side => ({ name, side: "relay", task });
const told = (count: number): string => count.toLocaleString("en");

/** `published` and `pending` are separate scenarios because filling the table takes minutes. */
export const published = (ground: Ground): Promise<readonly Finding[]> =>
  apart(ground, (scale) => ({
    question: "Events that were published before, and are still in the table",
    broker: "none",
    events: 100_000 / scale,
    sides: [10_000, 1_000_000, 10_000_000].map((count) => relay(told(count / scale), { published: count / scale })),
    rounds: 1,
  }));

export const pending = (ground: Ground): Promise<readonly Finding[]> =>
  apart(ground, (scale) => ({
    question: `Events that wait: the first ${told(100_000 / scale)} of them`,
    broker: "none",
    events: 100_000 / scale,
    sides: [0, 1_000_000, 5_000_000].map((count) => relay(`${told(count / scale)} more`, { pending: count / scale })),
    rounds: 1,
  }));

/** How the relay behaves when one quantity grows and the rest stays the same. --only picks parts. */
const parts = {
  batch: (scale) => ({
    question: "Windows of so many events, to a sink that acknowledges at once",
    broker: "none",
    events: 60_000 / Math.min(scale, 10),
    sides: [100, 500, 1_000, 2_000, 5_000].map((batch) => relay(told(batch), { options: { batch } })),
    base: "500",
  }),
  relays: (scale) => ({
    question: "Several relays on one outbox, to JetStream",
    broker: "nats",
    events: 30_000 / Math.min(scale, 10),
    sides: [1, 2, 4].map((relays) => relay(`${relays}`, { relays })),
    base: "1",
  }),
  payload: (scale) => ({
    question: "Payloads, to JetStream",
    broker: "nats",
    events: 1,
    sides: [100, 1_000, 10_000, 100_000].map((payload) =>
      relay(`${told(payload)} B`, { payload, events: Math.min(30_000, 100_000_000 / payload) / Math.min(scale, 10) }),
    ),
  }),
} satisfies Record<string, (scale: number) => Part>;

const hotTo = ["nats", "redis", "rabbitmq", "kafka"] as const;
const coldBeside = ["nats", "redis"] as const;

/** Parts that are judged. */
const judged: Readonly<Record<string, (ground: Ground) => Promise<Finding>>> = {
  ...Object.fromEntries(hotTo.map((broker) => [`hot-${broker}`, (ground: Ground) => hotRate(ground, broker)])),
  troubled,
  ...Object.fromEntries(coldBeside.map((broker) => [`cold-${broker}`, (ground: Ground) => coldLatency(ground, broker)])),
};

export async function* growth(ground: Ground): AsyncGenerator<Finding> {
  const all: Readonly<Record<string, (scale: number) => Part>> = parts;
  for (const name of ground.chosen([...Object.keys(all), ...Object.keys(judged)])) {
    if (judged[name] !== undefined) {
      yield await judged[name](ground);
      continue;
    }
    yield* await apart(ground, all[name]!, 0.6);
  }
}

async function apart(ground: Ground, part: (scale: number) => Part, minutes = 8): Promise<readonly Finding[]> {
  const { broker, events, sides, ...rest } = part(ground.quick ? 100 : 1);
  await using server = await brokers[broker].open();
  await using store = await databases.postgres.open(ground);
  const both = ground.beside === null ? sides : [...ours(ground, sides[0]!), ...sides.slice(1)];
  return [await compare(ground, { ...rest, store, broker: server, sides: both, task: { events, broker }, minutes })];
}
