// Debezium on our outbox table: Kafka Connect, standalone, in a process of its own. All of its settings are here.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { topicOf } from "./brokers.mjs";
import { now } from "./measure.mjs";

const startMs = 90_000;

/** In our measurements, this garbage collector took less CPU than the one in Kafka's own start script. */
const java = ["-Xms1g", "-Xmx1g", "-XX:+UseParallelGC"];
const logging = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"];

/** The columns that at least one of the messages needs. PostgreSQL does not send the others. */
const columns = "seq id aggregate_type aggregate_id event_type event_version payload content_type created_at".split(" ");

/** The headers of both messages. The event router adds its own `id`, and cannot set `ce_specversion` and `ce_source`, which never vary. */
const headers = {
  ours: {
    ce_id: "id",
    ce_type: "event_type",
    ce_subject: "aggregate_id",
    ce_partitionkey: "aggregate_id",
    ce_time: "created_at",
    "content-type": "content_type",
    ce_aggregatetype: "aggregate_type",
    ce_eventversion: "event_version",
    ce_sequence: "seq",
  },
  its: { eventType: "event_type" },
};

const worker = (task, folder) => ({
  "bootstrap.servers": new URL(task.brokerUrl).host,
  listeners: "http://127.0.0.1:0",
  "offset.storage.file.filename": join(folder, "offsets"),
  "offset.flush.interval.ms": 10_000,
  "key.converter": "org.apache.kafka.connect.storage.StringConverter",
  "value.converter": "org.apache.kafka.connect.storage.StringConverter",
  "header.converter": "org.apache.kafka.connect.storage.StringConverter",
  // As the relay publishes: no compression, every replica acknowledges, several requests in flight without reordering.
  "producer.acks": "all",
  "producer.enable.idempotence": true,
  "producer.max.in.flight.requests.per.connection": 5,
  "producer.compression.type": "none",
  "producer.linger.ms": 2,
  "producer.batch.size": 524_288,
  "producer.buffer.memory": 134_217_728,
});

const connector = (task, { hostname, port, pathname, username }) => ({
  name: task.schema,
  "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
  "tasks.max": 1,
  "database.hostname": hostname,
  "database.port": port,
  "database.dbname": pathname.slice(1),
  "database.user": username,
  "topic.prefix": task.schema,
  "plugin.name": "pgoutput",
  "slot.name": task.schema,
  "publication.name": task.schema,
  "publication.autocreate.mode": "disabled",
  "table.include.list": `${task.schema}.outbox`,
  "column.include.list": columns.map((column) => `${task.schema}.outbox.${column}`).join(),
  "snapshot.mode": "no_data",
  "tombstones.on.delete": false,
  "provide.transaction.metadata": false,
  "extended.headers.enabled": false,
  "heartbeat.interval.ms": 0,
  "max.batch.size": 8_192,
  "max.queue.size": 32_768,
  "poll.interval.ms": 10,
  transforms: "outbox",
  "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
  "transforms.outbox.route.by.field": "aggregate_type",
  "transforms.outbox.route.topic.replacement": topicOf({ schema: "${routedByValue}" }),
  "transforms.outbox.table.field.event.id": "id",
  "transforms.outbox.table.field.event.key": "aggregate_id",
  "transforms.outbox.table.field.event.payload": "payload",
  "transforms.outbox.table.fields.additional.placement": Object.entries(headers[task.message ?? "ours"])
    .map(([header, column]) => `${column}:header:${header}`)
    .join(),
});

/** Runs Connect. The supervisor kills it, and removes its folder, when this process ends. */
function run(task) {
  const folder = mkdtempSync(join(tmpdir(), "waybill-debezium-"));
  const log = join(folder, "log");
  const write = (name, settings) => {
    const lines = Object.entries(settings).map(([key, value]) => `${key}=${value}\n`);
    writeFileSync(join(folder, name), lines.join(""));
    return join(folder, name);
  };
  const files = [write("worker", worker(task, folder)), write("connector", connector(task, new URL(task.store)))];
  const command = [task.java, ...java, ...logging, "-cp", task.classes, "org.apache.kafka.connect.cli.ConnectStandalone", ...files];
  const charge = { folder, log, env: { PATH: process.env.PATH ?? "/usr/bin:/bin" }, account: {}, lastSignal: "SIGKILL" };
  const script = fileURLToPath(new URL("../../test/servers/supervisor.mjs", import.meta.url));
  const supervisor = spawn(process.execPath, [script, JSON.stringify(charge)], { detached: true, stdio: ["pipe", "pipe", "inherit"] });
  const running = { pid: null, ended: null, log: () => readFileSync(log, "utf8") };
  createInterface({ input: supervisor.stdout }).on("line", (line) => {
    const { started = running.pid, ended = null } = JSON.parse(line);
    Object.assign(running, { pid: started, ended });
  });
  supervisor.stdin.write(`${JSON.stringify({ start: command })}\n`);
  running.end = async () => {
    supervisor.stdin.end();
    await once(supervisor, "exit");
  };
  return running;
}

/** Resolves when PostgreSQL streams to Debezium. */
export async function startDebezium(task, pool) {
  const { schema } = task;
  await pool.query(`CREATE PUBLICATION ${schema} FOR TABLE ${schema}.outbox (${columns}) WITH (publish = 'insert')`);
  await pool.query("SELECT pg_create_logical_replication_slot($1, 'pgoutput')", [schema]);
  /** The PostgreSQL process that streams (walsender). */
  const sender = async () => {
    const { rows } = await pool.query("SELECT active_pid FROM pg_replication_slots WHERE slot_name = $1", [schema]);
    return rows[0].active_pid;
  };
  const running = run(task);
  for (const until = now() + startMs; (await sender()) === null; await sleep(50))
    if (running.ended !== null || now() > until) throw new Error(`Debezium does not stream (${running.ended}):\n${running.log()}`);
  await sleep(1_000); // Debezium is still busy with its start
  return {
    pid: running.pid,
    /** Events inserted from here on wait undecoded, as they wait in the table for the relay. Returns a function that lets them go. */
    async hold() {
      const stopped = await sender();
      process.kill(stopped, "SIGSTOP");
      return () => process.kill(stopped, "SIGCONT");
    },
    async stop() {
      await running.end();
      while ((await sender()) !== null) await sleep(20);
      await pool.query("SELECT pg_drop_replication_slot($1)", [schema]);
      await pool.query(`DROP PUBLICATION ${schema}`);
    },
  };
}
