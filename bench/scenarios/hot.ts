import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { nats } from "../../src/brokers/nats/index.ts";
import { rabbitmq } from "../../src/brokers/rabbitmq/index.ts";
import { redis } from "../../src/brokers/redis/index.ts";
import { startTcpProxy } from "../../src/proof/run/tcp-proxy.ts";
import type { Sink } from "../../src/contracts/sink.ts";
import { createRelay } from "../../src/relay/create-relay.ts";
import { postgres } from "../../src/stores/postgres/index.ts";
import { startNats } from "../../test/servers/nats.ts";
import { startRabbitmq } from "../../test/servers/rabbitmq.ts";
import { startRedis } from "../../test/servers/redis.ts";
import type { Finding } from "../report/finding.ts";
import { percentile } from "./subject.ts";

type Broker = Sink & { provision(topics: readonly string[], consumers?: readonly string[]): Promise<unknown> };

const brokers = {
  Redis: { start: () => startRedis(), open: (url: string): Broker => redis({ url }) },
  RabbitMQ: { start: () => startRabbitmq(), open: (url: string): Broker => rabbitmq({ url }) },
  JetStream: { start: () => startNats(), open: (url: string): Broker => nats({ url }) },
} as const;

const oneWayMs = 6;
const coldEveryMs = 250;
const mostMs = 500;

/** Records the events that the relay hands to the sink, and when the broker had answered that they are stored. */
function watched(sink: Broker, sent: string[], answeredAt: Map<string, number>): Sink {
  const publish: Sink["publish"] = async (batch, signal) => {
    sent.push(...batch.map(({ envelope }) => envelope.id));
    const results = await sink.publish(batch, signal);
    const now = performance.now();
    results.forEach(({ status }, i) => status === "stored" && answeredAt.set(batch[i]!.envelope.id, now));
    return results;
  };
  return { ...sink, publish };
}

/** One aggregate has a backlog, and a healthy broker is a round trip of 12 ms away: how long do other aggregates of the topic wait? */
export async function hot(url: string, events: number): Promise<readonly Finding[]> {
  const findings: Finding[] = [];
  for (const [name, { start, open }] of Object.entries(brokers)) {
    await using server = await start();
    await using proxy = await startTcpProxy(server.port);
    await using near = open(server.url());
    await near.provision(["order.events"], ["shop"]);
    for (const direction of ["up", "down"] as const) proxy.fault(direction, { latencyMs: oneWayMs });
    await using far = open(server.url().replace(`:${server.port}`, `:${proxy.port}`));
    const schema = `hot_${name.toLowerCase()}`;
    const pool = new pg.Pool({ connectionString: url, max: 4 });
    pool.on("error", () => undefined);
    await using store = postgres({ url, schema });
    await store.schema.migrate();
    const add = (aggregate: string, count: number): Promise<pg.QueryResult<{ id: string }>> =>
      pool.query(
        `INSERT INTO ${schema}.outbox (aggregate_type, aggregate_id, event_type, payload)
         SELECT 'Order', $1, 'OrderPlaced', repeat('x', 300) FROM generate_series(1, $2::int) RETURNING id`,
        [aggregate, count],
      );
    const sent: string[] = [];
    const answeredAt = new Map<string, number>();
    let opened = 0;
    const relay = createRelay({
      store,
      sink: watched(far, sent, answeredAt),
      observe: ({ type }) => void (type === "destination.opened" && (opened += 1)),
    });
    await add("hot", events);
    await relay.start();
    const began = performance.now();
    const cold: { readonly id: string; readonly at: number }[] = [];
    while (answeredAt.size < events + cold.length - 1) {
      const at = performance.now();
      cold.push({ id: (await add("cold", 1)).rows[0]!.id, at });
      await sleep(coldEveryMs);
    }
    while (answeredAt.size < events + cold.length) await sleep(10);
    const seconds = (performance.now() - began) / 1_000;
    await relay.drain();
    await pool.end();
    const waits = cold.map(({ id, at }) => answeredAt.get(id)! - at);
    findings.push({
      question: `${name}: ${events.toLocaleString("en")} events of one aggregate, ${2 * oneWayMs} ms a round trip: do others of its topic wait?`,
      figures: [
        { what: "cold event, added to answered, p50", value: percentile(waits, 0.5), unit: "ms" },
        { what: "cold event, added to answered, p99", value: percentile(waits, 0.99), unit: "ms" },
        { what: "hot events per second", value: events / seconds, unit: "/s" },
        { what: "events sent more than once", value: sent.length - new Set(sent).size, unit: "" },
        { what: "breakers opened", value: opened, unit: "" },
      ],
      // A duplicate or an open breaker breaks the bound in any case.
      ratio: sent.length === new Set(sent).size && opened === 0 ? percentile(waits, 0.99) / mostMs : Infinity,
      bound: { at: "most", ratio: 1 },
    });
  }
  return findings;
}
