import { afterAll, beforeAll, expect, test, vi } from "vitest";
import type { EventRecord } from "../../src/contracts/operator.ts";
import { systemClock } from "../../src/core/clock.ts";
import { createRelay } from "../../src/relay/create-relay.ts";
import { purgeStore } from "../../src/relay/housekeeping/purge.ts";
import { betweenTriesMs } from "../../src/stores/kit/partitions.ts";
import { describeWith, type ServerName } from "../servers/available.ts";
import { startPostgres, type Postgres, type PostgresVersion } from "../servers/postgres.ts";
import { firstDeliveries, scriptedSink } from "../support/scripted-sink.ts";
import { awayFromMidnight } from "./midnight.ts";
import { byAggregate, day, draft, handOn, type Place, placeOn } from "./postgres-tools.ts";

const by = { who: "ada", dryRun: false };

const versions: readonly (readonly [ServerName, PostgresVersion])[] = [
  ["postgres", 15],
  ["postgres14", 14],
  ["postgres18", 18],
];

for (const [name, version] of versions)
  await describeWith(name, `time partitions on PostgreSQL ${version}`, () => {
    let server: Postgres;
    beforeAll(async () => {
      server = await startPostgres({ version, settings: { autovacuum: "off" } });
    });
    afterAll(() => server[Symbol.asyncDispose]());

    const partitioned = async (unit: "day" | "week" | "month" = "day"): Promise<Place> => {
      await awayFromMidnight();
      const place = await placeOn(server.url(), { partitions: unit });
      await place.store.schema.migrate();
      return place;
    };

    /** A partition of a day long past, into which everything of today is moved as though it had been added, and published, then. */
    const growOld = async ({ sql }: Place, days = 10): Promise<string> => {
      const [old] = await sql<{ from: string; to: string; name: string }>(
        `SELECT d::text AS from, (d + interval '1 day')::text AS to, 'outbox_' || to_char(d AT TIME ZONE 'UTC', 'YYYYMMDD') AS name
       FROM (SELECT date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' - interval '${days} days' AS d) d`,
      );
      await sql(
        `CREATE TABLE {s}.${old!.name} (LIKE {s}.outbox INCLUDING ALL);
       ALTER TABLE {s}.outbox ATTACH PARTITION {s}.${old!.name} FOR VALUES FROM ('${old!.from}') TO ('${old!.to}')`,
      );
      await sql(
        `BEGIN; LOCK TABLE {s}.outbox IN ACCESS EXCLUSIVE MODE; SET LOCAL waybill.moving = 'on';
       UPDATE {s}.outbox SET created_at = created_at - interval '${days} days', published_at = published_at - interval '${days} days'
       WHERE created_at > now() - interval '1 day'; COMMIT`,
      );
      return old!.name;
    };
    const weekAgo = (): Date => new Date(Date.now() - 7 * day);
    const names = async ({ sql }: Place): Promise<string[]> =>
      (
        await sql<{ name: string }>(
          "SELECT c.relname AS name FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid WHERE inhparent = '{s}.outbox'::regclass ORDER BY 1",
        )
      ).map(({ name }) => name);

    test.each(["day", "week", "month"] as const)(
      "migrate makes the one of this %s, three ahead and a default one, without a gap",
      async (unit) => {
        await using place = await partitioned(unit);
        const { sql, store } = place;
        await sql("SET TimeZone = 'America/New_York'");
        const bounds = await sql<{ name: string; from: Date | null; to: Date | null }>(
          `SELECT c.relname AS name, substring(pg_get_expr(c.relpartbound, c.oid) FROM $$FROM \\('([^']+)$$)::timestamptz AS from,
              substring(pg_get_expr(c.relpartbound, c.oid) FROM $$TO \\('([^']+)$$)::timestamptz AS to
       FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid WHERE inhparent = '{s}.outbox'::regclass ORDER BY 2 NULLS LAST`,
        );
        expect(bounds.map(({ from }) => from === null)).toEqual([false, false, false, false, true]);
        expect(bounds[0]!.from!.getTime()).toBeLessThanOrEqual(Date.now());
        expect(bounds[0]!.to!.getTime()).toBeGreaterThan(Date.now());
        for (let at = 1; at < 4; at++) expect(bounds[at]!.from).toEqual(bounds[at - 1]!.to);
        expect(bounds.slice(0, 4).every(({ from }) => from!.toISOString().endsWith("T00:00:00.000Z"))).toBe(true);
        if (unit === "week") expect(bounds[0]!.from!.getUTCDay()).toBe(1);
        if (unit === "month") expect(bounds[0]!.from!.getUTCDate()).toBe(1);
        const { rows } = await place.pool.query<{ partitions: string }>(`SELECT partitions FROM ${place.schema}.waybill_meta`);
        expect(rows).toEqual([{ partitions: unit }]);
        expect(await store.housekeeping!.partitions!.create()).toMatchObject({ created: [], undone: [] });
      },
    );

    test("one that is missing is made by housekeeping, and by migrate", async () => {
      await using place = await partitioned();
      const all = await names(place);
      await place.sql(`DROP TABLE {s}.${all[2]!}; DROP TABLE {s}.${all[3]!}`);
      expect(await place.store.housekeeping!.partitions!.create()).toMatchObject({ created: [all[2], all[3]], undone: [] });
      await place.sql(`DROP TABLE {s}.${all[2]!}`);
      expect(await place.store.schema.migrate()).toEqual([]);
      expect(await names(place)).toEqual(all);
    });

    test("a layout is not changed under the user's feet", async () => {
      await using place = await partitioned("day");
      for (const schema of [place.open({ partitions: "week" }).schema]) {
        const told = { code: "INVALID_OPTION", message: expect.stringMatching(/"week" was asked for.*is partitioned by day/) as string };
        await expect(schema.migrate()).rejects.toMatchObject(told);
        await expect(schema.check()).rejects.toMatchObject(told);
      }
      const plain = place.open();
      expect(await plain.schema.migrate()).toEqual([]);
      await plain.schema.check();
      await place.add(draft("a", 1));
      expect(byAggregate(await (await handOn(plain)).drain())).toEqual({ a: [1] });
      await using other = await placeOn(server.url());
      await other.store.schema.migrate();
      await expect(other.open({ partitions: "day" }).schema.migrate()).rejects.toThrow(/has no partitions: leave the option out/);
      expect(await other.store.housekeeping!.partitions!.create()).toMatchObject({ created: [], undone: [] });
      expect(await other.store.housekeeping!.partitions!.drop(new Date(), "ada", { emptied: false })).toMatchObject({
        dropped: [],
        undone: [],
      });
      expect(() => place.open({ partitions: "hour" as never })).toThrow(/partitions must be one of day, week, month/);
    });

    test("no insert is refused, whatever its moment", async () => {
      await using place = await partitioned();
      for (const at of ["0001-01-01", "2001-01-01", "2999-01-01", "9999-12-31"])
        await place.sql(
          "INSERT INTO {s}.outbox (aggregate_type, aggregate_id, event_type, payload, created_at, available_at) VALUES ('Order', 'o', 'X', '{}', $1, 'infinity')",
          [at],
        );
      expect(await place.sql("SELECT DISTINCT tableoid::regclass::text AS at FROM {s}.outbox")).toEqual([
        { at: `${place.schema}.outbox_default` },
      ]);
      expect((await place.store.operator.list({ limit: 10 })).map(({ availableAt }) => availableAt!.getTime())).toEqual(
        Array.from({ length: 4 }, () => 8_640_000_000_000_000),
      );
      // A time of which the default partition has events stays there.
      const [, tomorrow, later] = (await names(place)).filter((name) => name !== "outbox_default");
      await place.sql(`DROP TABLE {s}.${tomorrow!}; DROP TABLE {s}.${later!}`);
      await place.sql(
        "INSERT INTO {s}.outbox (aggregate_type, aggregate_id, event_type, payload, created_at) VALUES ('Order', 'o', 'X', '{}', now() + interval '1 day')",
      );
      const report = await place.store.housekeeping!.partitions!.create();
      expect(report.created).toEqual([later]);
      expect(report.undone).toEqual([`partition ${tomorrow!} was not made: events of that time are in the default partition already`]);
    });

    test("an old one goes whole; what is not published moves out, is published in order and used its key once", async () => {
      await using place = await partitioned();
      const hand = await handOn(place.store);
      await place.add(...["a", "b", "c", "d"].flatMap((id) => [1, 2, 3].map((n) => draft(id, n, { idempotencyKey: `${id}${n}` }))));
      await place.add(draft("late", 1, { availableAt: new Date(Date.now() + 100 * day) }));
      const window = await hand.claim();
      await hand.settle(window, (claim) => {
        const { aggregateId } = claim.envelope;
        const first = claim === window.claims.find(({ envelope }) => envelope.aggregateId === aggregateId);
        if (aggregateId === "a") return { claim, as: "published" };
        if (!first) return { claim, as: "returned" };
        if (aggregateId === "b") return { claim, as: "retry", afterMs: 1, error: "later" };
        if (aggregateId === "c") return { claim, as: "parked", error: "never", release: false };
        return { claim, as: "returned", destination: { topic: "t", why: "down" } };
      });
      // b's first again, once its millisecond is over, in a window while everything moves; the others become BLOCKED
      await expect.poll(async () => (await hand.claim()).id).not.toBe(null);
      const before = await place.sql(
        "SELECT seq, id, lane, status, retry_count, idempotency_key FROM {s}.outbox WHERE aggregate_id <> 'a' ORDER BY seq",
      );
      const old = await growOld(place);
      expect(await place.store.housekeeping!.partitions!.drop(weekAgo(), "ada", { emptied: false })).toEqual({
        ...{ created: [], dropped: [old], events: 3, moved: 10, undone: [] },
      });
      expect(await names(place)).not.toContain(old);
      expect(await place.sql("SELECT seq, id, lane, status, retry_count, idempotency_key FROM {s}.outbox ORDER BY seq")).toEqual(before);
      expect(await place.sql("SELECT DISTINCT tableoid::regclass::text AS at FROM {s}.outbox")).toEqual([
        { at: `${place.schema}.outbox_default` },
      ]);
      expect(
        (await place.sql<{ events: string }>("SELECT events FROM {s}.waybill_audit WHERE action = 'purge'")).map(({ events }) => events),
      ).toEqual(["3"]);

      await place.add(...["a", "b", "c", "d"].map((id) => draft(id, 4)), draft("b", 2, { idempotencyKey: "b2" }));
      await place.store.operator.redrive({}, by);
      await hand.release("t");
      expect(byAggregate(await hand.drain())).toEqual({ a: [4], b: [1, 2, 3, 4], c: [1, 2, 3, 4], d: [1, 2, 3, 4] });
    });

    test("when not everything that waits can be moved out, all of it stays where it is", async () => {
      await using place = await partitioned();
      await place.add(draft("a", 1), draft("b", 1));
      const old = await growOld(place);
      await place.sql(
        `CREATE FUNCTION {s}.meddle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN CASE WHEN NEW.aggregate_id = 'a' THEN NULL ELSE NEW END; END $$;
       CREATE TRIGGER meddle BEFORE INSERT ON {s}.outbox FOR EACH ROW EXECUTE FUNCTION {s}.meddle()`,
      );
      const dropping = place.store.housekeeping!.partitions!.drop(weekAgo(), "ada", { emptied: false });
      await expect(dropping).rejects.toThrow(/only 1 of 2 events could be moved out/);
      expect(await names(place)).toContain(old);
      expect(byAggregate(await (await handOn(place.store)).drain())).toEqual({ a: [1], b: [1] });
    });

    test("what was published since stays, wherever it was added", async () => {
      await using place = await partitioned();
      const hand = await handOn(place.store);
      await place.add(draft("old", 1), draft("new", 1));
      await hand.drain();
      const old = await growOld(place);
      await place.sql("UPDATE {s}.outbox SET published_at = now() WHERE aggregate_id = 'new'");
      await place.sql("UPDATE {s}.outbox SET status = 'PUBLISHED', published_at = NULL WHERE aggregate_id = 'none'");
      const purged = await purgeStore(place.store, weekAgo(), by, {});
      expect(purged).toEqual({ events: 1, dropped: [old], moved: 1, undone: [], kept: [] });
      expect((await place.store.operator.list({ limit: 10 })).map(({ aggregateId, state }) => [aggregateId, state])).toEqual([
        ["new", "PUBLISHED"],
      ]);
    });

    test("with an archive, one goes only when everything in it is archived", async () => {
      await using place = await partitioned();
      const hand = await handOn(place.store);
      await place.add(...Array.from({ length: 1_200 }, (_, n) => draft(`o${n % 9}`, n)));
      await hand.drain();
      await place.add(draft("waits", 1, { availableAt: new Date(Date.now() + 100 * day) }));
      const old = await growOld(place);
      expect((await place.store.housekeeping!.partitions!.drop(weekAgo(), "ada", { emptied: true })).undone).toEqual([
        `partition ${old} was not dropped: some of its events have not been archived yet`,
      ]);
      expect((await place.sql("SELECT 1 FROM {s}.outbox")).length).toBe(1_201);
      const archived: EventRecord[] = [];
      const archive = async (events: readonly EventRecord[]): Promise<void> => void archived.push(...events);
      expect(await purgeStore(place.store, weekAgo(), by, { archive })).toEqual({
        events: 1_200,
        dropped: [old],
        moved: 1,
        undone: [],
        kept: [],
      });
      expect(new Set(archived.map(({ id }) => id)).size).toBe(1_200);
    });

    test("one that holds too much that waits stays, and so does all that is in it", async () => {
      await using place = await partitioned();
      await place.sql(
        "INSERT INTO {s}.outbox (aggregate_type, aggregate_id, event_type, payload) SELECT 'Order', 'o' || g, 'X', '{}' FROM generate_series(1, 10001) g",
      );
      const old = await growOld(place);
      const report = await place.store.housekeeping!.partitions!.drop(weekAgo(), "ada", { emptied: false });
      expect(report).toMatchObject({
        dropped: [],
        undone: [`partition ${old} was not dropped: more than 10000 of its events are not published yet`],
      });
      expect((await (await handOn(place.store)).drain()).length).toBe(10_001);
    });

    test("while transactions use the outbox, dropping gives way, and producers wait for a moment only", async () => {
      await using place = await partitioned();
      const hand = await handOn(place.store);
      await place.add(draft("a", 1));
      await hand.drain();
      const old = await growOld(place);
      const client = await place.pool.connect();
      await client.query(
        `BEGIN; INSERT INTO ${place.schema}.outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', 'open', 'X', '{}')`,
      );
      let longest = 0;
      let ended = false;
      const producing = (async () => {
        for (let n = 1; !ended; n++) {
          const from = performance.now();
          await place.add(draft("b", n));
          longest = Math.max(longest, performance.now() - from);
        }
      })();
      const busy = await place.store.housekeeping!.partitions!.drop(weekAgo(), "ada", { emptied: false });
      expect(busy).toMatchObject({
        dropped: [],
        undone: [expect.stringMatching(/^partition \w+ was not dropped: transactions that use the outbox/)],
      });
      await client.query("COMMIT");
      client.release();
      expect((await place.store.housekeeping!.partitions!.drop(weekAgo(), "ada", { emptied: false })).dropped).toEqual([old]);
      ended = true;
      await producing;
      expect(longest, "not for as long as it is tried").toBeLessThan(5_000);
      const { b } = byAggregate(await hand.drain());
      expect(b).toEqual(b!.map((_, at) => at + 1));
    });

    test("two that drop at once do not wait for each other", async () => {
      await using place = await partitioned();
      await place.add(draft("a", 1));
      await (await handOn(place.store)).drain();
      const old = await growOld(place);
      const slept = vi.spyOn(systemClock, "sleep");
      const reports = await Promise.all(
        Array.from({ length: 4 }, () => place.open().housekeeping!.partitions!.drop(weekAgo(), "ada", { emptied: false })),
      );
      expect(reports.flatMap(({ dropped }) => dropped)).toEqual([old]);
      expect(reports.flatMap(({ undone }) => undone)).toEqual([]);
      const pauses = slept.mock.calls.filter(([ms]) => ms === betweenTriesMs);
      slept.mockRestore();
      expect(pauses, "nobody found it busy").toEqual([]);
    });

    test("partitions come and go under relays at work: nothing is lost, doubled or out of order", async () => {
      await using place = await partitioned();
      const sink = scriptedSink();
      const relays = ["r1", "r2"].map((relayId) =>
        createRelay({ store: place.open(), sink, relayId, leaseMs: 5_000, batch: 50, housekeeping: false }),
      );
      await Promise.all(relays.map((relay) => relay.start()));
      // Lanes that change hands may bring an event twice by themselves.
      await expect
        .poll(() => place.sql("SELECT count(*)::int AS n FROM {s}.waybill_lanes WHERE owner IS NOT NULL GROUP BY owner"), {
          timeout: 20_000,
        })
        .toEqual([{ n: 32 }, { n: 32 }]);
      let ended = false;
      const counts = new Map<string, number>();
      const producers = [0, 1, 2].map(async (producer) => {
        while (!ended) {
          const drafts = Array.from({ length: 20 }, (_, n) => {
            const id = `p${producer}-${n % 5}`;
            counts.set(id, (counts.get(id) ?? 0) + 1);
            return draft(id, counts.get(id)!);
          });
          await place.add(...drafts);
          await new Promise((resolve) => setTimeout(resolve, 20));
        }
      });
      const dropped: string[] = [];
      let moved = 0;
      for (let days = 10; days < 16; days++) {
        await new Promise((resolve) => setTimeout(resolve, 300));
        // An old partition with whatever is there now, in whatever state; some of it is in windows.
        await growOld(place, days);
        // One that is busy says so, and is tried again.
        for (let undone = 1; undone > 0;) {
          const report = await place.store.housekeeping!.partitions!.drop(weekAgo(), "ada", { emptied: false });
          dropped.push(...report.dropped);
          moved += report.moved;
          undone = report.undone.length;
        }
      }
      ended = true;
      await Promise.all(producers);
      const total = [...counts.values()].reduce((sum, n) => sum + n, 0);
      for (let n = 0; sink.log.length < total && n < 600; n++) await new Promise((resolve) => setTimeout(resolve, 100));
      await Promise.all(relays.map((relay) => relay.drain()));
      expect(dropped.length).toBe(6);
      expect(moved).toBeGreaterThan(0);
      expect(sink.log.length).toBe(total);
      for (const [, numbers] of firstDeliveries(sink.log)) expect(numbers).toEqual(numbers.map((_, at) => at + 1));
    });
  });
