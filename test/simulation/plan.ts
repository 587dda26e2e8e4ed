import { seededRandom, type Random } from "../../src/core/random.ts";
import { strategyNames, type StrategyName } from "../../src/relay/lanes/strategies.ts";
import { brokers, stores, type BrokerName, type StoreName } from "./profiles.ts";

/** Everything that one run is made of, as data: a seed gives one, and shrinking takes away from it. */
export interface Plan {
  readonly seed: number;
  readonly store: StoreName;
  readonly broker: BrokerName;
  readonly knobs: Knobs;
  readonly transactions: readonly Transaction[];
  readonly faults: readonly Fault[];
}

export interface Knobs {
  readonly leaseMs: number;
  readonly seatMs: number;
  readonly latencyMs: number;
  /** One event type of each aggregate goes to a topic that all share. */
  readonly spanning: boolean;
  readonly relays: readonly RelayKnobs[];
  /** How many processes each consumer has. */
  readonly subscribers: readonly number[];
  readonly purgeEveryMs: number;
  /** All aggregates fall into so many lanes, which then have a backlog. */
  readonly lanes?: number;
  /** How much further away from the store relays are than writers. */
  readonly distanceMs?: number;
}

export interface RelayKnobs {
  readonly batch: number;
  readonly batchesInFlight: number;
  readonly pollIntervalMs: number;
  readonly coordination: StrategyName;
  readonly skewMs: number;
}

export interface Transaction {
  readonly at: number;
  readonly writer: number;
  /** How long it stays open after its first insert. */
  readonly openMs: number;
  readonly rollback: boolean;
  readonly parts: readonly Part[];
}

/** The events of one aggregate in a transaction. */
export interface Part {
  readonly aggregate: number;
  readonly undone: boolean;
  readonly events: readonly EventPlan[];
}

export interface EventPlan {
  /** Other than `plain`, something goes wrong with it: on its way into the broker, or in its handler. */
  readonly kind:
    "plain" | "delayed" | "refused-twice" | "refused-for-good" | "fails-twice" | "fails-too-often" | "fatal" | "shared" | "keyed";
  readonly text: number;
}

/** When, what, whom, and for how long in milliseconds. */
export type Fault = readonly [at: number, fault: FaultName, target: number, ms: number];

const faultNames = [
  ...["relay-crash", "relay-pause", "relay-leave", "relay-join", "relay-hang", "relay-clock"],
  ...[
    "crash-after-claim",
    "crash-before-publish",
    "crash-after-publish",
    "crash-before-settle",
    "crash-after-settle",
    "crash-before-renew",
  ],
  ...["pause-after-claim", "pause-before-publish", "pause-after-publish", "pause-before-settle"],
  ...["subscriber-crash", "subscriber-pause", "subscriber-leave", "subscriber-join", "subscriber-clock"],
  ...["crash-before-handle", "crash-before-commit", "crash-after-effect", "crash-after-ack"],
  ...["writer-crash", "store-down", "store-lossy", "store-slow", "store-restart", "store-failover"],
  ...["inbox-down", "inbox-lossy", "inbox-restart"],
  ...["broker-down", "broker-lossy", "broker-slow", "broker-nacks", "broker-cuts", "broker-redelivers", "topic-refused"],
  ...["redrive", "discard", "purge"],
] as const;
type FaultName =
  | `relay-${"crash" | "pause" | "leave" | "join" | "hang" | "clock"}`
  | `crash-${"after-claim" | "before-publish" | "after-publish" | "before-settle" | "after-settle" | "before-renew"}`
  | `pause-${"after-claim" | "before-publish" | "after-publish" | "before-settle"}`
  | `subscriber-${"crash" | "pause" | "leave" | "join" | "clock"}`
  | `crash-${"before-handle" | "before-commit" | "after-effect" | "after-ack"}`
  | "writer-crash"
  | `store-${"down" | "lossy" | "slow" | "restart" | "failover"}`
  | `inbox-${"down" | "lossy" | "restart"}`
  | `broker-${"down" | "lossy" | "slow" | "nacks" | "cuts" | "redelivers"}`
  | "topic-refused"
  | "redrive"
  | "discard"
  | "redrive-letters"
  | "purge";

export const loadMs = 8_000;
export const aggregateTypes = ["Order", "Stock", "Note"] as const;
/** Followers of a dead event of this type go on. */
export const skippedType = "Note";
export const sharedTopic = "shared.events";

export function planOf(seed: number): Plan {
  const random = fork(seed, "plan");
  const pick = picker(random);
  const store = pick(Object.keys(stores)) as StoreName;
  const broker = pick(Object.keys(brokers)) as BrokerName;
  const knobs: Knobs = {
    leaseMs: pick([2_000, 4_000, 6_000]),
    seatMs: pick([3_000, 6_000]),
    latencyMs: pick([0.5, 2, 5]),
    spanning: random.next() < 0.25,
    relays: Array.from({ length: pick([1, 2, 2, 3]) }, () => relayKnobs(random)),
    subscribers: pick([[1], [1, 2], [2]]),
    purgeEveryMs: pick([3_000, 60_000]),
  };
  const faults = [...faultsOf(seed, store), ...letterFaultsOf(seed)].sort((a, b) => a[0] - b[0]);
  if (hasManyLetters(seed)) return { seed, store, broker, knobs, transactions: givenUp(seed, transactionsOf(seed)), faults };
  return fork(seed, "backlog").next() < 0.2
    ? { seed, store, broker, knobs: backlogKnobs(seed, knobs), transactions: burstsOf(seed), faults }
    : { seed, store, broker, knobs, transactions: transactionsOf(seed), faults };
}

/** Otherwise their inbox keeps letters. */
export const hasDeadTopics = (seed: number): boolean => seed % 2 === 0;

/** Some runs are about letters: consumers give many events up, and operators redrive them while subscribers and their inbox break. */
const hasManyLetters = (seed: number): boolean => !hasDeadTopics(seed) && fork(seed, "many letters").next() < 0.4;

function letterFaultsOf(seed: number): Fault[] {
  if (!hasManyLetters(seed)) return [];
  const random = fork(seed, "letter faults");
  const faults = (count: number, names: readonly FaultName[]): Fault[] =>
    Array.from({ length: count }, () => [
      Math.round(loadMs * (0.1 + random.next() * 0.9)),
      picker(random)(names),
      Math.floor(random.next() * 8),
      Math.round(random.next() * 4_000),
    ]);
  return [...faults(4 + Math.floor(random.next() * 8), ["redrive-letters"]), ...faults(Math.floor(random.next() * 6), harmsLetters)];
}

const harmsLetters: readonly FaultName[] = [
  ...(["subscriber-crash", "subscriber-pause", "subscriber-leave", "subscriber-join"] as const),
  ...(["crash-before-handle", "crash-before-commit", "crash-after-effect"] as const),
  ...(["inbox-down", "inbox-lossy", "inbox-restart", "broker-redelivers"] as const),
];

function givenUp(seed: number, transactions: readonly Transaction[]): Transaction[] {
  const random = fork(seed, "given up");
  const kindOf = ({ kind }: EventPlan): EventPlan["kind"] =>
    kind !== "plain" || random.next() > 0.15 ? kind : random.next() < 0.25 ? "fatal" : "fails-too-often";
  return transactions.map((transaction) => ({
    ...transaction,
    parts: transaction.parts.map((part) => ({ ...part, events: part.events.map((event) => ({ ...event, kind: kindOf(event) })) })),
  }));
}

/** Relays at a distance from their database, and lanes that fill up faster than a pass empties them. */
function backlogKnobs(seed: number, knobs: Knobs): Knobs {
  const random = fork(seed, "backlog knobs");
  const pick = picker(random);
  const relays = knobs.relays.map((relay) => ({ ...relay, batch: pick([10, 20, 50]) }));
  return { ...knobs, latencyMs: 0.5, distanceMs: pick([3, 6]), lanes: pick([1, 2, 4]), relays };
}

/** Transactions by the dozen on hot aggregates; half of them stay open for a while, and whoever wants its aggregate waits. */
function burstsOf(seed: number): Transaction[] {
  const random = fork(seed, "bursts");
  const aggregates = 3 + Math.floor(random.next() * 4);
  const bursts = Array.from({ length: 3 }, () => Math.round(random.next() * (loadMs - 1_000)));
  return Array.from({ length: 120 }, (_, n) => ({
    at: bursts[n % bursts.length]! + Math.round(random.next() * 250),
    writer: Math.floor(random.next() * 3),
    openMs: random.next() < 0.5 ? Math.round(10 + random.next() * 30) : 0,
    rollback: random.next() < 0.1,
    parts: [
      {
        aggregate: Math.floor(random.next() * aggregates),
        undone: false,
        events: Array.from({ length: random.next() < 0.4 ? 1 : 3 }, () => eventPlan(random)),
      },
    ],
  })).sort((a, b) => a.at - b.at);
}

export function relayKnobs(random: Random): RelayKnobs {
  const pick = picker(random);
  return {
    batch: pick([1, 3, 10, 50]),
    batchesInFlight: pick([1, 2, 3]),
    pollIntervalMs: pick([100, 400]),
    coordination: pick([...strategyNames.filter((name) => name !== "static"), "partitioned"] as const),
    skewMs: Math.round((random.next() - 0.5) * 120_000),
  };
}

function transactionsOf(seed: number): Transaction[] {
  const random = fork(seed, "workload");
  const aggregates = 4 + Math.floor(random.next() * 24);
  const skew = 1 + random.next() * 2;
  const count = 15 + Math.floor(random.next() * 45);
  return Array.from({ length: count }, () => {
    const keys = new Set(Array.from({ length: random.next() < 0.25 ? 3 : 1 }, () => Math.floor(random.next() ** skew * aggregates)));
    const long = random.next() < 0.03;
    return {
      at: Math.round(random.next() * loadMs),
      writer: Math.floor(random.next() * 3),
      openMs: Math.round(long ? 1_000 + random.next() * 3_000 : random.next() ** 3 * 200),
      rollback: random.next() < 0.1,
      // Rows are locked in one order, or two transactions would wait for each other.
      parts: [...keys]
        .sort((a, b) => a - b)
        .map((aggregate, n) => ({
          aggregate,
          undone: n > 0 && random.next() < 0.3,
          events: Array.from({ length: 1 + Math.floor(random.next() ** 5 * 20) }, () => eventPlan(random)),
        })),
    };
  }).sort((a, b) => a.at - b.at);
}

function eventPlan(random: Random): EventPlan {
  const roll = random.next();
  const text = Math.floor(random.next() * texts.length);
  if (roll < 0.02) return { kind: "delayed", text };
  if (roll < 0.035) return { kind: "refused-twice", text };
  if (roll < 0.045) return { kind: "refused-for-good", text };
  if (roll < 0.07) return { kind: "fails-twice", text };
  if (roll < 0.08) return { kind: random.next() < 0.5 ? "fatal" : "fails-too-often", text };
  if (roll < 0.2) return { kind: "shared", text };
  return { kind: roll < 0.23 ? "keyed" : "plain", text };
}

/** What payloads hold beside their number. */
export const texts = ["", "x".repeat(300), "😀 𝄞 \u0000 \u2028", "\ud800", "__proto__", "<script>", "\r\n", "9007199254740993"] as const;

function faultsOf(seed: number, store: StoreName): Fault[] {
  const random = fork(seed, "faults");
  // One run in ten has none, and one in five a single kind.
  const mood = random.next();
  if (mood < 0.1) return [];
  const allowed = faultNames.filter((name) => name !== "store-failover" || (stores[store].replica && random.next() < 0.3)) as FaultName[];
  const only = mood < 0.3 ? [picker(random)(allowed)] : allowed;
  return Array.from({ length: 1 + Math.floor(random.next() * 14) }, (): Fault => {
    const ms = random.next() < 0.5 ? random.next() * 800 : random.next() * 6_000;
    return [Math.round(random.next() * loadMs), picker(random)(only), Math.floor(random.next() * 8), Math.round(ms)];
  }).sort((a, b) => a[0] - b[0]);
}

/** A stream of its own for everything that has a name, so that taking one thing away changes no other. */
export function fork(seed: number, name: string): Random {
  let hash = 0x811c9dc5 ^ seed;
  for (let i = 0; i < name.length; i++) hash = Math.imul(hash ^ name.charCodeAt(i), 0x01000193);
  return seededRandom(hash ^ (hash >>> 15));
}

export const picker =
  (random: Random) =>
  <T>(values: readonly T[]): T =>
    values[Math.floor(random.next() * values.length)]!;
