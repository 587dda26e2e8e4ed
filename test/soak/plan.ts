import { fork, picker } from "../simulation/plan.ts";
import type { BrokerName, StoreName } from "../faults/matrix/pairs.ts";
import { versions } from "../faults/matrix/versions.ts";
import { faultNames, faultsOn, type FaultName } from "./fault-names.ts";

/** What a seed may choose from, the plainest level first. A new option is a new row. */
export const levels = {
  coordination: ["partitioned", "leader", "competing"],
  batch: [20, 5, 100],
  batchesInFlight: [2, 1, 3],
  leaseMs: [5_000, 3_000, 10_000],
  onPublish: ["keep", "delete"],
  partitions: ["none", "day"],
  listen: ["no", "yes"],
  purge: ["no", "yes"],
  handlerBatch: [1, 20, 100],
  concurrency: [16, 1, 4],
  writers: [2, 1, 3],
  relays: [2, 1, 3],
  subscribers: [2, 1, 3],
  workload: ["steady", "bursts", "hot", "wide"],
  keys: ["no", "yes"],
  echoes: ["no", "yes"],
} as const;
type Levels = typeof levels;
export type OptionName = keyof Levels;
export const optionNames = Object.keys(levels) as readonly OptionName[];
export type Options = { readonly [Name in OptionName]: Levels[Name][number] };

export const stores = ["postgres", "mariadb", "mysql", "sqlite"] as const satisfies readonly StoreName[];
export const brokers = ["kafka", "rabbitmq", "nats", "redis", "embedded"] as const satisfies readonly BrokerName[];

/** A fault begins after this share of the leg's load, and is as long or as strong as `size` says: from 0 to 1. */
export interface Fault {
  readonly name: FaultName;
  readonly at: number;
  readonly size: number;
}

export interface Leg {
  readonly seed: number;
  readonly nth: number;
  readonly store: { readonly name: StoreName; readonly version: string };
  readonly broker: { readonly name: BrokerName; readonly version: string };
  readonly options: Options;
  readonly faults: readonly Fault[];
  readonly seconds: number;
}

export interface Choice {
  readonly stores: readonly StoreName[];
  readonly brokers: readonly BrokerName[];
}

/** Options that a store does not have: their plainest level is the only one. */
const lacking: Readonly<Record<StoreName, readonly OptionName[]>> = {
  postgres: [],
  mariadb: ["listen"],
  mysql: ["listen"],
  sqlite: ["listen", "partitions", "onPublish"],
};

/** Every option and fault has a stream of random numbers of its own: narrowing the choice, or a new option, changes nothing else. */
export function legOf(seed: number, nth: number, choice: Choice = { stores, brokers }): Leg {
  const randomOf = (name: string) => fork(seed, `leg ${nth} ${name}`);
  const pick = <T>(name: string, values: readonly T[]): T => picker(randomOf(name))(values);
  const store = pick("store", choice.stores);
  const broker = pick("broker", choice.brokers);
  const optionOf = (name: OptionName): unknown => (lacking[store].includes(name) ? levels[name][0] : pick<unknown>(name, levels[name]));
  const options = Object.fromEntries(optionNames.map((name) => [name, optionOf(name)])) as unknown as Options;
  const seconds = 60 + Math.floor(randomOf("seconds").next() * 61);
  const random = randomOf("faults");
  const names = faultsOn({ store, broker });
  const faults = Array.from({ length: Math.round(seconds / 10) + Math.floor(random.next() * 4) }, (): Fault => {
    const name = picker(random)(names);
    return { name, at: thousandths(0.03 + random.next() * 0.9), size: thousandths(random.next()) };
  }).sort((a, b) => a.at - b.at);
  return {
    ...{ seed, nth, options, faults, seconds },
    store: { name: store, version: pick("store version", versions[store]) },
    broker: { name: broker, version: pick("broker version", versions[broker]) },
  };
}

const thousandths = (value: number): number => Math.round(value * 1_000) / 1_000;

/** What is taken away from a leg. */
export interface Cut {
  /** The places of the faults that are left. Null: all. */
  readonly faults: readonly number[] | null;
  /** Options, and `versions`, that are as plain as can be. */
  readonly plain: readonly Plain[];
  /** Null: as long as it is. */
  readonly seconds: number | null;
}

export const plainNames = [...optionNames, "versions"] as const;
export type Plain = (typeof plainNames)[number];
export const whole: Cut = { faults: null, plain: [], seconds: null };

export function narrowed(leg: Leg, { faults, plain, seconds }: Cut): Leg {
  const options = Object.fromEntries(optionNames.map((name) => [name, plain.includes(name) ? levels[name][0] : leg.options[name]]));
  const versionOf = <S extends Leg["store"] | Leg["broker"]>(of: S): S =>
    plain.includes("versions") ? { ...of, version: versions[of.name][0] } : of;
  return {
    ...leg,
    store: versionOf(leg.store),
    broker: versionOf(leg.broker),
    options: options as unknown as Options,
    faults: leg.faults.filter((_, at) => faults === null || faults.includes(at)),
    seconds: seconds ?? leg.seconds,
  };
}

/** The command that plays it again. `narrowing` is what the seed's choice was narrowed by. */
export function commandOf({ seed, nth }: Leg, { faults, plain, seconds }: Cut, narrowing: readonly string[]): string {
  return [
    `npm run test:soak -- --seed ${seed} --leg ${nth}`,
    ...narrowing,
    ...(faults === null ? [] : [`--faults ${faults.length === 0 ? "none" : faults.join(",")}`]),
    ...(plain.length === 0 ? [] : [`--plain ${plain.join(",")}`]),
    ...(seconds === null ? [] : [`--seconds ${seconds}`]),
  ].join(" ");
}

const placed = ({ name, version }: Leg["store"] | Leg["broker"]): string => (version === "usual" ? name : `${name} ${version}`);
export const composition = (leg: Leg): string => `${placed(leg.store)} × ${placed(leg.broker)}`;

/** Its options that are not the plainest. */
export const special = ({ options }: Leg): string =>
  optionNames.flatMap((name) => (options[name] === levels[name][0] ? [] : [`${name} ${options[name]}`])).join(", ");

export function tell(leg: Leg): readonly string[] {
  const faults = leg.faults.map(({ name, at, size }, nth) => `    ${nth}: ${Math.round(at * leg.seconds)} s ${name} (${size})`);
  return [`leg ${leg.nth} of seed ${leg.seed}: ${composition(leg)}, ${leg.seconds} s; ${special(leg) || "all plain"}`, ...faults];
}

/** Every level and fault that could come up with this choice of servers. */
export function everything({ stores, brokers }: Choice): readonly string[] {
  const all = optionNames.flatMap((name) =>
    levels[name].flatMap((level, at) => (at === 0 || stores.some((store) => !lacking[store].includes(name)) ? [`${name} ${level}`] : [])),
  );
  const servers = [...stores, ...brokers].flatMap((name) => versions[name].map((version) => `${name} ${version}`));
  return [...all, ...servers, ...faultNames];
}

export const levelsIn = (leg: Leg): readonly string[] => [
  ...optionNames.map((name) => `${name} ${leg.options[name]}`),
  `${leg.store.name} ${leg.store.version}`,
  `${leg.broker.name} ${leg.broker.version}`,
  ...leg.faults.map(({ name }) => name),
];
