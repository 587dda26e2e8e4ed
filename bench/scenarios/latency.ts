import { compare, ours, type Side } from "../measure/compare.ts";
import { brokers, databases, type BrokerName, type Ground, type Place } from "../measure/ground.ts";
import type { Figure, Finding, Row } from "../report/finding.ts";

const steady = 1_000;
const shares = [0.1, 0.25, 0.5, 0.75];
const polls = [20, 100, 500];

/** From the commit to the broker's acknowledgement and to the effect, and what relaying costs when events come steadily. */
export async function* latency(ground: Ground): AsyncGenerator<Finding> {
  const seconds = ground.quick ? 3 : 10;
  for (const broker of ground.chosen(["nats", "redis", "kafka"] as const)) {
    await using server = await brokers[broker].open();
    await using store = await databases.postgres.open(ground);
    yield await atSteadyRate(ground, { broker, server, store, seconds });
    if (broker === "nats") yield* atCapacity(ground, { broker, server, store, seconds });
  }
}

interface Paced {
  readonly broker: BrokerName;
  readonly server: Place;
  readonly store: Place;
  readonly seconds: number;
}

const paced = (name: string, task: object): Side => ({ name, side: "paced", task });
/** Above that, one event in a transaction would make the writers the limit. */
const perCommit = (rate: number): number => (rate <= steady ? 1 : Math.ceil(rate / 500));

async function atSteadyRate(ground: Ground, { broker, server, store, seconds }: Paced): Promise<Finding> {
  const rate = ground.quick ? steady / 5 : steady;
  const finding = await compare(ground, {
    question: `${rate.toLocaleString("en")} events a second, one in each transaction, PostgreSQL to ${brokers[broker].name}`,
    store,
    broker: server,
    sides: [
      ...ours(ground, paced("relay", {})),
      paced("relay, listen", { listen: true }),
      paced("relay and subscriber, listen", { listen: true, subscriber: true }),
      paced("writers alone", { relays: 0 }),
    ],
    task: { broker, rate, seconds },
    minutes: 1.2,
  });
  return { ...finding, figures: ["relay", "relay, listen"].flatMap((name) => beyondWriters(finding.rows!, name)) };
}

/** What relaying adds to what the writers cost. */
export function beyondWriters(rows: readonly Row[], name: string): readonly Figure[] {
  const of = (row: string, measure: string): number => rows.find((each) => each.name === row)!.measures[measure]!.median;
  const beyond = (measure: string): number => of(name, measure) - of("writers alone", measure);
  return [
    { what: `${name}: database CPU for relaying an event`, value: beyond("databaseMicros"), unit: "µs" },
    { what: `${name}: WAL for relaying an event`, value: beyond("walBytes"), unit: "B" },
  ];
}

async function* atCapacity(ground: Ground, { broker, server, store, seconds }: Paced): AsyncGenerator<Finding> {
  const to = `PostgreSQL to ${brokers[broker].name}`;
  const capacity = await compare(ground, {
    question: `Capacity, ${to}`,
    store,
    broker: server,
    sides: [{ name: "relay", side: "relay" }],
    task: { broker, events: ground.size(20_000) },
    minutes: 0.4,
  });
  yield capacity;
  const most = capacity.rows![0]!.measures["perSecond"]!.median;
  const at = (share: number): object => ({ rate: Math.round(most * share), perCommit: perCommit(most * share) });
  yield await compare(ground, {
    question: `Latency by load, ${to}, commits wake the relay`,
    store,
    broker: server,
    sides: shares.map((share) => paced(`${share * 100} % of capacity`, { ...at(share), subscriber: share < 0.5 })),
    task: { broker, seconds, listen: true },
    minutes: 1.2,
  });
  yield await compare(ground, {
    question: `Latency by poll interval, ${to}, 10 % of capacity`,
    store,
    broker: server,
    sides: polls.map((pollIntervalMs) => paced(`every ${pollIntervalMs} ms`, { pollIntervalMs })),
    task: { broker, seconds, ...at(0.1) },
    minutes: 1,
  });
}
