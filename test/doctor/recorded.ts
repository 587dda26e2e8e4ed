import type { Answers as Embedded } from "../../src/brokers/embedded/examine.ts";
import type { Answers as Kafka } from "../../src/brokers/kafka/answers.ts";
import type { Answers as Nats, StreamConfig } from "../../src/brokers/nats/examine.ts";
import type { Answers as Rabbitmq, PageAnswers, QueueAnswers } from "../../src/brokers/rabbitmq/answers.ts";
import type { Answers as Redis } from "../../src/brokers/redis/examine.ts";
import type { Finding } from "../../src/core/finding.ts";
import type { Answers as Mysql } from "../../src/stores/mysql/answers.ts";
import { fingerprints as mysqlFingerprints } from "../../src/stores/mysql/schema.ts";
import type { Answers as Postgres } from "../../src/stores/postgres/answers.ts";
import { fingerprints as postgresFingerprints } from "../../src/stores/postgres/schema.ts";
import type { Answers as Sqlite } from "../../src/stores/sqlite/examine.ts";
import { fingerprints as sqliteFingerprints } from "../../src/stores/sqlite/schema.ts";
import { fingerprints as embeddedFingerprints } from "../../src/brokers/embedded/schema.ts";

/** What healthy servers have answered; a test changes one thing, and sees what is said of it. */

const clock = { beforeMs: 1_000_000, serverMs: 1_000_002, afterMs: 1_000_004 };
const file = { version: "3.51.3", journal: "wal", synchronous: 2, fileSystem: 0xef53 };

const lastOf = (fingerprints: readonly string[]) => ({ version: fingerprints.length, fingerprint: fingerprints.at(-1)! });

export const sqlite: Sqlite = {
  ...file,
  schema: lastOf(sqliteFingerprints),
  tables: { expected: [{ kind: "index", name: "outbox_pending" }], present: ["index outbox_pending"], lanes: 64 },
};

export const embedded: Embedded = {
  ...file,
  schema: lastOf(embeddedFingerprints),
  present: [
    "waybill_broker_schema",
    "waybill_broker_topics",
    "waybill_broker_messages",
    "waybill_broker_messages_by_topic",
    "waybill_broker_consumers",
    "waybill_broker_consumers_by_topic",
  ],
  topics: [{ topic: "order.events", exists: true }],
  provision: true,
};

export const postgres: Postgres = {
  settings: {
    server_version: "15.10 (Debian 15.10-0+deb12u1)",
    synchronous_commit: "on",
    fsync: "on",
    full_page_writes: "on",
    synchronous_standby_names: "",
    default_transaction_read_only: "off",
    autovacuum: "on",
    track_counts: "on",
  },
  commits: [],
  inRecovery: false,
  open: [],
  standbys: 0,
  clock,
  role: "relay",
  lacks: [],
  schema: lastOf(postgresFingerprints),
  tables: {
    expected: [{ kind: "index", name: "outbox_pending" }],
    present: ["index outbox_pending"],
    lanes: 64,
    sequence: { cache: "1", increment: "1", cycles: false },
    defaults: {
      seq: "\nCASE\n    WHEN (pg_current_xact_id() IS NULL) THEN NULL::bigint\n    ELSE nextval('waybill_seq'::regclass)\nEND",
      id: "(gen_random_uuid())::text",
      lane: "waybill_lane(aggregate_type, aggregate_id)",
      created_at: "clock_timestamp()",
      status: "'PENDING'::text",
    },
    storage: [{ table: "outbox", unlogged: false, autovacuum: true, hidden: false }],
  },
};

export const mysql: Mysql = {
  version: "10.11.6-MariaDB",
  mariadb: true,
  variables: {
    innodb_flush_log_at_trx_commit: "1",
    innodb_doublewrite: "ON",
    log_bin: "ON",
    sync_binlog: "1",
    default_storage_engine: "InnoDB",
    tx_isolation: "REPEATABLE-READ",
    read_only: "OFF",
  },
  sees: true,
  user: "relay@%",
  clock,
  schema: { version: mysqlFingerprints.length, fingerprint: mysqlFingerprints.at(-1)! },
  tables: {
    expected: [
      { kind: "index", name: "outbox.ready" },
      { kind: "trigger", name: "waybill_use_key" },
    ],
    present: ["index outbox.ready", "trigger waybill_use_key"],
    seesTriggers: true,
    lanes: 64,
    engines: [{ table: "outbox", engine: "InnoDB" }],
    collations: [
      { table: "outbox", column: "aggregate_id", collation: "utf8mb4_nopad_bin", breaks: "O" },
      { table: "inbox", column: "event_id", collation: "utf8mb4_nopad_bin", breaks: "E" },
    ],
  },
};

export const redis: Redis = {
  config: {
    appendonly: "yes",
    appendfsync: "always",
    "no-appendfsync-on-rewrite": "no",
    save: "",
    maxmemory: "0",
    "maxmemory-policy": "noeviction",
    "min-replicas-to-write": "0",
  },
  version: "7.0.15",
  valkey: null,
  role: "master",
  connectedReplicas: 0,
  topics: [{ topic: "order.events", kind: "stream", expiresMs: -1 }],
  replicas: 0,
};

export const stream: StreamConfig = {
  name: "order_events",
  storage: "file",
  retention: "limits",
  discard: "new",
  num_replicas: 3,
  max_msgs: -1,
  max_bytes: -1,
  max_msgs_per_subject: -1,
  max_age: 0,
  max_msg_size: -1,
  duplicate_window: 120_000_000_000,
};

export const nats: Nats = {
  version: "2.10.20",
  jetstream: true,
  topics: [{ topic: "order.events", stream: { config: stream, cluster: "main" } }],
};

export const kafka: Kafka = {
  topics: [
    {
      name: "order.events",
      replicas: 3,
      settings: {
        "min.insync.replicas": "2",
        "unclean.leader.election.enable": "false",
        "cleanup.policy": "delete",
        "retention.ms": "604800000",
        "retention.bytes": "-1",
        "max.message.bytes": "1048588",
      },
    },
  ],
  broker: { "auto.create.topics.enable": "false" },
  maxBytes: 1_048_576,
};

export const queue: QueueAnswers = {
  name: "shop.order.events",
  type: "quorum",
  durable: true,
  auto_delete: false,
  exclusive: false,
  arguments: {
    "x-dead-letter-exchange": "waybill.skipped",
    "x-overflow": "reject-publish",
    "x-queue-type": "quorum",
    "x-single-active-consumer": true,
  },
  members: ["rabbit@a", "rabbit@b", "rabbit@c"],
};

export const page: PageAnswers = {
  nodes: queue.members!.map((name) => ({ name, running: true, mem_alarm: false, disk_free_alarm: false, partitions: [] })),
  exchange: { type: "topic", durable: true, arguments: {} },
  bindings: [{ key: "order.events", destination: "shop.order.events" }],
  queues: [queue],
  policies: [],
};

export const rabbitmq: Rabbitmq = {
  version: "3.10.8",
  exchange: "waybill",
  queueType: "quorum",
  topics: ["order.events"],
  exchangeThere: true,
  page,
};

/** `setting letters` of everything bad. */
export const badOf = (findings: readonly Finding[]): readonly string[] =>
  findings.filter(({ verdict }) => verdict === "bad").map(({ setting, breaks }) => `${setting} ${breaks}`);

/** What a setting is called wherever it belongs: the name that the docs have. */
export const nameOf = ({ setting }: Finding): string => setting.split(" of ")[0]!.replace(/^(topic|exchange) .*/, "$1");
