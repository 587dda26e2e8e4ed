import { afterAll, beforeAll, expect, test } from "vitest";
import { postgres, type PostgresStore } from "../../src/stores/postgres/index.ts";
import { describeWith } from "../servers/available.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";
import { harnessOn, type PostgresHarness } from "./postgres-harness.ts";

const all = [...Array(64).keys()];
const ttlMs = 9_000;
const seat = { consumer: "billing", topic: "order.events" };

await describeWith("postgres", "the wall clock of a PostgreSQL server", () => {
  let server: Postgres;
  beforeAll(async () => {
    server = await startPostgres({ version: 15 });
  });
  afterAll(() => server[Symbol.asyncDispose]());

  interface Scene extends PostgresHarness {
    /** What another process would have. */
    open(): PostgresStore;
    /** After a step of the clock, whatever was written before it is that much nearer or farther. */
    step(hours: 1 | -1): Promise<void>;
    pass(ms: number): void;
  }
  const own = (name: string, body: (scene: Scene) => Promise<void>): void => {
    test(name, async () => {
      const harness = await harnessOn(() => server.url())();
      let passed = 0;
      const clock = { ...harness.storeClock, monotonic: () => harness.storeClock.monotonic() + passed };
      try {
        await body({
          ...harness,
          open: () => postgres({ pool: harness.pool, schema: harness.schema, clock }),
          async step(hours) {
            for (const table of ["waybill_relays", "waybill_seats"])
              await harness.pool.query(
                `UPDATE ${harness.schema}.${table} SET expires_at = expires_at - interval '${hours} hours', renewed_at = renewed_at - interval '${hours} hours'`,
              );
          },
          pass: (ms) => void (passed += ms),
        });
      } finally {
        await harness.close();
      }
    });
  };

  own("that steps forward takes no lane from a live relay, whether it was seen before or not", async ({ open, step, pass }) => {
    const [a, b] = [open(), open()];
    await a.leases.renew("a", ttlMs);
    expect((await a.leases.take("a", all)).size).toBe(64);
    await b.leases.look();
    await step(1);
    const c = open(); // has seen nothing before the step
    for (let thirds = 0; thirds < 6; thirds++) {
      for (const [name, store] of [
        ["b", b],
        ["c", c],
      ] as const) {
        await store.leases.renew(name, ttlMs);
        expect((await store.leases.look()).live).toContain("a");
        expect((await store.leases.take(name, all)).size).toBe(0);
      }
      pass(ttlMs / 3);
      await a.leases.renew("a", ttlMs);
    }
  });

  own("that steps forward keeps a dead relay's lanes for half a lease, from one that never saw it alive", async ({ open, step, pass }) => {
    const a = open();
    await a.leases.renew("a", ttlMs);
    await a.leases.take("a", all);
    await step(1);
    const b = open();
    await b.leases.renew("b", ttlMs);
    expect((await b.leases.take("b", all)).size).toBe(0);
    pass(ttlMs / 2);
    expect((await b.leases.take("b", all)).size).toBe(64);
  });

  own("that steps back keeps no dead relay's lanes for the hour, and forgets the relay", async ({ open, step, pass }) => {
    const [a, b] = [open(), open()];
    await a.leases.renew("a", ttlMs);
    await a.leases.take("a", all);
    await b.leases.look();
    await step(-1);
    const c = open(); // has seen nothing before the step
    await c.leases.look();
    pass(ttlMs);
    expect((await b.leases.take("b", all.slice(0, 32))).size).toBe(32);
    expect((await c.leases.take("c", all.slice(32))).size).toBe(32);
    await c.leases.renew("c", ttlMs);
    expect((await c.leases.look()).live).toEqual(["c"]);
    expect((await c.operator.status()).relays.map(({ relay }) => relay)).toEqual(["c"]);
  });

  own("that steps moves no seat from a live subscriber, and keeps none of a dead one", async ({ open, step, pass }) => {
    const [one, two] = [open().inbox, open().inbox];
    const [p1, p2] = ["p1", "p2"].map((owner) => ({ ...seat, owner })) as [
      typeof seat & { owner: string },
      typeof seat & { owner: string },
    ];
    expect(await one.sit(p1, ttlMs)).toBe(true);
    for (const hours of [1, -1, 1, -1] as const) {
      await step(hours);
      expect(await two.sit(p2, ttlMs)).toBe(false);
      pass(ttlMs / 3);
      expect(await one.sit(p1, ttlMs)).toBe(true);
      expect(await two.sit(p2, ttlMs)).toBe(false);
    }
    await step(-1);
    pass(ttlMs);
    expect(await two.sit(p2, ttlMs)).toBe(true);
    expect(await one.sit(p1, ttlMs)).toBe(false);
  });
});
