import type { BrokerName, StoreName } from "./pairs.ts";

/** The versions of each server that can be started, the usual one first. */
export const versions: Readonly<Record<StoreName | BrokerName, readonly [string, ...string[]]>> = {
  postgres: ["15", "14", "16", "17", "18"],
  mariadb: ["usual", "11.8"],
  mysql: ["usual", "8.0"],
  sqlite: ["usual"],
  kafka: ["usual"],
  rabbitmq: ["usual", "4", "newest"],
  nats: ["usual", "2.10", "newest"],
  redis: ["usual", "redis-8", "valkey-newest"],
  embedded: ["usual"],
};
