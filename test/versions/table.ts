import { nodeOf } from "../../scripts/newest-node.mjs";
import { clientRows } from "./clients-table.ts";
import { startKafka } from "../servers/kafka.ts";
import { startMariadb } from "../servers/mariadb.ts";
import { startMysql } from "../servers/mysql.ts";
import { startNats } from "../servers/nats.ts";
import { startPostgres } from "../servers/postgres.ts";
import { startRabbitmq } from "../servers/rabbitmq.ts";
import { startRedis } from "../servers/redis.ts";
import type { Server } from "../servers/server.ts";

/** A version of a server, of Node or of a client library, and the test files that run on it: conformance, the whole path, and faults. */
export interface VersionRow {
  readonly name: string;
  /** What stands in for the machine's own: WAYBILL_INSTEAD. */
  readonly instead?: Readonly<Record<string, string | number>>;
  /** Starts the server, which tells its version; one is enough for those that run in threes. */
  readonly start?: () => Promise<Pick<Server, "version"> & AsyncDisposable>;
  readonly node?: { readonly line: number; find(): Promise<string> };
  /** Packages with their versions, which stand in for the checkout's; the row is about the first. */
  readonly clients?: readonly string[];
  /** Packages that those find in the checkout's versions. */
  readonly beside?: readonly string[];
  readonly files: readonly string[];
  /** Only tests with such a name: a file may have its own tests of other versions. */
  readonly only?: string | undefined;
}

const stores = (names: string): readonly string[] => names.split(" ").map((name) => `test/stores/${name}.slow.test.ts`);
const brokers = (names: string): readonly string[] => names.split(" ").map((name) => `test/brokers/${name}.test.ts`);

const postgresFiles = [
  ...stores("postgres postgres-order postgres-hazards postgres-sessions postgres-sql postgres-migration postgres-claim postgres-keys"),
  ...["test/doctor/postgres.slow.test.ts", "test/handles/postgres.slow.test.ts", "test/relay/away.slow.test.ts"],
  ...brokers("redis-path.slow"),
];
const mysqlFiles = [
  ...stores("mysql mysql-order mysql-hazards mysql-effects mysql-transactions mysql-migration mysql-limits"),
  ...["test/doctor/mysql.slow.test.ts", "test/handles/mariadb.slow.test.ts"],
];
const natsFiles = brokers(
  "nats.slow nats-path.slow nats-redrive.slow nats-removed.slow nats-reading.slow nats-hostile.slow nats-streams.slow nats-faults.long",
);
const rabbitmqFiles = brokers(
  "rabbitmq.slow rabbitmq-path.slow rabbitmq-redrive.slow rabbitmq-among.slow rabbitmq-broker.slow rabbitmq-hostile.slow rabbitmq-secure.slow rabbitmq-faults.long",
);
const redisFiles = brokers(
  "redis.slow redis-path.slow redis-source.slow redis-sink.slow redis-redrive.slow redis-faults.slow redis-secure.slow redis-limits.slow",
);
const kafkaFiles = brokers(
  "kafka.slow kafka-path.slow kafka-groups.slow kafka-moves.slow kafka-lost.slow kafka-redrive.slow kafka-faults.long",
);
const natsClusterFiles = brokers("nats-cluster.long");
const rabbitmqClusterFiles = brokers("rabbitmq-cluster.long");
const nodeFiles = [
  ...["sqlite", "sqlite-file", "memory"].map((name) => `test/stores/${name}.test.ts`),
  ...brokers("embedded embedded-source memory embedded-processes.slow"),
  ...["test/faults/deaths.test.ts", "test/faults/sigterm.test.ts", "test/relay/order.test.ts", "test/subscriber/effects.test.ts"],
  ...stores("postgres mysql"),
  ...brokers("redis.slow nats.slow kafka.slow rabbitmq.slow"),
];

/** Titles of tests that name another version than the one that stands in. */
const without = (...others: readonly string[]): string => `^(?!.*(${others.join("|")}))`;
const ownPostgres = without("postgres 14", "postgres 18", "PgBouncer");

/** One row for each version. */
export const versionRows: readonly VersionRow[] = [
  ...([14, 15, 16, 17, 18] as const).map((version) => ({
    name: `PostgreSQL ${version}`,
    instead: { postgres: version },
    start: () => startPostgres({ version }),
    // Every role may create functions in public there.
    files: version === 14 ? [...postgresFiles, ...stores("postgres-planted")] : postgresFiles,
    only: ownPostgres,
  })),
  { name: "MariaDB 10.11", start: () => startMariadb(), files: mysqlFiles, only: without("MySQL") },
  {
    name: "MariaDB 11.8",
    instead: { mariadb: "11.8" },
    start: () => startMariadb({ version: "11.8" }),
    files: mysqlFiles,
    only: without("MySQL"),
  },
  {
    name: "MySQL 8.0",
    instead: { mysql: "8.0" },
    start: () => startMysql({ version: "8.0" }),
    files: mysqlFiles,
    only: "MySQL",
  },
  { name: "MySQL 9", start: () => startMysql(), files: mysqlFiles, only: "MySQL" },
  { name: "NATS 2.9", start: () => startNats(), files: natsFiles, only: without("\\(2\\.10\\)", "\\(newest\\)") },
  {
    name: "NATS 2.10",
    instead: { nats: "2.10" },
    start: () => startNats({ version: "2.10" }),
    files: natsFiles,
    only: without("\\(2\\.9\\)", "\\(newest\\)"),
  },
  {
    name: "NATS, newest",
    instead: { nats: "newest" },
    start: () => startNats({ version: "newest" }),
    files: natsFiles,
    only: without("\\(2\\.9\\)", "\\(2\\.10\\)"),
  },
  { name: "RabbitMQ 3.10", start: () => startRabbitmq(), files: rabbitmqFiles, only: without("on rabbitmq4") },
  { name: "RabbitMQ 4.0", instead: { rabbitmq: 4 }, start: () => startRabbitmq({ version: 4 }), files: rabbitmqFiles },
  {
    name: "RabbitMQ, newest",
    instead: { rabbitmq: "newest" },
    start: () => startRabbitmq({ version: "newest" }),
    files: rabbitmqFiles,
  },
  { name: "Redis 7", start: () => startRedis(), files: redisFiles },
  { name: "Redis 8", instead: { redis: "redis-8" }, start: () => startRedis({ version: "redis-8" }), files: redisFiles },
  { name: "Valkey, newest", instead: { redis: "valkey-newest" }, start: () => startRedis({ version: "valkey-newest" }), files: redisFiles },
  { name: "Kafka 4.1", start: () => startKafka(), files: kafkaFiles },
  { name: "Kafka 4.1, three brokers", start: () => startKafka(), files: brokers("kafka-cluster.long") },
  { name: "NATS 2.9, three servers", start: () => startNats(), files: natsClusterFiles },
  { name: "NATS 2.10, three servers", instead: { nats: "2.10" }, start: () => startNats({ version: "2.10" }), files: natsClusterFiles },
  {
    name: "NATS, newest, three servers",
    instead: { nats: "newest" },
    start: () => startNats({ version: "newest" }),
    files: natsClusterFiles,
  },
  { name: "RabbitMQ 3.10, three nodes", start: () => startRabbitmq(), files: rabbitmqClusterFiles },
  { name: "RabbitMQ 4.0, three nodes", instead: { rabbitmq: 4 }, start: () => startRabbitmq({ version: 4 }), files: rabbitmqClusterFiles },
  {
    name: "RabbitMQ, newest, three nodes",
    instead: { rabbitmq: "newest" },
    start: () => startRabbitmq({ version: "newest" }),
    files: rabbitmqClusterFiles,
  },
  ...[22, 24].map((line) => ({ name: `Node ${line}`, node: { line, find: () => nodeOf(line) }, files: nodeFiles })),
  ...clientRows,
];
