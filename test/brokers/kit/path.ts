import { createHash, randomInt } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { difficultEvents } from "../../../src/conformance/corpus.ts";
import { serviceSuite } from "../../../src/conformance/service.ts";
import { seededRandom } from "../../../src/core/random.ts";
import { createRelay } from "../../../src/relay/create-relay.ts";
import { memory } from "../../../src/stores/memory/index.ts";
import { postgres } from "../../../src/stores/postgres/index.ts";
import type { SubscriberEvent } from "../../../src/subscriber/event.ts";
import { createSubscriber } from "../../../src/subscriber/subscriber.ts";
import { built, cli } from "../../cli/build.ts";
import { createProcesses, type Process } from "../../faults/processes.ts";
import { startPostgres, type Postgres } from "../../servers/postgres.ts";
import { byAggregate, changeOf, firsts, pause, type Change } from "./changes.ts";
import { freshType, type BrokerServer, type Subject } from "./subject.ts";

/** How far the events may be ahead of their effects. On a busy machine a backlog without a bound takes longer to drain than the test waits. */
const ahead = 1_500;

/** From PostgreSQL to the broker, by the command line and by processes that are killed; call it in a `describeWith` of both. */
export function pathSuite(subject: Subject): void {
  let database: Postgres;
  let server: BrokerServer;
  let pool: pg.Pool;
  let folder: string;
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), `waybill-${subject.name}-`));
    [database, server] = await Promise.all([startPostgres({ version: 15 }), subject.start()]);
    pool = new pg.Pool({ connectionString: database.url(), max: 4 });
    pool.on("error", () => undefined);
    const store = postgres({ url: database.url() });
    await store.schema.migrate();
    await store[Symbol.asyncDispose]();
    await pool.query("CREATE TABLE effects (position bigserial, aggregate text NOT NULL, n integer NOT NULL)");
  });
  afterAll(async () => {
    await pool.end();
    await Promise.all([database[Symbol.asyncDispose](), server[Symbol.asyncDispose]()]);
    rmSync(folder, { recursive: true, force: true });
  });

  test("waybill relay drains a table filled by plain SQL: every event once, each aggregate in order, headers and bytes as they are", async () => {
    const { aggregateType, topic } = freshType();
    await subject.provision(server.url(), [topic], ["shop"]);
    await pool.query(
      `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, headers)
       SELECT $1, 'order-' || n % 37, 'Changed', '{"n": ' || n || ', "x":1.10 }', '{"tenant": "Zoë 🚚", "traceparent": "00-1"}'
       FROM generate_series(1, 2000) n ORDER BY n`,
      [aggregateType],
    );
    const bytes = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
    await pool.query(
      `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, event_version, payload_bytes, content_type, idempotency_key)
       VALUES ($1, 'binary', 'Scanned', 3, $2, 'image/png', 'scan-1')`,
      [aggregateType, bytes],
    );
    const told = await cli(["relay", "--store", database.url(), "--broker", server.url(), "--once", "--json"], { cwd: folder });
    expect(told, told.stderr).toMatchObject({ code: 0, stderr: "" });
    expect(JSON.parse(told.stdout)).toMatchObject({ published: 2001, failed: 0, dead: 0, held: 0 });

    const { rows } = await pool.query<{ id: string; seq: string; aggregate_id: string; payload: string; created_at: Date }>(
      "SELECT id, seq, aggregate_id, payload, created_at FROM outbox WHERE event_type = 'Changed' ORDER BY seq",
    );
    const stored = await subject.stored(server.url(), topic);
    expect(stored).toHaveLength(2001);
    for (const aggregate of new Set(rows.map((row) => row.aggregate_id))) {
      expect(
        stored
          .filter(({ key }) => key === aggregate)
          .map(({ attributes, headers, data }) => ({ attributes, headers, text: new TextDecoder().decode(data) })),
      ).toEqual(
        rows
          .filter((row) => row.aggregate_id === aggregate)
          .map(({ id, seq, payload, created_at }) => ({
            attributes: {
              ...{ specversion: "1.0", id, type: "Changed", source: "/waybill", subject: aggregate, partitionkey: aggregate },
              ...{ time: created_at.toISOString(), datacontenttype: "application/json" },
              ...{ aggregatetype: aggregateType, eventversion: "1", sequence: seq },
            },
            headers: { tenant: "Zoë 🚚", traceparent: "00-1" },
            text: payload,
          })),
      );
    }
    const binary = stored.find(({ key }) => key === "binary")!;
    expect(binary.attributes).toMatchObject({ type: "Scanned", eventversion: "3", datacontenttype: "image/png", idempotencykey: "scan-1" });
    expect(Buffer.compare(Buffer.from(binary.data), bytes)).toBe(0);
    await pool.query("DELETE FROM outbox");
  });

  test("a handler gets the bytes, names and headers that went in, of events that a careless adapter changes", async () => {
    const { topic } = freshType();
    await subject.provision(server.url(), [topic, `${topic}.dead`], ["shop"]);
    const contentType = "application/octet-stream"; // not all of them are JSON
    const events = difficultEvents().map(([, event], i) => ({ ...event, contentType, aggregateId: `${event.aggregateId}-${i}` }));
    const broker = subject.open(server.url());
    const results = await broker.publish(
      events.map((envelope) => ({ topic, source: "/test", envelope })),
      new AbortController().signal,
    );
    expect(results.map(({ status }) => status)).toEqual(events.map(() => "stored"));
    const got = new Map<string, object>();
    const handle = ({ id, data, aggregateId, type, headers }: SubscriberEvent): void =>
      void got.set(id, { aggregateId, type, headers: { ...headers }, sha: shaOf(data) });
    const subscriber = createSubscriber({ consumer: "shop", source: broker, inbox: memory(), topics: [topic], handlers: { "*": handle } });
    await subscriber.start();
    await expect.poll(() => got.size, { timeout: 20_000 }).toBe(events.length);
    await subscriber.drain();
    await broker[Symbol.asyncDispose]();
    for (const { id, data, aggregateId, type, headers } of events)
      expect(got.get(id)).toEqual({ aggregateId, type, headers: { ...headers }, sha: shaOf(data) });
  });

  test("two relays and two subscribers, killed at random: each event published, each effect once, all in order", async (context) => {
    await built();
    const { aggregateType, topic } = freshType();
    await subject.provision(server.url(), [topic, `${topic}.dead`], ["shop"]);
    const processes = createProcesses(folder);
    const seed = Number(process.env["WAYBILL_SEED"] ?? randomInt(2 ** 31));
    context.onTestFailed(() => console.error(`failed with WAYBILL_SEED=${seed}\n${processes.story()}`));
    const random = seededRandom(seed);
    const child = fileURLToPath(new URL("child.mjs", import.meta.url));
    const { module } = subject;
    let lives = 0;
    const start = (role: string): Process => {
      const name = `${role}-${(lives += 1)}`;
      return processes.run(name, [child, JSON.stringify({ role, name, store: database.url(), broker: server.url(), module, topic })]);
    };
    const roles = ["relay", "relay", "subscriber", "subscriber"];
    const running = roles.map(start);
    const count = async (text: string): Promise<number> => Number((await pool.query<{ count: string }>(text)).rows[0]!.count);
    const effects = () => count("SELECT count(*) FROM effects");
    const added: Change[] = [];
    let on = true;
    const writing = (async () => {
      for (let n = 1; on; n++) {
        for (let i = 0; i < 20; i++) added.push({ aggregate: `order-${i}`, n });
        await pool.query(
          `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
           SELECT $2, 'order-' || i, 'Changed', '{"n":' || $1::int || '}' FROM generate_series(0, 19) i`,
          [n, aggregateType],
        );
        await pause(60);
        while (on && added.length - (await effects()) > ahead) await pause(60);
      }
    })();
    try {
      await expect.poll(effects, { timeout: 90_000 }).toBeGreaterThan(0);
      let relaysKilled = 0;
      for (let kills = 0; kills < 8; kills++) {
        await pause(300 + 900 * random.next());
        const victim = Math.floor(random.next() * running.length);
        await running[victim]!.kill();
        if (roles[victim] === "relay") relaysKilled += 1;
        running[victim] = start(roles[victim]!);
        // And the broker itself, now and then.
        if (kills % 5 === 4) await server.kill9().then(() => server.start());
      }
      on = false;
      await writing;
      await expect.poll(() => count("SELECT count(*) FROM outbox WHERE status = 'PUBLISHED'"), { timeout: 60_000 }).toBe(added.length);
      await expect.poll(effects, { timeout: 90_000 }).toBe(added.length);
      for (const one of running) await one.ready();
      for (const one of running) one.signal("SIGTERM");
      for (const one of running) expect(await one.ended).toEqual({ code: 0, signal: null });

      const { rows } = await pool.query<Change>("SELECT aggregate, n FROM effects ORDER BY position");
      expect(byAggregate(rows)).toEqual(byAggregate(added));
      const log = (await subject.stored(server.url(), topic)).map(changeOf);
      expect(byAggregate(firsts(log))).toEqual(byAggregate(added));
      // A relay that lives tells when it cannot know what became of its window: the broker was killed, or slow, or another has its lanes.
      const told = processes.all
        .flatMap(({ lines }) => lines)
        .filter(({ type }) => ["destination.opened", "lanes.lost"].includes(String(type)));
      expect(log.length - added.length).toBeLessThanOrEqual((relaysKilled + told.length) * 80);
    } finally {
      on = false;
      await writing;
      await processes.end();
    }
  });

  describe("a relay", () => {
    serviceSuite({
      test,
      async create() {
        const [store, sink] = [memory(), subject.open(server.url())];
        await store.schema.migrate();
        return { service: createRelay({ store, sink, leaseMs: 500 }), close: async () => sink[Symbol.asyncDispose]() };
      },
    });
  });

  describe("a subscriber", () => {
    serviceSuite({
      test,
      async create() {
        const { topic } = freshType();
        await subject.provision(server.url(), [topic], ["shop"]);
        const [inbox, source] = [memory(), subject.open(server.url())];
        const service = createSubscriber({ consumer: "shop", source, inbox, topics: [topic], handlers: { "*": () => undefined } });
        return { service, close: async () => source[Symbol.asyncDispose]() };
      },
    });
  });
}

const shaOf = (data: Uint8Array): string => createHash("sha256").update(data).digest("hex");
