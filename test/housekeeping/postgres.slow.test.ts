import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { EventRecord } from "../../src/contracts/operator.ts";
import { createRelay } from "../../src/relay/create-relay.ts";
import { purgeStore } from "../../src/relay/housekeeping/purge.ts";
import { describeWith } from "../servers/available.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";
import { firstDeliveries, scriptedSink } from "../support/scripted-sink.ts";
import { byAggregate, createRoles, day, draft, handOn, type Place, placeOn } from "./postgres-tools.ts";

const by = { who: "ada", dryRun: false };
const soon = (): Date => new Date(Date.now() + 60_000);

await describeWith("postgres", "housekeeping on PostgreSQL", () => {
  let server: Postgres;
  beforeAll(async () => {
    server = await startPostgres({ version: 15 });
  });
  afterAll(() => server[Symbol.asyncDispose]());

  const migrated = async (options: Parameters<typeof placeOn>[1] = {}): Promise<Place> => {
    const place = await placeOn(server.url(), options);
    await place.store.schema.migrate();
    return place;
  };

  describe("purge", () => {
    test(
      "beside a relay at load and another purge: only what is published goes, once, and nobody deadlocks",
      { timeout: 120_000 },
      async () => {
        await using place = await migrated();
        const [{ deadlocks } = { deadlocks: "" }] = await place.sql<{ deadlocks: string }>(
          "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()",
        );
        const sink = scriptedSink();
        const relay = createRelay({ store: place.open(), sink, leaseMs: 5_000, batch: 100, housekeeping: false });
        await relay.start();
        const counts = new Map<string, number>();
        let producing = true;
        const producers = [0, 1, 2, 3].map(async (producer) => {
          while (producing) {
            const drafts = Array.from({ length: 25 }, (_, n) => {
              const id = `p${producer}-${n % 5}`;
              counts.set(id, (counts.get(id) ?? 0) + 1);
              return draft(id, counts.get(id)!, n === 0 ? { idempotencyKey: `${id}-${counts.get(id)!}` } : {});
            });
            await place.add(...drafts);
          }
        });
        let purging = true;
        const archived: string[] = [];
        const purger = async (archive: boolean): Promise<number> => {
          const store = place.open();
          let purged = 0;
          while (purging) {
            purged += await store.operator.purge(soon(), by, {
              keyRetentionMs: 1,
              ...(archive
                ? {
                    archive: async (events: readonly EventRecord[]) => {
                      const known = new Set(sink.log.map(({ id }) => id));
                      for (const { id, state } of events) if (state !== "PUBLISHED" || !known.has(id)) throw new Error(`${id} is ${state}`);
                      archived.push(...events.map(({ id }) => id));
                    },
                  }
                : {}),
            });
          }
          return purged;
        };
        const purgers = [purger(false), purger(true), purger(false)];
        await new Promise((resolve) => setTimeout(resolve, 5_000));
        producing = false;
        await Promise.all(producers);
        const total = [...counts.values()].reduce((sum, n) => sum + n, 0);
        for (let n = 0; sink.log.length < total && n < 600; n++) await new Promise((resolve) => setTimeout(resolve, 100));
        await relay.drain();
        purging = false;
        const purged = (await Promise.all(purgers)).reduce((sum, n) => sum + n, 0);
        const left = await place.store.operator.purge(soon(), by);
        expect(sink.log.length).toBe(total);
        for (const [, numbers] of firstDeliveries(sink.log)) expect(numbers).toEqual(numbers.map((_, at) => at + 1));
        expect([purged + left, await place.sql("SELECT 1 FROM {s}.outbox")]).toEqual([total, []]);
        expect(new Set(archived).size).toBe(archived.length);
        expect(archived.length).toBeGreaterThan(0);
        expect(await place.sql("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")).toEqual([{ deadlocks }]);
      },
    );

    test("an archive is awaited with no transaction open, and what it failed to take stays", async () => {
      await using place = await migrated();
      const hand = await handOn(place.store);
      await place.add(...Array.from({ length: 1_000 }, (_, n) => draft(`o${n % 9}`, n)));
      await hand.drain();
      let archived: readonly EventRecord[] = [];
      let answer: (error: Error | null) => void = () => undefined;
      const asked = new Promise<void>((resolve) => {
        void place.store.operator
          .purge(soon(), by, {
            archive: (events) => {
              archived = events;
              resolve();
              return new Promise((done, fail) => (answer = (error) => (error === null ? done() : fail(error))));
            },
          })
          .catch((error: unknown) => (failure = error));
      });
      let failure: unknown = null;
      await asked;
      expect(archived).toHaveLength(500);
      expect(
        await place.sql("SELECT 1 FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' AND datname = current_database()"),
      ).toEqual([]);
      await place.add(draft("o1", 1_000));
      expect(byAggregate(await hand.drain())).toEqual({ o1: [1_000] });
      answer(new Error("no room"));
      await expect.poll(() => failure).toMatchObject({ message: "no room" });
      expect(await place.store.operator.list({ limit: 2_000 })).toHaveLength(1_001);
    });

    test("a batch begins where the last one ended, though its dead rows cannot be cleaned up", async () => {
      await using place = await migrated();
      await place.sql(
        `INSERT INTO {s}.outbox (aggregate_type, aggregate_id, event_type, payload, status, published_at)
         SELECT 'Order', 'o', 'X', '{}', 'PUBLISHED', now() - g * interval '1 ms' FROM generate_series(1, 60000) g`,
      );
      const reader = await place.pool.connect();
      await reader.query("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1");
      expect(await place.store.operator.purge(soon(), by)).toBe(60_000);
      reader.release(true);
      const entries = async (): Promise<number> =>
        Number(
          (
            await place.sql<{ n: string }>(
              "SELECT idx_tup_read AS n FROM pg_stat_user_indexes WHERE schemaname = '{s}' AND indexrelname = 'outbox_published'",
            )
          )[0]!.n,
        );
      await expect.poll(entries, { timeout: 10_000 }).toBeGreaterThanOrEqual(60_000);
      expect(await entries()).toBeLessThan(70_000); // from the beginning each time, it would be several times as many
    });
  });

  describe.each([
    ["one table", {}],
    ["partitions", { partitions: "day" as const }],
  ])("least privilege, with %s", (_, layout) => {
    test("the relay's role and the operator's purge, tend partitions and look, and may do no more", async () => {
      await using place = await placeOn(server.url(), layout);
      await createRoles(place.pool);
      await place.pool.query(place.store.schema.print());
      await place.pool.query(place.store.schema.grants());
      await place.store.schema.check();
      await place.add(...Array.from({ length: 20 }, (_, n) => draft(`o${n % 3}`, n, { idempotencyKey: `k${n}` })));
      const relay = place.open({ role: "waybill_relay" });
      await (await handOn(relay)).drain();
      await place.sql("UPDATE {s}.waybill_keys SET created_at = now() - interval '8 days'");
      const archived: EventRecord[] = [];
      const archive = async (events: readonly EventRecord[]): Promise<void> => void archived.push(...events);
      await place.add(draft("o1", 20), draft("o1", 21, { idempotencyKey: "young" }));
      for (const role of ["waybill_relay", "waybill_operator"]) {
        const store = place.open({ role });
        const { partitions } = store.housekeeping!;
        expect(await partitions!.create()).toMatchObject({ undone: [] });
        expect(await partitions!.drop(soon(), role, { emptied: false })).toMatchObject({ undone: [] });
        expect((await purgeStore(store, soon(), { who: role, dryRun: false }, { archive })).events).toBe(role === "waybill_relay" ? 20 : 0);
        expect(await store.housekeeping!.watch()).toMatchObject({
          bytes: expect.any(Number) as number,
          unseen: expect.stringContaining(`GRANT pg_read_all_stats TO ${role}`) as string,
        });
      }
      expect(archived).toHaveLength(20);
      expect(await place.sql("SELECT key FROM {s}.waybill_keys")).toEqual([{ key: "young" }]);
      expect((await place.open({ role: "waybill_operator" }).operator.status()).states).toMatchObject({ PENDING: 2, PUBLISHED: 0 });
      for (const role of ["waybill_writer", "waybill_subscriber"]) {
        const store = place.open({ role });
        await expect(store.operator.purge(soon(), by)).rejects.toMatchObject({ code: "STORE_READ_ONLY" });
        if ("partitions" in layout) {
          const client = await place.pool.connect();
          await client.query(`SET ROLE ${role}`);
          await expect(client.query(`SELECT * FROM ${place.schema}.waybill_add_partitions(3)`)).rejects.toThrow(/permission denied/);
          await expect(client.query(`SELECT * FROM ${place.schema}.waybill_drop_partition(now(), false, '{}')`)).rejects.toThrow(
            /permission denied/,
          );
          client.release(true);
        }
      }
    });
  });

  describe("delete on publish", () => {
    test("leaves nothing to purge, keeps order and holds, and remembers keys", async () => {
      await using place = await migrated({ onPublish: "delete" });
      const hand = await handOn(place.store);
      await place.add(...[1, 2, 3].map((n) => draft("a", n, { idempotencyKey: `a${n}` })), ...[1, 2].map((n) => draft("b", n)));
      const window = await hand.claim();
      const first = window.claims.find(({ envelope }) => envelope.aggregateId === "a")!;
      await hand.settle(window, (claim) => {
        if (claim.envelope.aggregateId === "b") return { claim, as: "published" };
        return claim === first ? { claim, as: "retry", afterMs: 1, error: "later" } : { claim, as: "returned" };
      });
      await place.add(draft("a", 4), draft("a", 2, { idempotencyKey: "a2" }));
      expect((await place.store.operator.status()).states).toMatchObject({ PUBLISHED: 0, FAILED: 1, PENDING: 3 });
      expect(byAggregate(await hand.drain())).toEqual({ a: [1, 2, 3, 4] });
      const status = await place.store.operator.status();
      expect([Object.values(status.states).reduce((sum, n) => sum + n, 0), status.holds.aggregates, status.window.events]).toEqual([
        0, 0, 0,
      ]);
      expect(await place.store.operator.purge(soon(), by)).toBe(0);
      // The key is known though its event is gone; an id is not.
      await place.add(draft("a", 1, { idempotencyKey: "a1" }));
      expect(await place.sql("SELECT 1 FROM {s}.outbox")).toEqual([]);
      await place.add(draft("a", 5, { id: first.envelope.id }));
      expect(byAggregate(await hand.drain())).toEqual({ a: [5] });
    });

    test("what was settled twice, by a relay that lost its lanes, or after a death, is gone once", async () => {
      await using place = await migrated({ onPublish: "delete" });
      const hand = await handOn(place.store);
      await place.add(draft("a", 1), draft("a", 2));
      const window = await hand.claim();
      await hand.settle(window, (claim) => ({ claim, as: claim === window.claims[0] ? "published" : "returned" }));
      await hand.settle(window);
      expect(byAggregate((await hand.claim()).claims)).toEqual({ a: [2] });
      await place.sql("DELETE FROM {s}.waybill_relays");
      const heir = await handOn(place.store, "heir");
      await hand.settle(window);
      expect((await place.store.operator.status()).window).toEqual({ events: 0, suspects: 1 });
      const narrow = await place.store.outbox.claim(
        { relay: "heir", lanes: new Map((await place.store.leases.look()).lanes.map(({ lane, epoch }) => [lane, epoch])) },
        { limit: 10, open: [], narrow: true },
      );
      expect(byAggregate(narrow.claims)).toEqual({ a: [2] });
      await heir.settle(narrow);
      expect([await place.sql("SELECT 1 FROM {s}.outbox"), (await heir.claim()).suspects]).toEqual([[], 0]);
    });

    test("a relay's housekeeping finds nothing to do, and a discarded event goes by its age", async () => {
      await using place = await migrated({ onPublish: "delete" });
      const hand = await handOn(place.store);
      await place.add(draft("a", 1), draft("a", 2));
      const window = await hand.claim();
      await hand.settle(window, (claim) =>
        claim === window.claims[0] ? { claim, as: "parked", error: "never", release: false } : { claim, as: "returned" },
      );
      await place.store.operator.discard({}, by);
      expect(byAggregate(await hand.drain())).toEqual({ a: [2] });
      expect(await purgeStore(place.store, new Date(Date.now() - day), by, {})).toEqual({
        events: 0,
        dropped: [],
        moved: 0,
        undone: [],
        kept: [],
      });
      expect((await purgeStore(place.store, soon(), by, {})).events).toBe(1);
    });
  });
});
