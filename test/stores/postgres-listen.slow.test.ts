import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { systemClock } from "../../src/core/clock.ts";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { postgres } from "../../src/stores/postgres/index.ts";
import { describeWith } from "../servers/available.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";
import { harnessOn } from "./postgres-harness.ts";

await describeWith("postgres", "hints between processes on PostgreSQL", () => {
  let server: Postgres;
  beforeAll(async () => {
    server = await startPostgres({ version: 15 });
  });
  afterAll(() => server[Symbol.asyncDispose]());

  const draft = { aggregateType: "Order", aggregateId: "1", type: "E", payload: 1 };
  const forever = 60_000;

  test("a commit elsewhere wakes a relay that listens, and many commits are one hint", async () => {
    const harness = await harnessOn(() => server.url())();
    await using producer = postgres({ url: server.url(), schema: harness.schema, listen: true });
    await using listener = postgres({ url: server.url(), schema: harness.schema, listen: true });
    const { signal } = new AbortController();
    expect(await listener.wake.wait(systemClock, forever, signal), "it has begun to listen").toBe(true);
    const waiting = listener.wake.wait(systemClock, forever, signal);
    const outbox = createOutbox({ store: producer });
    for (let n = 0; n < 50; n++) await outbox.transaction(harness.pool, (_, events) => events.add(draft));
    expect(await waiting).toBe(true);
    const { rows } = await harness.pool.query<{ calls: string }>(
      "SELECT count(*) AS calls FROM pg_stat_activity WHERE query LIKE 'LISTEN%'",
    );
    expect(Number(rows[0]!.calls)).toBe(1);
    await harness.close();
  });

  test("an event of the user's own transaction is no hint before its COMMIT, and one hint after it", async () => {
    const harness = await harnessOn(() => server.url())();
    const hints: string[] = [];
    const wake = { notify: () => void hints.push("hint"), wait: () => Promise.resolve(false) };
    const outbox = createOutbox({ store: { ...harness.store, wake } });
    const others = Array.from({ length: 12 }, () => createOutbox({ store: postgres({ pool: harness.pool, schema: harness.schema }) }));
    const client = await harness.pool.connect();
    for (const end of ["COMMIT", "ROLLBACK", "COMMIT"]) {
      await client.query("BEGIN");
      await outbox.add(client, draft);
      await outbox.add(client, [draft, draft]);
      for (const other of others) await other.add(client, draft);
      expect(client.listenerCount("drain")).toBe(1);
      await client.query("SELECT pg_sleep(0.05)");
      expect(hints.splice(0)).toEqual([]);
      await client.query(end);
      await client.query("SELECT 1");
      expect(hints.splice(0)).toEqual(["hint"]);
    }
    expect(client.listenerCount("drain")).toBe(0);
    client.release();
    await harness.close();
  });

  test("a listener whose connection is cut listens again", async () => {
    const harness = await harnessOn(() => server.url())();
    await using listener = postgres({ url: server.url(), schema: harness.schema, listen: true });
    const { signal } = new AbortController();
    await listener.wake.wait(systemClock, forever, signal);
    await harness.pool.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'");
    expect(await listener.wake.wait(systemClock, forever, signal), "it has begun again").toBe(true);
    const waiting = listener.wake.wait(systemClock, forever, signal);
    await harness.pool.query("NOTIFY waybill");
    expect(await waiting).toBe(true);
    await harness.close();
  });

  test("the connection that listens goes back to the pool with the last relay that waits, and another relay has it again", async () => {
    const harness = await harnessOn(() => server.url())();
    const pool = new pg.Pool({ connectionString: server.url() });
    await using listener = postgres({ pool, schema: harness.schema, listen: true });
    const [first, second, third] = [new AbortController(), new AbortController(), new AbortController()];
    expect(await listener.wake.wait(systemClock, forever, first.signal), "it has begun to listen").toBe(true);
    const others = [listener.wake.wait(systemClock, forever, first.signal), listener.wake.wait(systemClock, forever, second.signal)];
    const out = (): number => pool.totalCount - pool.idleCount;
    first.abort();
    await others[0];
    expect(out(), "one relay still waits").toBe(1);
    second.abort();
    await expect.poll(out).toBe(0);
    expect(await listener.wake.wait(systemClock, forever, third.signal), "it listens again").toBe(true);
    const waiting = listener.wake.wait(systemClock, forever, third.signal);
    await harness.pool.query("NOTIFY waybill");
    expect(await waiting).toBe(true);
    third.abort();
    await pool.end(); // which waits for every connection that is out
    await harness.close();
  });

  test("without it, nothing is sent and no connection is kept", async () => {
    const harness = await harnessOn(() => server.url())();
    const listeners = async (): Promise<number> =>
      (await harness.pool.query("SELECT 1 FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname IS NOT NULL")).rows.length;
    await expect.poll(listeners, { timeout: 15_000 }).toBe(0); // those of other tests have gone
    await createOutbox({ store: harness.store }).transaction(harness.pool, (_, events) => events.add(draft));
    expect(await harness.store.wake.wait(systemClock, 1, new AbortController().signal)).toBe(true);
    expect(await listeners()).toBe(0);
    await harness.close();
  });
});
