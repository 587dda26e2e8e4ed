import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Outgoing, PublishResult, Sink } from "../../src/contracts/sink.ts";
import { createRelay, type Relay } from "../../src/create-relay.ts";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { postgres } from "../../src/stores/postgres/index.ts";
import { describeWith } from "../servers/available.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";
import { harnessOn, type PostgresHarness } from "./postgres-harness.ts";

const aggregates = 8;
const writers = 10;

/** What arrived, in the order of its arrival; a delivery that was seen before is a copy. */
function recordingSink(): Sink & { readonly arrived: Map<string, number[]>; copies(): number } {
  const arrived = new Map<string, number[]>();
  const seen = new Set<string>();
  let copies = 0;
  return {
    name: "recording",
    can: { maxBytes: 1_000_000 },
    arrived,
    copies: () => copies,
    connect: () => Promise.resolve(),
    probe: () => Promise.resolve(),
    async publish(batch: readonly Outgoing[]): Promise<readonly PublishResult[]> {
      await sleep(Math.random() * 5);
      for (const { envelope } of batch) {
        if (seen.has(envelope.id)) copies += 1;
        else arrived.set(envelope.aggregateId, [...(arrived.get(envelope.aggregateId) ?? []), counterOf(envelope.data)]);
        seen.add(envelope.id);
      }
      return batch.map(() => ({ status: "stored" }));
    },
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}

const counterOf = (data: Uint8Array): number => (JSON.parse(Buffer.from(data).toString()) as { n: number }).n;

async function prepare({ pool, schema }: PostgresHarness): Promise<void> {
  await pool.query(`CREATE TABLE ${schema}.accounts (id text PRIMARY KEY, n int NOT NULL DEFAULT 0)`);
  await pool.query(`CREATE TABLE ${schema}.elsewhere (at timestamptz)`);
  await pool.query(`INSERT INTO ${schema}.accounts (id) SELECT 'a-' || i FROM generate_series(1, ${aggregates}) i`);
}

/** Each transaction raises its aggregate's counter and puts it into the event: 1, 2, 3 … must arrive without a gap. */
async function write({ pool, schema, store }: PostgresHarness, until: () => boolean): Promise<number> {
  const outbox = createOutbox({ store });
  let committed = 0;
  while (!until()) {
    const client = await pool.connect();
    const broken = (): void => undefined; // the statement that fails tells it
    client.on("error", broken);
    try {
      const chance = Math.random();
      const id = `a-${1 + Math.floor(Math.random() * aggregates)}`;
      await client.query("BEGIN");
      if (chance < 0.3) await client.query(`INSERT INTO ${schema}.elsewhere VALUES (now())`); // its transaction id is older than its turn
      const { rows } = await client.query<{ n: number }>(`UPDATE ${schema}.accounts SET n = n + 1 WHERE id = $1 RETURNING n`, [id]);
      await outbox.add(client, { aggregateType: "Account", aggregateId: id, type: "Raised", payload: { n: rows[0]!.n } });
      if (chance > 0.8) await sleep(Math.random() * 20);
      const kept = Math.random() >= 0.1;
      await client.query(kept ? "COMMIT" : "ROLLBACK");
      if (kept) committed += 1;
    } finally {
      client.off("error", broken);
      client.release();
    }
  }
  return committed;
}

async function published({
  pool,
  schema,
}: PostgresHarness): Promise<{ readonly open: number; readonly counters: ReadonlyMap<string, number> }> {
  const { rows } = await pool.query<{ open: number }>(`SELECT count(*)::int AS open FROM ${schema}.outbox WHERE status <> 'PUBLISHED'`);
  const accounts = await pool.query<{ id: string; n: number }>(`SELECT id, n FROM ${schema}.accounts`);
  return { open: rows[0]!.open, counters: new Map(accounts.rows.map(({ id, n }) => [id, n])) };
}

function inOrder(arrived: ReadonlyMap<string, readonly number[]>, counters: ReadonlyMap<string, number>): void {
  for (const [id, n] of counters) expect([id, arrived.get(id) ?? []]).toEqual([id, Array.from({ length: n }, (_, at) => at + 1)]);
}

async function until(done: () => Promise<boolean>, ms: number): Promise<void> {
  for (const end = Date.now() + ms; !(await done());) {
    if (Date.now() > end) throw new Error("it did not happen in time");
    await sleep(50);
  }
}

await describeWith("postgres", "order and no loss on PostgreSQL", () => {
  let server: Postgres;
  beforeAll(async () => {
    server = await startPostgres({ version: 15 });
  });
  afterAll(() => server[Symbol.asyncDispose]());

  const relayOn = (harness: PostgresHarness, sink: Sink): { readonly relay: Relay; readonly end: () => PromiseLike<void> } => {
    const store = postgres({ url: server.url(), schema: harness.schema, connections: 3, statementTimeoutMs: 5_000 });
    const relay = createRelay({ store, sink, leaseMs: 2_000, batch: 50, pollIntervalMs: 20 });
    return { relay, end: () => store[Symbol.asyncDispose]() };
  };

  test("ten writers on hot aggregates and four relays that come and go: every aggregate arrives as 1, 2, 3 …", async () => {
    const harness = await harnessOn(() => server.url())();
    await prepare(harness);
    const sink = recordingSink();
    let writing = true;
    const work = Promise.all(Array.from({ length: writers }, () => write(harness, () => !writing)));
    const comeAndGo = async (nth: number): Promise<void> => {
      while (writing) {
        const { relay, end } = relayOn(harness, sink);
        await relay.start();
        await sleep(500 + nth * 300 + Math.random() * 1_000);
        await (Math.random() < 0.7 ? relay.drain() : relay.stop());
        await relay.stopped;
        await end();
      }
    };
    const relays = Array.from({ length: 4 }, (_, nth) => comeAndGo(nth));
    await sleep(8_000);
    writing = false;
    const committed = (await work).reduce((sum, n) => sum + n, 0);
    await Promise.all(relays);
    const last = relayOn(harness, sink);
    await last.relay.start();
    await until(async () => (await published(harness)).open === 0, 30_000);
    await last.relay.drain();
    await last.end();
    const { counters } = await published(harness);
    expect([...counters.values()].reduce((sum, n) => sum + n, 0)).toBe(committed);
    inOrder(sink.arrived, counters);
    await harness.close();
  }, 120_000);

  test("the server is restarted at once twenty times under load: the relay lives, nothing is lost or out of order", async () => {
    const own = await startPostgres({ version: 15 });
    const harness = await harnessOn(() => own.url())();
    await prepare(harness);
    const sink = recordingSink();
    const store = postgres({ url: own.url(), schema: harness.schema, connections: 4, connectTimeoutMs: 2_000, statementTimeoutMs: 5_000 });
    const relay = createRelay({ store, sink, leaseMs: 2_000, batch: 50, pollIntervalMs: 20 });
    await relay.start();
    let writing = true;
    const writer = async (): Promise<void> => {
      while (writing) await write(harness, () => !writing).catch(() => sleep(20)); // a cut COMMIT may have been kept: the counters tell
    };
    const work = Promise.all(Array.from({ length: 4 }, writer));
    for (let round = 0; round < 20; round++) {
      await sleep(150 + Math.random() * 250);
      await own.restart("immediate");
    }
    await sleep(500);
    writing = false;
    await work;
    await until(async () => (await published(harness).catch(() => ({ open: 1 }))).open === 0, 60_000);
    await relay.drain();
    const { counters } = await published(harness);
    expect(Math.min(...counters.values())).toBeGreaterThan(0);
    inOrder(sink.arrived, counters);
    await store[Symbol.asyncDispose]();
    await harness.close();
    await own[Symbol.asyncDispose]();
  }, 180_000);
});
