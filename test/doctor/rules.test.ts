import { expect, test } from "vitest";
import { judge as judgeEmbedded, type Answers as Embedded } from "../../src/brokers/embedded/examine.ts";
import type { Connection } from "../../src/brokers/nats/driver.ts";
import { createExamination, judge as judgeNats, type Answers as Nats, type StreamConfig } from "../../src/brokers/nats/examine.ts";
import { judge as judgeRedis, type Answers as Redis } from "../../src/brokers/redis/examine.ts";
import { pathRules } from "../../src/doctor/rules.ts";
import { applyRules, isAtLeast, type Finding } from "../../src/core/finding.ts";
import { clockRule, type ClockSighting } from "../../src/stores/kit/doctor.ts";
import type { Answers as Mysql, TableAnswers as MysqlTables } from "../../src/stores/mysql/answers.ts";
import { judge as judgeMysql } from "../../src/stores/mysql/examine.ts";
import type { Answers as Postgres, TableAnswers as PostgresTables } from "../../src/stores/postgres/answers.ts";
import { rightsIn } from "../../src/stores/postgres/answers.ts";
import { judge as judgePostgres } from "../../src/stores/postgres/examine.ts";
import { grants } from "../../src/stores/postgres/grants.ts";
import { namesOf } from "../../src/stores/postgres/names.ts";
import { judge as judgeSqlite, type Answers as Sqlite } from "../../src/stores/sqlite/examine.ts";
import { badOf, embedded, mysql, nats, postgres, redis, sqlite, stream } from "./recorded.ts";
import { suite, type Case } from "./suite.ts";

const ofSqlite: readonly Case<Sqlite>[] = [
  ["WAL on a version that is not mended", { version: "3.45.1" }, ["journal_mode L"]],
  ["a rollback journal on such a version", { version: "3.45.1", journal: "delete" }, []],
  ["no journal", { journal: "off" }, ["journal_mode L"]],
  ["commits that are not flushed", { synchronous: 1 }, ["synchronous L"]],
  ["a file on NFS", { fileSystem: 0x6969 }, ["file system LO"]],
  ["a file on CIFS, whose number may come with a sign", { fileSystem: 0xff534d42 | 0 }, ["file system LO"]],
  ["a file in memory", { fileSystem: 0x01021994 }, ["file system L"]],
  ["a system that does not tell", { fileSystem: null }, []],
  ["no tables", { schema: { version: 0, fingerprint: null }, tables: null }, ["schema version L"]],
  ["newer tables", { schema: { version: 99, fingerprint: "f" }, tables: null }, ["schema version L"]],
  ["tables of an unreleased build", { schema: { version: 1, fingerprint: "f" }, tables: null }, ["schema version L"]],
  ["an index that was dropped", { tables: { ...sqlite.tables!, present: [] } }, ["objects I"]],
  ["a lane that was deleted", { tables: { ...sqlite.tables!, lanes: 63 } }, ["lanes L"]],
];

const ofEmbedded: readonly Case<Embedded>[] = [
  ["WAL on a version that is not mended", { version: "3.51.2" }, ["journal_mode L"]],
  ["an index that was dropped", { present: embedded.present.filter((name) => !name.endsWith("messages_by_topic")) }, ["objects I"]],
  ["a table that was dropped", { present: embedded.present.filter((name) => !name.endsWith("topics")) }, ["objects L"]],
  ["no tables yet", { schema: { version: 0, fingerprint: null }, present: [] }, []],
  ["newer tables", { schema: { version: 99, fingerprint: "f" } }, ["schema version L"]],
  ["tables of an unreleased build", { schema: { version: 2, fingerprint: null } }, ["schema version L"]],
  ["a topic that comes into being by itself", { topics: [{ topic: "t", exists: false }] }, []],
  ["a topic that does not", { topics: [{ topic: "t", exists: false }], provision: false }, ["topic of t L"]],
];

const settings = (change: Partial<Postgres["settings"]>): Partial<Postgres> => ({ settings: { ...postgres.settings, ...change } });
const tables = (change: Partial<PostgresTables>): Partial<Postgres> => ({ tables: { ...postgres.tables!, ...change } });
const storage = (change: object): Partial<Postgres> => tables({ storage: [{ ...postgres.tables!.storage[0]!, ...change }] });

const someThings = (["index", "function", "trigger", "view"] as const).map((kind) => ({ kind, name: kind }));

const ofPostgres: readonly Case<Postgres>[] = [
  ["an old server", settings({ server_version: "13.18" }), ["server_version LO"]],
  ["asynchronous commits", settings({ synchronous_commit: "off" }), ["synchronous_commit L"]],
  ["another role's asynchronous commits", { commits: [{ role: "app", value: "off" }] }, ["synchronous_commit of role app L"]],
  ["another role's durable commits", { commits: [{ role: "app", value: "on" }] }, []],
  ["local commits without a standby", settings({ synchronous_commit: "local" }), []],
  [
    "local commits beside a synchronous standby",
    settings({ synchronous_commit: "local", synchronous_standby_names: "one" }),
    ["synchronous_commit L"],
  ],
  ["no flushing", settings({ fsync: "off" }), ["fsync L"]],
  ["no full pages", settings({ full_page_writes: "off" }), ["full_page_writes L"]],
  ["a standby that nobody waits for", { standbys: 1 }, ["synchronous_standby_names L"]],
  ["a standby that commits wait for", { standbys: 1, ...settings({ synchronous_standby_names: "*" }) }, []],
  ["a standby as the store", { inRecovery: true }, ["pg_is_in_recovery L"]],
  ["read-only transactions", settings({ default_transaction_read_only: "on" }), ["default_transaction_read_only L"]],
  ["rights that are lacking", { lacks: ["DELETE on outbox"] }, ["rights of role relay L"]],
  ["tables that this role may not read", { schema: null, tables: null }, []],
  ["a sequence with a cache", tables({ sequence: { cache: "20", increment: "1", cycles: false } }), ["sequence O"]],
  ["numbers of another's making", tables({ defaults: { ...postgres.tables!.defaults, seq: "nextval('s')" } }), ["defaults O"]],
  [
    "numbers drawn too early",
    tables({ defaults: { ...postgres.tables!.defaults, seq: "CASE WHEN nextval('s') > 0 THEN NULL ELSE pg_current_xact_id() END" } }),
    ["defaults O"],
  ],
  ["a lane that is not computed", tables({ defaults: { ...postgres.tables!.defaults, lane: "" } }), ["defaults O"]],
  ["an unlogged table", storage({ unlogged: true }), ["persistence L"]],
  ["policies on rows", storage({ hidden: true }), ["row security LV"]],
  ["no vacuum for a table", storage({ autovacuum: false }), ["autovacuum I"]],
  ["no vacuum at all", settings({ autovacuum: "off" }), ["autovacuum I"]],
  ["a missing index, function, trigger and view", tables({ expected: someThings, present: [] }), ["objects LDIV"]],
  ["a server whose clock is wrong", { clock: { beforeMs: 0, serverMs: 9_000, afterMs: 10 } }, ["clock V"]],
];

const variables = (change: Mysql["variables"]): Partial<Mysql> => ({ variables: { ...mysql.variables, ...change } });
const own = (change: Partial<MysqlTables>): Partial<Mysql> => ({ tables: { ...mysql.tables!, ...change } });
const collated = (table: string, breaks: string): Partial<Mysql> =>
  own({ collations: [{ table, column: "name", collation: "utf8mb4_general_ci", breaks }] });

const ofMysql: readonly Case<Mysql>[] = [
  ["an old MariaDB", { version: "10.5.22-MariaDB" }, ["version LO"]],
  ["MySQL", { version: "8.0.36", mariadb: false }, []],
  ["an old MySQL", { version: "8.0.18", mariadb: false }, ["version LO"]],
  ["the oldest MySQL", { version: "8.0.19", mariadb: false }, []],
  ["a log that is flushed each second", variables({ innodb_flush_log_at_trx_commit: "0" }), ["innodb_flush_log_at_trx_commit L"]],
  ["a log that is only written", variables({ innodb_flush_log_at_trx_commit: "2" }), ["innodb_flush_log_at_trx_commit L"]],
  ["MariaDB's strictest", variables({ innodb_flush_log_at_trx_commit: "3" }), []],
  ["no doublewrite", variables({ innodb_doublewrite: "OFF" }), ["innodb_doublewrite L"]],
  ["a doublewrite that mends nothing", variables({ innodb_doublewrite: "DETECT_ONLY" }), ["innodb_doublewrite L"]],
  ["a binary log that is not flushed", variables({ sync_binlog: "0" }), ["sync_binlog L"]],
  ["no binary log", variables({ sync_binlog: "0", log_bin: "OFF" }), []],
  ["a server for reading", variables({ read_only: "ON" }), ["read_only L"]],
  ["tables that cannot roll back", variables({ default_storage_engine: "MyISAM" }), ["default_storage_engine E"]],
  ["reads of what may roll back", variables({ tx_isolation: "READ-UNCOMMITTED" }), ["transaction_isolation P"]],
  ["the same under MySQL's name", variables({ transaction_isolation: "READ-UNCOMMITTED" }), ["transaction_isolation P"]],
  ["a user without PROCESS", { sees: false }, ["PROCESS V"]],
  ["an outbox that cannot roll back", own({ engines: [{ table: "outbox", engine: "MyISAM" }] }), ["engine LP"]],
  ["an outbox that mixes letters up", collated("outbox", "O"), ["collation O"]],
  ["an inbox that does", collated("inbox", "E"), ["collation E"]],
  ["keys that do", collated("waybill_keys", "L"), ["collation L"]],
  ["an index that was dropped", own({ present: ["trigger waybill_use_key"] }), ["objects I"]],
  ["a trigger that was dropped", own({ present: ["index outbox.ready"] }), ["objects D"]],
  ["a user who cannot see triggers", own({ present: ["index outbox.ready"], seesTriggers: false }), []],
];

const config = (change: Partial<Redis["config"]>): Partial<Redis> => ({ config: { ...redis.config, ...change } });

const ofRedis: readonly Case<Redis>[] = [
  ["no log", config({ appendonly: "no" }), ["appendonly L"]],
  ["a log that is flushed each second", config({ appendfsync: "everysec" }), ["appendfsync L"]],
  ["a log that the system flushes", config({ appendfsync: "no" }), ["appendfsync L"]],
  ["no flushing during a rewrite", config({ "no-appendfsync-on-rewrite": "yes" }), ["no-appendfsync-on-rewrite L"]],
  ["eviction", config({ "maxmemory-policy": "allkeys-lru", maxmemory: "1000" }), ["maxmemory-policy L"]],
  ["eviction without a limit", config({ "maxmemory-policy": "allkeys-lru" }), []],
  ["eviction of what expires", config({ "maxmemory-policy": "volatile-lru", maxmemory: "1000" }), []],
  ["replicas that nobody waits for", { connectedReplicas: 1 }, ["min-replicas-to-write L"]],
  ["replicas waited for, and a server that takes writes alone", { connectedReplicas: 1, replicas: 1 }, ["min-replicas-to-write D"]],
  ["as many as are waited for", { connectedReplicas: 1, replicas: 1, ...config({ "min-replicas-to-write": "1" }) }, []],
  ["an old server", { version: "6.0.16" }, ["redis_version LO"]],
  ["a Valkey", { version: "7.2.4", valkey: "9.1.2" }, []],
  ["a replica", { role: "slave" }, ["role L"]],
  ["a stream that is not there", { topics: [{ topic: "t", kind: "none", expiresMs: -2 }] }, ["stream of t L"]],
  ["a key of another kind", { topics: [{ topic: "t", kind: "hash", expiresMs: -1 }] }, ["stream of t L"]],
  ["a stream that expires", { topics: [{ topic: "t", kind: "stream", expiresMs: 1_000 }] }, ["expiry of t L"]],
];

const streamed = (change: Partial<StreamConfig>, cluster: string | null = null, version = "2.10.20"): Partial<Nats> => ({
  version,
  topics: [{ topic: "t", stream: { config: { ...stream, ...change }, cluster } }],
});
const of = (what: string, letters: string): readonly string[] => [`${what} of stream order_events ${letters}`];

const ofNats: readonly Case<Nats>[] = [
  ["no JetStream", { jetstream: false, topics: [] }, ["jetstream L"]],
  ["a user who may not ask", { jetstream: null, topics: [{ topic: "t", stream: new Error("denied") }] }, []],
  ["a topic without a stream", { topics: [{ topic: "t", stream: null }] }, ["stream of t L"]],
  ["a stream in memory", streamed({ storage: "memory" }), of("storage", "L")],
  ["a stream that drops what nobody asked for", streamed({ retention: "interest" }), of("retention", "L")],
  ["a queue", streamed({ retention: "workqueue" }), of("retention", "L")],
  ["a stream that acknowledges nothing", streamed({ no_ack: true }), of("no_ack", "L")],
  ["a sealed stream", streamed({ sealed: true }), of("sealed", "L")],
  ["a stream that drops the oldest", streamed({ discard: "old", max_msgs: 10 }), of("discard", "L")],
  ["one that does by size", streamed({ discard: "old", max_bytes: 10 }), of("discard", "L")],
  ["one that has no limit", streamed({ discard: "old" }), []],
  ["one that refuses at its limit", streamed({ max_msgs: 10 }), []],
  ["one that drops by subject", streamed({ max_msgs_per_subject: 1 }), of("discard", "L")],
  ["one that refuses by subject", streamed({ max_msgs_per_subject: 1, discard_new_per_subject: true }), []],
  ["messages that stay for an hour", streamed({ max_age: 3_600e9 }), of("max_age", "L")],
  ["messages that stay for a week", streamed({ max_age: 7 * 86_400e9 }), []],
  ["copies that are forgotten early", streamed({ duplicate_window: 5e9 }), of("duplicate_window", "D")],
  ["copies that are not looked for", streamed({ duplicate_window: 0 }), of("duplicate_window", "D")],
  ["one copy in a cluster", streamed({ num_replicas: 1 }, "main"), of("num_replicas", "L")],
  ["one copy on a server that stands alone", streamed({ num_replicas: 1 }), []],
  ["one copy on a server that cannot flush", streamed({ num_replicas: 1 }, null, "2.9.10"), of("sync_interval", "L")],
  ["small messages", streamed({ max_msg_size: 1_000 }), of("max_msg_size", "L")],
];

suite("SQLite", "SQLite", sqlite, judgeSqlite, ofSqlite);
suite("the embedded broker", "The embedded broker", embedded, judgeEmbedded, ofEmbedded);
suite("PostgreSQL", "PostgreSQL", postgres, judgePostgres, ofPostgres);
suite("MariaDB and MySQL", "MariaDB and MySQL", mysql, judgeMysql, ofMysql);
suite("Redis", "Redis", redis, judgeRedis, ofRedis);
suite("NATS", "NATS", nats, judgeNats, ofNats);
suite("the path", "Store and broker together", { maxBytes: 1024 * 1024, topics: ["t"] }, (answers) => applyRules(pathRules, answers), [
  ["a broker that takes less than an outbox", { maxBytes: 100_000 }, ["largest message L"]],
  ["a payload that fits, but not with its headers", { maxBytes: 256 * 1024 }, ["largest message L"]],
  ["no topic", { topics: [] }, []],
]);

test("what we may not ask is unknown, and never good", () => {
  const none = Object.fromEntries(Object.keys(redis.config).map((name) => [name, null])) as Redis["config"];
  const findings = judgeRedis({
    ...redis,
    config: none,
    version: null,
    role: null,
    connectedReplicas: null,
    topics: [{ topic: "t", kind: null, expiresMs: null }],
  });
  expect(findings.filter(({ verdict }) => verdict !== "unknown")).toEqual([]);
  const alone = judgeNats({ ...nats, ...streamed({ num_replicas: 1 }) });
  expect(alone.find(({ setting }) => setting.startsWith("sync_interval"))).toMatchObject({ verdict: "unknown", value: null });
  expect(judgeMysql({ ...mysql, variables: {} }).filter(({ verdict }) => verdict === "unknown")).toHaveLength(6);
});

test("a NATS server that knows nobody who answers for JetStream has none", async () => {
  const connection = { version: "2.10.0", request: () => Promise.resolve({ is: "nobody" }) } as unknown as Connection;
  const link = { place: "nats://h", maxBytes: 1, open: () => Promise.resolve(connection), close: () => Promise.resolve() };
  expect(badOf(await createExamination(link).examine(["t"], new AbortController().signal))).toEqual(["jetstream L"]);
});

test("a slow answer is not a wrong clock", () => {
  const judgeClock = (clock: ClockSighting): Finding => applyRules([clockRule], { clock })[0]!;
  expect(judgeClock({ beforeMs: 0, serverMs: 100, afterMs: 8_000 }).verdict).toBe("good");
  expect(judgeClock({ beforeMs: 10_000, serverMs: 5_000, afterMs: 10_010 })).toMatchObject({
    verdict: "bad",
    value: "5s behind",
    why: /late/,
  });
  expect(judgeClock({ beforeMs: 10_000, serverMs: 15_000, afterMs: 10_010 })).toMatchObject({
    verdict: "bad",
    value: "5s ahead",
    why: /early/,
  });
});

test.each([
  ["2.10.1", "2.10", true],
  ["2.9.10", "2.10", false],
  ["10.6.12-MariaDB", "10.6", true],
  ["8.0.9", "8.0.19", false],
  ["15.10 (Debian)", "14", true],
  ["14beta1", "14", true],
  ["3", "2.9", true],
])("%s is at least %s: %s", (version, least, is) => expect(isAtLeast(version, least)).toBe(is));

test("every right that migrate --print gives to a relay is looked for", () => {
  const rights = rightsIn(grants(namesOf("my schema", { outbox: 'a "b", c' }), true)).map(({ what }) => what);
  expect(rights).toEqual(
    expect.arrayContaining([
      'DELETE on a "b", c',
      'UPDATE (status) on a "b", c',
      "SELECT on waybill_seq",
      "INSERT on waybill_audit",
      "EXECUTE on waybill_drop_partition",
    ]),
  );
  expect(rights).toHaveLength(2 + 7 + 1 + 5 * 4 + 2 * 2 + 3 + 3 + 3 + 2 + 1 + 2);
});
