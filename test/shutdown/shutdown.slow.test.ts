import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createConnection } from "mysql2/promise";
import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { available, describeWith, type ServerName } from "../servers/available.ts";
import { startKafka } from "../servers/kafka.ts";
import { startMariadb } from "../servers/mariadb.ts";
import { startNats } from "../servers/nats.ts";
import { startPostgres } from "../servers/postgres.ts";
import { startRabbitmq } from "../servers/rabbitmq.ts";
import { rabbitmq } from "../../src/brokers/rabbitmq/index.ts";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { postgres } from "../../src/stores/postgres/index.ts";
import { startRedis } from "../servers/redis.ts";
import type { Server } from "../servers/server.ts";
import type { Request } from "./child.ts";
import { compilePrograms, root, type Ended, type Programs } from "./program.ts";
import type { BrokerName, DatabaseName } from "./places.ts";

const starts = {
  postgres: () => startPostgres({ version: 15 }),
  mariadb: () => startMariadb(),
  kafka: () => startKafka(),
  rabbitmq: () => startRabbitmq(),
  nats: () => startNats(),
  redis: () => startRedis(),
} satisfies Partial<Record<ServerName, () => Promise<Server>>>;
type Started = keyof typeof starts;

const servers = new Map<Started, Server>();
const folder = mkdtempSync(join(tmpdir(), "waybill-shutdown-"));
let child: Programs;

beforeAll(async () => {
  child = await compilePrograms();
  await Promise.all(
    (Object.keys(starts) as Started[]).map(async (name) => {
      if ((await available(name)) === null) servers.set(name, await starts[name]());
    }),
  );
});
afterAll(async () => {
  child.remove();
  rmSync(folder, { recursive: true, force: true });
  await Promise.all([...servers.values()].map((server) => server[Symbol.asyncDispose]()));
});

let made = 0;

/** A database of the child's own, and a topic of its own. */
async function request(database: DatabaseName, broker: BrokerName, act: Request["act"]): Promise<Request> {
  const nth = (made += 1);
  return {
    database: { name: database, place: await newDatabase(serverOf(database), `shop_${nth}`) },
    broker: { name: broker, place: servers.get(broker as Started)?.url() ?? join(folder, `broker-${nth}.db`) },
    topic: `order-${nth}.events`,
    act,
  };
}

const serverOf = (database: DatabaseName): Started | null => (/^(postgres|mariadb)/.exec(database)?.[0] ?? null) as Started | null;

async function newDatabase(name: Started | null, database: string): Promise<string> {
  if (name === null) return join(folder, `${database}.db`);
  const server = servers.get(name)!;
  if (name === "postgres") {
    const client = new pg.Client({ connectionString: server.url() });
    await client.connect();
    await client.query(`CREATE DATABASE ${database}`);
    await client.end();
  } else {
    const connection = await createConnection(server.url());
    await connection.query(`CREATE DATABASE ${database}`);
    await connection.end();
  }
  return server.url(database);
}

/** How long the process went on after its last statement. Anything that keeps it alive keeps it for half a minute at least. */
const patienceMs = 20_000;
const aliveMs = ({ lines }: Ended): number => Number(/^kept alive for (\d+) ms$/.exec(lines.at(-1) ?? "")?.[1] ?? NaN);
const endOfItself = (lines: readonly string[]): object => ({
  code: 0,
  signal: null,
  errors: "",
  lines: expect.arrayContaining([...lines]) as string[],
});
const terminate = { handled: (pid: number) => void process.kill(pid, "SIGTERM") };

const databaseNames = ["postgres", "mariadb", "sqlite", "memory"] as const satisfies readonly DatabaseName[];
const brokerNames = ["kafka", "rabbitmq", "nats", "redis", "embedded", "memory"] as const satisfies readonly BrokerName[];
const needed = (database: DatabaseName, broker: BrokerName): readonly Started[] =>
  [serverOf(database), broker].filter((name): name is Started => name !== null && name in starts);

for (const database of databaseNames) {
  for (const broker of brokerNames) {
    await describeWith(needed(database, broker), `${database} and ${broker}`, () => {
      test("after drain, a process ends by itself with code 0, though nobody closed store and broker", async () => {
        const ended = await child.run(await request(database, broker, "signal"), terminate);
        expect(ended).toMatchObject(endOfItself(["handled", "the end"]));
        expect(aliveMs(ended)).toBeLessThan(patienceMs);
      });
    });
  }
}

/** Each database and each broker at least once. */
const pairs = [
  ["postgres", "kafka"],
  ["mariadb", "rabbitmq"],
  ["postgres, the service's pool", "nats"],
  ["mariadb, the service's pool", "redis"],
  ["sqlite", "embedded"],
  ["memory", "memory"],
] as const satisfies readonly (readonly [DatabaseName, BrokerName])[];

for (const [database, broker] of pairs) {
  await describeWith(needed(database, broker), `${database} and ${broker}`, () => {
    test.concurrent("after stop, a process ends by itself with code 0", async () => {
      const ended = await child.run(await request(database, broker, "stop"), terminate);
      expect(ended).toMatchObject(endOfItself(["handled", "the end"]));
      expect(aliveMs(ended)).toBeLessThan(patienceMs);
    });

    test.concurrent("after drain, events are added and handled again by new services on the same store and broker", async () => {
      const ended = await child.run(await request(database, broker, "again"), terminate);
      expect(ended).toMatchObject(endOfItself(["handled", "handled again", "waiting 1", "the end"]));
      expect(aliveMs(ended)).toBeLessThan(patienceMs);
    });

    test.concurrent("await using ends relay, subscriber, broker and store, and the program goes on behind it", async () => {
      expect(await child.run(await request(database, broker, "using"))).toMatchObject(endOfItself(["handled", "disposed", "the end"]));
    });
  });
}

/** Nothing else in the process has a connection. */
const alone = [
  ["postgres", "memory"],
  ["mariadb", "memory"],
  ["memory", "kafka"],
  ["memory", "rabbitmq"],
  ["memory", "nats"],
  ["memory", "redis"],
] as const satisfies readonly (readonly [DatabaseName, BrokerName])[];

for (const [database, broker] of alone) {
  await describeWith(needed(database, broker), `${database} and ${broker}`, () => {
    test("a process that only awaits the store or the broker does not end before the answer", async () => {
      const ended = await child.run(await request(database, broker, "alone"));
      expect(ended).toMatchObject(endOfItself(["published 2", "stored 0", "stored 1", "stored 2", "the end"]));
      expect(aliveMs(ended)).toBeLessThan(patienceMs);
    });
  });
}

await describeWith(["postgres", "rabbitmq"], "the page about deploying", () => {
  test("has a service that handles an event, and ends by itself at SIGTERM", async () => {
    const [, code = ""] = /^```ts stopping\.ts\n([\s\S]*?)^```$/m.exec(readFileSync(join(root, "docs/deploying.md"), "utf8")) ?? [];
    const url = await newDatabase("postgres", "deploying");
    const pool = new pg.Pool({ connectionString: url });
    const store = postgres({ pool });
    await store.schema.migrate();
    await createOutbox({ store }).transaction(pool, (_, events) => {
      events.add({ aggregateType: "Order", aggregateId: "o-1", type: "OrderPlaced", payload: {} });
    });
    await pool.end();
    await using broker = rabbitmq({ url: servers.get("rabbitmq")!.url() });
    await broker.provision(["order.events"], ["shipping"]);
    const env = { DATABASE_URL: url, BROKER_URL: servers.get("rabbitmq")!.url() };
    const ended = await child.runCode(code, env, { "ship o-1": (pid) => void process.kill(pid, "SIGTERM") });
    expect(ended).toMatchObject({ code: 0, signal: null, lines: ["ship o-1"] });
  });
});
