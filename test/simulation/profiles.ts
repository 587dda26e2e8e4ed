/** What sets one real database, or one real broker, apart from the others, as far as the core can notice it. */
interface StoreProfile {
  /** Writers go one after the other, and everything that writes waits for them. */
  readonly oneWriter: boolean;
  /** May fail over to a replica that misses what was committed last. */
  readonly replica: boolean;
}

export interface BrokerProfile {
  /** Partitions, or queues, of a topic. */
  readonly units: number;
  /** Who reads a unit: its readers share the units, one of them has all, or everybody reads everything. */
  readonly assign: "share" | "one" | "none";
  /** For how long an event that is published again is not stored again. */
  readonly dedupeMs: number;
  /** Acks are kept one by one; otherwise a reading begins again at the first that is missing. */
  readonly singleAcks: boolean;
  /** How long it takes to notice that a reader is gone. */
  readonly noticeMs: number;
  /** Without a link, a message is certainly not stored; otherwise nobody can say. */
  readonly knowsWhenDown: boolean;
  readonly maxBytes: number;
  /** How many events of an aggregate a round trip takes; any number where it is not given. */
  readonly run?: number;
}

export const stores = {
  postgres: { oneWriter: false, replica: true },
  mariadb: { oneWriter: false, replica: true },
  sqlite: { oneWriter: true, replica: false },
} as const satisfies Record<string, StoreProfile>;

const mebibyte = 1_048_576;

export const brokers = {
  kafka: { units: 3, assign: "share", dedupeMs: 0, singleAcks: false, noticeMs: 3_000, knowsWhenDown: false, maxBytes: mebibyte },
  rabbitmq: { units: 1, assign: "one", dedupeMs: 0, singleAcks: true, noticeMs: 100, knowsWhenDown: true, maxBytes: mebibyte, run: 1 },
  jetstream: {
    units: 1,
    assign: "none",
    dedupeMs: 120_000,
    singleAcks: true,
    noticeMs: 1_000,
    knowsWhenDown: false,
    maxBytes: mebibyte,
    run: 1,
  },
  redis: { units: 1, assign: "none", dedupeMs: 0, singleAcks: true, noticeMs: 500, knowsWhenDown: true, maxBytes: mebibyte, run: 1 },
  embedded: { units: 1, assign: "none", dedupeMs: 0, singleAcks: false, noticeMs: 0, knowsWhenDown: true, maxBytes: mebibyte },
} as const satisfies Record<string, BrokerProfile>;

export type StoreName = keyof typeof stores;
export type BrokerName = keyof typeof brokers;
