export type StoreName = "postgres" | "mariadb" | "mysql" | "sqlite";
export type BrokerName = "kafka" | "rabbitmq" | "nats" | "redis" | "embedded";

export interface Pair {
  readonly store: StoreName;
  readonly broker: BrokerName;
}

export const stores: readonly StoreName[] = ["postgres", "mariadb", "sqlite"];
export const brokers: readonly BrokerName[] = ["kafka", "rabbitmq", "nats", "redis"];

/** A store's own faults, each with one broker. */
export const storePairs: readonly Pair[] = stores.map((store) => ({ store, broker: "redis" }));
/** A broker's own faults, each with one store. */
export const brokerPairs: readonly Pair[] = brokers.map((broker) => ({ store: "postgres", broker }));
/** What befalls processes: every store once, and most brokers. */
export const processPairs: readonly Pair[] = [
  { store: "postgres", broker: "kafka" },
  { store: "mariadb", broker: "rabbitmq" },
  { store: "sqlite", broker: "nats" },
];
export const allPairs: readonly Pair[] = [
  ...stores.flatMap((store) => brokers.map((broker) => ({ store, broker }))),
  { store: "sqlite", broker: "embedded" },
];

export const only =
  (...names: readonly (StoreName | BrokerName)[]) =>
  (pair: Pair): boolean =>
    names.includes(pair.store) || names.includes(pair.broker);
