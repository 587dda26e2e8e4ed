import { afterAll, beforeAll, expect, test } from "vitest";
import type { PartitionReport } from "../../src/contracts/housekeeping.ts";
import type { EventRecord } from "../../src/contracts/operator.ts";
import { createRelay } from "../../src/relay/create-relay.ts";
import { purgeStore } from "../../src/relay/housekeeping/purge.ts";
import { mysql } from "../../src/stores/mysql/index.ts";
import { describeWith } from "../servers/available.ts";
import { startMariadb } from "../servers/mariadb.ts";
import type { Server } from "../servers/server.ts";
import { firstDeliveries, scriptedSink } from "../support/scripted-sink.ts";
import { awayFromMidnight } from "./midnight.ts";
import { breaking, mysqlPlaceOn, type MysqlPlace } from "./mysql-tools.ts";
import { byAggregate, day, draft, handOn } from "./postgres-tools.ts";

const by = { who: "ada", dryRun: false };

await describeWith("mariadb", "time partitions on MariaDB", () => {
  let server: Server;
  beforeAll(async () => {
    server = await startMariadb();
  });
  afterAll(() => server[Symbol.asyncDispose]());

  const partitioned = async (unit: "day" | "week" | "month" = "day"): Promise<MysqlPlace> => {
    await awayFromMidnight();
    const place = await mysqlPlaceOn((database) => server.url(database), { partitions: unit });
    await place.store.schema.migrate();
    return place;
  };
  const layout = ({ sql }: MysqlPlace): Promise<{ name: string; ends: string }[]> =>
    sql(
      `SELECT PARTITION_NAME AS name, REPLACE(PARTITION_DESCRIPTION, '''', '') AS ends FROM information_schema.PARTITIONS
       WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'outbox' ORDER BY PARTITION_ORDINAL_POSITION`,
    );
  const names = async (place: MysqlPlace): Promise<string[]> => (await layout(place)).map(({ name }) => name);
  const iso = (ms: number): string => new Date(ms).toISOString().slice(0, 10);
  const weekAgo = (): Date => new Date(Date.now() - 7 * day);
  const dropOld = (place: MysqlPlace, emptied = false): Promise<PartitionReport> =>
    place.store.housekeeping!.partitions!.drop(weekAgo(), "ada", { emptied });

  /** A partition of a day long past, into which everything of today is moved as though it had been added, and published, then. */
  const growOld = async (place: MysqlPlace, days = 10): Promise<string> => {
    const today = (await layout(place)).find(({ ends }) => ends === "MAXVALUE" || ends > iso(Date.now()))!;
    const old = `p${iso(Date.now() - days * day).replaceAll("-", "")}`;
    const connection = await place.pool.getConnection();
    // Without a counter in the other partitions, the server would give numbers twice.
    await connection.query("LOCK TABLES outbox WRITE");
    const [[next]] = (await connection.query(
      "SELECT GREATEST(AUTO_INCREMENT, (SELECT COALESCE(MAX(seq), 0) + 1 FROM outbox)) AS n FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'outbox'",
    )) as unknown as [[{ n: number }]];
    await connection.query(`ALTER TABLE outbox AUTO_INCREMENT = ${next.n}`);
    await connection.query(
      `ALTER TABLE outbox REORGANIZE PARTITION ${today.name} INTO (PARTITION ${old} VALUES LESS THAN ('${iso(Date.now() - (days - 1) * day)}'),
         PARTITION ${today.name} VALUES LESS THAN ('${today.ends}'))`,
    );
    await connection.query("UNLOCK TABLES");
    await connection.query("START TRANSACTION");
    await connection.query("SELECT lane FROM waybill_lanes ORDER BY lane FOR UPDATE");
    await connection.query(
      `UPDATE outbox SET placed_at = placed_at - INTERVAL ${days} DAY, created_at = created_at - INTERVAL ${days} DAY, published_at = published_at - INTERVAL ${days} DAY
       WHERE placed_at > UTC_TIMESTAMP(6) - INTERVAL 1 DAY`,
    );
    await connection.query("COMMIT");
    connection.release();
    return old;
  };

  test.each(["day", "week", "month"] as const)("migrate makes the one of this %s, three ahead, a first and a last one", async (unit) => {
    await using place = await partitioned(unit);
    const all = await layout(place);
    expect([all[0]!.name, all.at(-1)!.name, all.at(-1)!.ends]).toEqual(["rest", "later", "MAXVALUE"]);
    const made = all.slice(1, -1);
    expect(made.length).toBe(4);
    const begins = made.map(({ name }) => Date.parse(name.replace(/^p(....)(..)(..)$/, "$1-$2-$3")));
    expect(begins[0]).toBeLessThanOrEqual(Date.now());
    expect(Date.parse(made[0]!.ends)).toBeGreaterThan(Date.now());
    for (let at = 1; at < 4; at++) expect(begins[at]).toBe(Date.parse(made[at - 1]!.ends));
    if (unit === "week") expect(new Date(begins[0]!).getUTCDay()).toBe(1);
    if (unit === "month") expect(new Date(begins[0]!).getUTCDate()).toBe(1);
    expect(await place.store.housekeeping!.partitions!.create()).toMatchObject({ created: [], undone: [] });
  });

  test("those that are missing are made by housekeeping and by migrate, and what the last one has taken meanwhile stays", async () => {
    await using place = await partitioned();
    const all = await names(place);
    const cut = (from: number): Promise<object[]> =>
      place.sql(`ALTER TABLE outbox REORGANIZE PARTITION ${all.slice(from).join(", ")} INTO (PARTITION later VALUES LESS THAN (MAXVALUE))`);
    await cut(1);
    await place.add(...Array.from({ length: 3_500 }, (_, n) => draft(`o${n % 9}`, n)));
    expect(await place.store.housekeeping!.partitions!.create()).toMatchObject({ created: all.slice(1, 5), undone: [] });
    await cut(3);
    expect(await place.store.schema.migrate()).toEqual([]);
    expect(await names(place)).toEqual(all);
    await place.add(...Array.from({ length: 100 }, (_, n) => draft(`o${n % 9}`, 3_500 + n)));
    expect(await place.sql("SELECT COUNT(DISTINCT seq) AS n FROM outbox")).toEqual([{ n: 3_600 }]);
    const got = byAggregate(await (await handOn(place.store)).drain());
    expect(Object.values(got).flat().length).toBe(3_600);
    for (const numbers of Object.values(got)) expect(numbers).toEqual(numbers.toSorted((a, b) => a - b));
  });

  test("a layout is not changed under the user's feet", async () => {
    await using place = await partitioned("day");
    const { schema } = place.open({ partitions: "week" });
    const told = { code: "INVALID_OPTION", message: expect.stringMatching(/"week" was asked for.*is partitioned by day/) as string };
    await expect(schema.migrate()).rejects.toMatchObject(told);
    await expect(schema.check()).rejects.toMatchObject(told);
    const plain = place.open();
    expect(await plain.schema.migrate()).toEqual([]);
    await plain.schema.check();
    await place.add(draft("a", 1));
    expect(byAggregate(await (await handOn(plain)).drain())).toEqual({ a: [1] });
    await using other = await mysqlPlaceOn((database) => server.url(database));
    await other.store.schema.migrate();
    await expect(other.open({ partitions: "day" }).schema.migrate()).rejects.toThrow(/has no partitions: leave the option out/);
    expect(await other.store.housekeeping!.partitions!.create()).toMatchObject({ created: [], undone: [] });
    expect(await dropOld(other)).toMatchObject({ dropped: [], undone: [] });
    expect(() => place.open({ partitions: "hour" as never })).toThrow(/partitions must be one of day, week, month/);
  });

  test("no insert is refused, whatever its moment", async () => {
    await using place = await partitioned();
    for (const at of ["1000-01-01", "2001-01-01", "2999-01-01", "9999-12-31"])
      await place.sql(
        `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, created_at, placed_at) VALUES ('Order', 'o', 'X', '{"n":1}', '${at}', '${at}')`,
      );
    expect((await (await handOn(place.store)).drain()).length).toBe(4);
  });

  /** Every state there is: published, failed and in a window, dead, blocked behind it, waiting for a destination, delayed. */
  const everyState = async (place: MysqlPlace): Promise<Awaited<ReturnType<typeof handOn>>> => {
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
    await expect.poll(async () => (await hand.claim()).id).not.toBe(null); // the retry is due in a millisecond
    return hand;
  };
  const goesOn = async (place: MysqlPlace, hand: Awaited<ReturnType<typeof handOn>>): Promise<void> => {
    await place.add(...["a", "b", "c", "d"].map((id) => draft(id, 4)), draft("b", 2, { idempotencyKey: "b2" }));
    await place.store.operator.redrive({}, by);
    await hand.release("t");
    expect(byAggregate(await hand.drain())).toEqual({ a: [4], b: [1, 2, 3, 4], c: [1, 2, 3, 4], d: [1, 2, 3, 4] });
  };
  const kept = (place: MysqlPlace): Promise<object[]> =>
    place.sql("SELECT seq, id, lane, status, retry_count, idempotency_key, created_at FROM outbox WHERE aggregate_id <> 'a' ORDER BY seq");

  test("an old one goes whole; what is not published moves out, is published in order and used its key once", async () => {
    await using place = await partitioned();
    const hand = await everyState(place);
    const old = await growOld(place);
    const before = await kept(place);
    expect(await dropOld(place)).toEqual({ created: [], dropped: [old], events: 3, moved: 10, undone: [] });
    expect(await names(place)).not.toContain(old);
    expect(await kept(place)).toEqual(before);
    expect(await place.sql("SELECT COUNT(*) AS n FROM outbox PARTITION (rest)")).toEqual([{ n: 10 }]);
    expect(await place.sql("SELECT events, who FROM waybill_audit WHERE action = 'purge'")).toEqual([{ events: 3, who: "ada" }]);
    await goesOn(place, hand);
  });

  test("wherever it is cut off, nothing is lost, and the next run goes on", async () => {
    for (let step = 1; ; step++) {
      await using place = await partitioned();
      const hand = await everyState(place);
      const old = await growOld(place);
      const before = await kept(place);
      let count = 0;
      const broken = breaking(place.pool, () => ++count === step);
      const store = place.open({ pool: broken.pool });
      const cut = store.housekeeping!.partitions!.drop(weekAgo(), "ada", { emptied: false });
      const ended = await cut.then(
        () => "done",
        () => "cut",
      );
      expect(ended).toBe(broken.broke() ? "cut" : "done");
      expect(await kept(place)).toEqual(before);
      expect(byAggregate((await hand.claim()).claims)).toEqual({ b: [1] });
      await dropOld(place);
      expect(await names(place)).not.toContain(old);
      expect(await kept(place)).toEqual(before);
      await goesOn(place, hand);
      if (!broken.broke()) {
        expect(step).toBeGreaterThan(12);
        return;
      }
    }
  });

  test("when everything has gone, the numbers go on, and so they do after a restart", async () => {
    await using place = await partitioned();
    const hand = await handOn(place.store);
    await place.add(...Array.from({ length: 50 }, (_, n) => draft("a", n)));
    await hand.drain();
    const old = await growOld(place);
    expect((await dropOld(place)).dropped).toEqual([old]);
    await place.add(draft("a", 50));
    expect(await place.sql("SELECT MIN(seq) > 50 AS higher FROM outbox")).toEqual([{ higher: 1 }]);
    expect(byAggregate(await hand.drain())).toEqual({ a: [50] });
    const next = await growOld(place, 9);
    expect((await dropOld(place)).dropped).toEqual([next]);
    await server.restart("fast");
    await place.add(draft("a", 51));
    expect(await place.sql("SELECT MIN(seq) > 51 AS higher FROM outbox")).toEqual([{ higher: 1 }]);
  });

  test("a server that is killed meanwhile has lost nothing", async () => {
    await using place = await partitioned();
    const hand = await everyState(place);
    const before = (await kept(place)).length;
    for (let round = 0; round < 5; round++) {
      await growOld(place, 15 - round);
      const dropping = dropOld(place).catch(() => undefined);
      await new Promise((resolve) => setTimeout(resolve, 4 + 8 * round));
      await server.kill9();
      await dropping;
      await server.start();
      // The pool may still have a connection to the server that was killed.
      await expect.poll(async () => (await kept(place)).length, { timeout: 10_000 }).toBe(before);
      await dropOld(place);
      expect((await layout(place)).filter(({ name, ends }) => name !== "rest" && ends < iso(Date.now() - 7 * day))).toEqual([]);
      expect((await kept(place)).length).toBe(before);
    }
    await hand.claim();
    await goesOn(place, hand);
  });

  test("a relay's role can make and drop them with what is granted", async () => {
    await using place = await partitioned();
    const [database] = await place.sql<{ name: string }>("SELECT DATABASE() AS name");
    const printed = place.open({ partitions: "day" }).schema.grants();
    const grants = [...printed.matchAll(/^((?:CREATE ROLE|GRANT) .*waybill_relay);$/gm)].map(([, grant]) => grant!);
    for (const grant of grants) await place.sql(grant);
    await place.sql("CREATE USER tidy@'127.0.0.1'");
    await place.sql("GRANT waybill_relay TO tidy@'127.0.0.1'");
    await place.sql("SET DEFAULT ROLE waybill_relay FOR tidy@'127.0.0.1'");
    const url = new URL(server.url(database!.name));
    url.username = "tidy";
    await using store = mysql({ url: url.href });
    await place.add(draft("a", 1), draft("b", 1));
    const old = await growOld(place);
    const tail = (await names(place)).slice(-3).join(", ");
    await place.sql(`ALTER TABLE outbox REORGANIZE PARTITION ${tail} INTO (PARTITION later VALUES LESS THAN (MAXVALUE))`);
    expect((await store.housekeeping!.partitions!.create()).created.length).toBe(2);
    expect(await store.housekeeping!.partitions!.drop(weekAgo(), "ada", { emptied: false })).toMatchObject({ dropped: [old], moved: 2 });
  });

  test("what was published since stays, wherever it was added", async () => {
    await using place = await partitioned();
    const hand = await handOn(place.store);
    await place.add(draft("old", 1), draft("new", 1));
    await hand.drain();
    const old = await growOld(place);
    await place.sql("UPDATE outbox SET published_at = UTC_TIMESTAMP(6) WHERE aggregate_id = 'new'");
    expect(await purgeStore(place.store, weekAgo(), by, {})).toEqual({ events: 1, dropped: [old], moved: 1, undone: [], kept: [] });
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
    expect((await dropOld(place, true)).undone).toEqual([
      `partition ${old} was not dropped: some of its events have not been archived yet`,
    ]);
    expect(await place.sql("SELECT COUNT(*) AS n FROM outbox")).toEqual([{ n: 1_201 }]);
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
      `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) SELECT 'Order', CONCAT('o', seq), 'X', '{"n":1}' FROM seq_1_to_10001`,
    );
    const old = await growOld(place);
    expect(await dropOld(place)).toMatchObject({
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
    const client = await place.pool.getConnection();
    await client.query("START TRANSACTION");
    await client.query(`INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', 'open', 'X', '{"n":1}')`);
    let longest = 0;
    let ended = false;
    const producing = (async () => {
      for (let n = 1; !ended; n++) {
        const from = performance.now();
        await place.add(draft("b", n));
        longest = Math.max(longest, performance.now() - from);
      }
    })();
    expect(await dropOld(place)).toMatchObject({
      dropped: [],
      undone: [expect.stringMatching(/^partition \w+ was not dropped: transactions that use the outbox/)],
    });
    await client.query("COMMIT");
    client.release();
    expect((await dropOld(place)).dropped).toEqual([old]);
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
    const reports = await Promise.all(
      Array.from({ length: 4 }, () => place.open().housekeeping!.partitions!.drop(weekAgo(), "ada", { emptied: false })),
    );
    expect(reports.flatMap(({ dropped }) => dropped)).toEqual([old]);
    expect(reports.flatMap(({ undone }) => undone)).toEqual([]);
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
      .poll(() => place.sql("SELECT COUNT(*) AS n FROM waybill_lanes WHERE owner IS NOT NULL GROUP BY owner"), { timeout: 20_000 })
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
    const created: string[] = [];
    let moved = 0;
    for (let days = 15; days >= 10; days--) {
      await new Promise((resolve) => setTimeout(resolve, 300));
      // An old partition with whatever is there now, in whatever state; some of it is in windows.
      await growOld(place, days);
      const tail = (await names(place)).slice(-3).join(", ");
      await place.sql(`ALTER TABLE outbox REORGANIZE PARTITION ${tail} INTO (PARTITION later VALUES LESS THAN (MAXVALUE))`);
      created.push(...(await place.store.housekeeping!.partitions!.create()).created);
      // One that is busy says so, and is tried again.
      for (let undone = 1; undone > 0;) {
        const report = await dropOld(place);
        dropped.push(...report.dropped);
        moved += report.moved;
        undone = report.undone.length;
      }
    }
    ended = true;
    await Promise.all(producers);
    const total = [...counts.values()].reduce((sum, n) => sum + n, 0);
    expect(await place.sql("SELECT seq FROM outbox GROUP BY seq HAVING COUNT(*) > 1")).toEqual([]);
    for (let n = 0; sink.log.length < total && n < 600; n++) await new Promise((resolve) => setTimeout(resolve, 100));
    await Promise.all(relays.map((relay) => relay.drain()));
    expect([dropped.length, created.length]).toEqual([6, 12]);
    expect(moved).toBeGreaterThan(0);
    expect(sink.log.length).toBe(total);
    for (const [, numbers] of firstDeliveries(sink.log)) expect(numbers).toEqual(numbers.map((_, at) => at + 1));
  });
});
