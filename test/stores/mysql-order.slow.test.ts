import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Outgoing, PublishResult, Sink } from "../../src/contracts/sink.ts";
import { createRelay, type Relay } from "../../src/create-relay.ts";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { mysql } from "../../src/stores/mysql/index.ts";
import { describeWith } from "../servers/available.ts";
import { startMariadb } from "../servers/mariadb.ts";
import type { Server } from "../servers/server.ts";
import { casesOn, type MysqlHarness } from "./mysql-harness.ts";

const aggregates = 8;
const writers = 10;

/** What arrived, in the order of its arrival; a delivery that was seen before is a copy. */
function recordingSink(): Sink & { readonly arrived: Map<string, number[]> } {
  const arrived = new Map<string, number[]>();
  const seen = new Set<string>();
  return {
    name: "recording",
    can: { maxBytes: 1_000_000 },
    arrived,
    connect: () => Promise.resolve(),
    probe: () => Promise.resolve(),
    async publish(batch: readonly Outgoing[]): Promise<readonly PublishResult[]> {
      await sleep(Math.random() * 5);
      for (const { envelope } of batch) {
        if (!seen.has(envelope.id))
          arrived.set(envelope.aggregateId, [...(arrived.get(envelope.aggregateId) ?? []), counterOf(envelope.data)]);
        seen.add(envelope.id);
      }
      return batch.map(() => ({ status: "stored" }));
    },
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}

const counterOf = (data: Uint8Array): number => (JSON.parse(Buffer.from(data).toString()) as { n: number }).n;

async function prepare({ pool }: MysqlHarness): Promise<void> {
  await pool.query("CREATE TABLE IF NOT EXISTS accounts (id VARCHAR(20) PRIMARY KEY, n INT NOT NULL DEFAULT 0)");
  await pool.query("CREATE TABLE IF NOT EXISTS elsewhere (at DATETIME)");
  await pool.query("DELETE FROM accounts");
  await pool.query(`INSERT INTO accounts (id) SELECT CONCAT('a-', seq) FROM seq_1_to_${aggregates}`);
}

/** Each transaction raises its aggregate's counter and puts it into the event: 1, 2, 3 … must arrive without a gap. */
async function write({ pool, store }: MysqlHarness, until: () => boolean): Promise<number> {
  const outbox = createOutbox({ store });
  let committed = 0;
  while (!until()) {
    const connection = await pool.getConnection();
    try {
      const chance = Math.random();
      const id = `a-${1 + Math.floor(Math.random() * aggregates)}`;
      await connection.query("START TRANSACTION");
      if (chance < 0.3) await connection.query("INSERT INTO elsewhere VALUES (NOW())"); // its transaction is older than its turn
      await connection.query("UPDATE accounts SET n = n + 1 WHERE id = ?", [id]);
      const [rows] = await connection.query("SELECT n FROM accounts WHERE id = ?", [id]);
      const [{ n }] = rows as [{ n: number }];
      await outbox.add(connection, { aggregateType: "Account", aggregateId: id, type: "Raised", payload: { n } });
      if (chance > 0.8) await sleep(Math.random() * 20);
      const kept = Math.random() >= 0.1;
      await connection.query(kept ? "COMMIT" : "ROLLBACK");
      if (kept) committed += 1;
      connection.release();
    } catch (error) {
      connection.destroy();
      throw error;
    }
  }
  return committed;
}

async function published({ rows }: MysqlHarness): Promise<{ readonly open: number; readonly counters: ReadonlyMap<string, number> }> {
  const [[open]] = (await rows("SELECT COUNT(*) FROM outbox WHERE status <> 'PUBLISHED'")) as [[number]];
  return { open, counters: new Map((await rows("SELECT id, n FROM accounts")) as [string, number][]) };
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

await describeWith("mariadb", "order and no loss on MariaDB", () => {
  let server: Server;
  const cases = casesOn((database) => server.url(database));
  beforeAll(async () => {
    server = await startMariadb();
  });
  afterAll(async () => {
    await cases.end();
    await server[Symbol.asyncDispose]();
  });

  const relayOn = ({ database }: MysqlHarness, sink: Sink): { readonly relay: Relay; readonly end: () => PromiseLike<void> } => {
    const store = mysql({ url: server.url(database), connections: 3, statementTimeoutMs: 5_000 });
    const relay = createRelay({ store, sink, leaseMs: 2_000, batch: 50, pollIntervalMs: 20 });
    return { relay, end: () => store[Symbol.asyncDispose]() };
  };

  test("ten writers on hot aggregates and four relays that come and go: every aggregate arrives as 1, 2, 3 …", async () => {
    const harness = await cases.create();
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

  test("of one aggregate, no event is claimed while an earlier one that was committed before it is not seen", async () => {
    // Writers inside the server, as fast as it goes: a snapshot that is made meanwhile may show a commit and not the one before it.
    const harness = await cases.create();
    await prepare(harness);
    const { pool, store } = harness;
    await pool.query("DROP PROCEDURE IF EXISTS raise_often");
    await pool.query(`CREATE PROCEDURE raise_often(IN times INT) BEGIN
      DECLARE i INT DEFAULT 0; DECLARE account VARCHAR(20); DECLARE raised INT;
      WHILE i < times DO
        SET account = CONCAT('a-', 1 + FLOOR(RAND() * 2));
        START TRANSACTION;
        UPDATE accounts SET n = n + 1 WHERE id = account;
        SELECT n INTO raised FROM accounts WHERE id = account;
        INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Account', account, 'Raised', CONCAT('{"n":', raised, '}'));
        COMMIT;
        SET i = i + 1;
      END WHILE;
    END`);
    const writing = Array.from({ length: writers }, () => pool.query("CALL raise_often(1500)"));
    let busy = true;
    const ended = Promise.all(writing).finally(() => (busy = false));
    await store.leases.renew("r1", 600_000);
    const holding = { relay: "r1", lanes: await store.leases.take("r1", [...Array(64).keys()]) };
    const arrived = new Map<string, number[]>();
    for (let more = true; busy || more;) {
      const window = await store.outbox.claim(holding, { limit: 2_000, open: [], narrow: false });
      for (const { envelope } of window.claims)
        arrived.set(envelope.aggregateId, [...(arrived.get(envelope.aggregateId) ?? []), counterOf(envelope.data)]);
      if (window.id !== null)
        await store.outbox.settle(
          "r1",
          window.id,
          window.claims.map((claim) => ({ claim, as: "published" })),
        );
      more = window.id !== null || window.more;
    }
    await ended;
    const { counters } = await published(harness);
    inOrder(arrived, counters);
    await harness.close();
  }, 180_000);

  test("the server is killed and restarted twenty times under load: the relay lives, nothing is lost or out of order", async () => {
    const own = await startMariadb();
    const restarted = casesOn((database) => own.url(database));
    const harness = await restarted.create();
    await prepare(harness);
    const sink = recordingSink();
    const store = mysql({ url: own.url(harness.database), connections: 4, connectTimeoutMs: 2_000, statementTimeoutMs: 5_000 });
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
    await harness.pool.end();
    await own[Symbol.asyncDispose]();
  }, 180_000);
});
