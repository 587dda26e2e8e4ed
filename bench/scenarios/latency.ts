import { compare, ours, type Side } from "../measure/compare.ts";
import { brokers, databases, type BrokerName, type Ground, type Place } from "../measure/ground.ts";
import type { Figure, Finding, Row } from "../report/finding.ts";

const steady = 1_000;
const shares = [0.1, 0.25, 0.5, 0.75];
const polls = [10, 100, 1_000, 5_000];
/** So few that a claim rarely finds several: with several, the relay looks again after 7 ms and not after its interval. */
const few = 10;

/** Latency from the commit to the broker's acknowledgement and to the effect, and the cost of relaying at a steady rate. */
export async function* latency(ground: Ground): AsyncGenerator<Finding> {
  const seconds = ground.quick ? 3 : 8;
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
/** Above the steady rate, one event per transaction would make the writers the limit. */
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
    minutes: broker === "nats" ? 1.8 : 1,
  });
  return { ...finding, figures: ["relay", "relay, listen"].flatMap((name) => beyondWriters(finding.rows!, name)) };
}

/** The cost of relaying, without the cost of the writers. */
export function beyondWriters(rows: readonly Row[], name: string): readonly Figure[] {
  const of = (row: string, measure: string): number => rows.find((each) => each.name === row)!.measures[measure]!.median;
  const beyond = (measure: string): number => of(name, measure) - of("writers alone", measure);
  return [
    { what: `${name}: database CPU for relaying an event`, value: beyond("databaseMicros"), unit: "µs" },
    { what: `${name}: WAL for relaying an event`, value: beyond("walBytes"), unit: "B" },
  ];
}

/** At shares of this machine's capacity: the relay's up to the acknowledgement, the lower of relay's and subscriber's up to the effect. */
async function* atCapacity(ground: Ground, { broker, server, store, seconds }: Paced): AsyncGenerator<Finding> {
  const to = `PostgreSQL to ${brokers[broker].name}`;
  const capacity = await compare(ground, {
    question: `Capacity, ${to}`,
    store,
    broker: server,
    sides: [
      { name: "relay", side: "relay" },
      { name: "subscriber, batches of up to 100", side: "subscriber", task: { way: "batched" } },
    ],
    task: { broker, events: ground.size(20_000) },
    minutes: 0.4,
  });
  yield capacity;
  const [relay, subscriber] = capacity.rows!.map(({ measures }) => measures["perSecond"]!.median) as [number, number];
  const at = (rate: number): object => ({ rate: Math.round(rate), perCommit: perCommit(rate) });
  const byLoad = (question: string, most: number, task: object): Promise<Finding> =>
    compare(ground, {
      question: `${question}, ${to}, commits wake the relay`,
      store,
      broker: server,
      sides: shares.map((share) => paced(`${share * 100} % of ${Math.round(most).toLocaleString("en")}/s`, at(most * share))),
      task: { broker, seconds, listen: true, ...task },
      minutes: 1,
    });
  yield await byLoad("From commit to acknowledgement by load", relay, {});
  yield await byLoad("From commit to effect by load", Math.min(relay, subscriber), { subscriber: true, batched: true });
  yield await compare(ground, {
    question: `Latency by poll interval, ${to}, without hints`,
    store,
    broker: server,
    sides: [
      ...polls.map((pollIntervalMs) => paced(`every ${told(pollIntervalMs)} ms, ${few} events a second`, { pollIntervalMs, rate: few })),
      paced(`every ${told(polls.at(-1)!)} ms, 10 % of capacity`, { pollIntervalMs: polls.at(-1)!, ...at(relay * 0.1) }),
    ],
    task: { broker, seconds: ground.quick ? 3 : 10 },
    minutes: 1,
  });
}

const told = (count: number): string => count.toLocaleString("en");
