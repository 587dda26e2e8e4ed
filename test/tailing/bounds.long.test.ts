import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Postgres } from "../servers/postgres.ts";
import { startLogged } from "../stores/postgres-log/harness.ts";
import { numbers, sceneOn, sessionOn, sleep, until } from "./scene.ts";

describe("what a relay that reads the log writes and keeps", () => {
  let server: Postgres;
  beforeAll(async () => {
    server = await startLogged(15, { max_wal_size: "256MB", checkpoint_timeout: "30s" });
  });
  afterAll(() => server.stop("immediate"));

  test("beside a busy database: the log is not kept, and nothing is written", async () => {
    await using scene = await sceneOn(server);
    const version = () => scene.sql(`SELECT ctid, xmin FROM ${scene.schema}.waybill_tail`);
    await scene.sql("CREATE DATABASE busy");
    await scene.tailing();
    await scene.add("a", ["1"]);
    await until(() => scene.of("a").length === 1);
    await sleep(5_000);
    const before = await version();
    await using busy = await sessionOn(server.url("busy"));
    await busy.query("CREATE TABLE t (x text)");
    let most = 0;
    for (let at = 0; at < 30; at++) {
      await busy.query("INSERT INTO t SELECT repeat(md5(i::text), 30) FROM generate_series(1, 10000) i");
      if (at % 10 === 9) await busy.query("CHECKPOINT");
      const [slot] = await scene.sql("SELECT pg_current_wal_lsn() - restart_lsn AS kept FROM pg_replication_slots");
      most = Math.max(most, Number(slot!["kept"]));
    }
    await sleep(2_500);
    const [slot] = await scene.sql("SELECT pg_current_wal_lsn() - restart_lsn AS kept FROM pg_replication_slots");
    expect(Number(slot!["kept"])).toBeLessThan(150_000_000);
    expect(await version()).toEqual(before);
  });

  test("of events over time: the view tells when, within ten seconds", async () => {
    await using scene = await sceneOn(server);
    await scene.tailing();
    for (let at = 0; at < 25; at++) {
      await scene.add("a", [String(at)]);
      await sleep(1_000);
    }
    await until(() => scene.of("a").length === 25);
    await sleep(6_000);
    const rows = await scene.sql(
      `SELECT event_type AS type, state, extract(epoch FROM published_at) * 1000 AS at, extract(epoch FROM created_at) * 1000 AS made FROM ${scene.schema}.outbox_events ORDER BY seq`,
    );
    for (const row of rows) {
      expect(row["state"]).toBe("PUBLISHED");
      const off = Number(row["at"]) - scene.arrivals.find(({ type }) => type === row["type"])!.at;
      expect(Math.abs(off), `event ${String(row["type"])}`).toBeLessThan(10_000);
    }
  });
});

describe("several at once", () => {
  let server: Postgres;
  beforeAll(async () => {
    server = await startLogged(15);
  });
  afterAll(() => server.stop("immediate"));

  test("relays that join and leave: nothing is lost or out of order, and the last one reads the log", async () => {
    await using scene = await sceneOn(server);
    const auto = { mode: "auto", coordination: "partitioned" } as const;
    const first = await scene.tailing(auto);
    const aggregates = numbers(1, 12);
    let next = 0;
    let writing = true;
    const writer = (async () => {
      while (writing) {
        next++;
        for (const aggregate of aggregates) await scene.add(aggregate, [String(next)]);
        await sleep(5);
      }
    })();
    await sleep(1_000);
    const second = await scene.relay(auto);
    await until(() => scene.mode() === "poll");
    await sleep(1_500);
    const third = await scene.relay(auto);
    await sleep(2_500);
    await first.drain();
    await sleep(1_500);
    await second.stop();
    await until(() => scene.mode() === "tail", 40_000);
    await sleep(1_000);
    writing = false;
    await writer;
    await until(() => scene.arrivals.length >= next * aggregates.length);
    let copies = 0;
    for (const aggregate of aggregates) {
      const order = scene.of(aggregate);
      const once = order.filter((type, at) => order.indexOf(type) === at);
      copies += order.length - once.length;
      expect(once).toEqual(numbers(1, next));
    }
    expect(copies).toBeLessThanOrEqual(3_000);
    await third.drain();
    await until(async () => (await scene.states())["PUBLISHED"] === next * aggregates.length);
  });

  test("two outboxes in one database", async () => {
    await using one = await sceneOn(server);
    await using two = await sceneOn(server);
    await Promise.all([one.tailing(), two.tailing()]);
    for (let at = 1; at <= 100; at++) await Promise.all([one.add("a", [String(at)]), two.add("a", [`two ${at}`])]);
    await until(() => one.of("a").length >= 100 && two.of("a").length >= 100);
    expect(one.of("a")).toEqual(numbers(1, 100));
    expect(two.of("a")).toEqual(numbers(1, 100).map((each) => `two ${each}`));
    expect((await one.sql("SELECT 1 FROM pg_replication_slots WHERE active")).length).toBe(2);
  });
});

describe("an outbox that is emptied", () => {
  let server: Postgres;
  beforeAll(async () => {
    server = await startLogged(15);
  });
  afterAll(() => server.stop("immediate"));

  test.each(["", " in partitions"])("by housekeeping%s", async (how) => {
    await using scene = await sceneOn(server, how === "" ? {} : { partitions: "day" });
    let well = false;
    scene.answer = ({ type }) => (type === "bad" && !well ? "event" : null);
    const relay = await scene.tailing({ housekeeping: { everyMs: 500, retentionMs: 1_000 } });
    await scene.add("bad", ["bad", "2", "3"]);
    let next = 0;
    const end = Date.now() + 14_000;
    while (Date.now() < end) {
      next++;
      await scene.add("a", [String(next)]);
      await sleep(10);
    }
    await until(() => scene.of("a").length >= next);
    expect(scene.of("a")).toEqual(numbers(1, next));
    await until(async () => Number((await scene.sql(`SELECT count(*) AS n FROM ${scene.schema}.outbox`))[0]!["n"]) < next / 2, 20_000);
    well = true;
    await scene.store().operator.redrive({}, { who: "test", dryRun: false });
    await until(() => scene.of("bad").length === 3);
    expect(scene.of("bad")).toEqual(["bad", "2", "3"]);
    await relay.drain();
    await scene.relay({ mode: "poll" });
    await scene.add("last", ["1"]);
    await until(() => scene.of("last").length === 1);
    expect(scene.arrivals.length).toBe(next + 4);
  });

  test("with published events deleted, in partitions", async () => {
    await using scene = await sceneOn(server, { partitions: "day", onPublish: "delete" });
    const relay = await scene.tailing();
    for (let at = 1; at <= 300; at++) await scene.add(`${at % 7}`, [String(at)]);
    await until(() => scene.arrivals.length >= 300);
    await until(async () => Number((await scene.sql(`SELECT count(*) AS n FROM ${scene.schema}.outbox`))[0]!["n"]) === 0);
    await relay.drain();
    await scene.relay({ mode: "poll" });
    await scene.add("last", ["1"]);
    await until(() => scene.of("last").length === 1);
    expect(scene.arrivals.length).toBe(301);
  });
});
