import { embeddedAdapter } from "../brokers/embedded/adapter.ts";
import { kafkaAdapter } from "../brokers/kafka/adapter.ts";
import { natsAdapter } from "../brokers/nats/adapter.ts";
import { rabbitmqAdapter } from "../brokers/rabbitmq/adapter.ts";
import { redisAdapter } from "../brokers/redis/adapter.ts";
import type { Adapter, BrokerAdapter, StoreAdapter } from "../contracts/adapter.ts";
import { mysqlAdapter } from "../stores/mysql/adapter.ts";
import { postgresAdapter } from "../stores/postgres/adapter.ts";
import { sqliteAdapter } from "../stores/sqlite/adapter.ts";

export interface Adapters {
  readonly stores: readonly StoreAdapter[];
  readonly brokers: readonly BrokerAdapter[];
}

/** The one place outside an adapter's folder that names it. The first of each kind is the example in errors. */
export const adapters: Adapters = {
  stores: [sqliteAdapter, postgresAdapter, mysqlAdapter],
  brokers: [embeddedAdapter, kafkaAdapter, rabbitmqAdapter, natsAdapter, redisAdapter],
};

/** The store or broker that answers to the URL's scheme. */
export function adapterOf(url: string, { stores, brokers }: Adapters = adapters): Adapter | undefined {
  const scheme = /^[a-z][a-z0-9+.-]*(?=:)/i.exec(url)?.[0].toLowerCase() ?? "";
  return [...stores, ...brokers].find(({ schemes }) => schemes.includes(scheme));
}
