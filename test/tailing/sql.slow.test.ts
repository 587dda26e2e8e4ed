import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Postgres } from "../servers/postgres.ts";
import { startLogged } from "../stores/postgres-log/harness.ts";
import { numbers, sceneOn, sessionOn, sleep, until, type Scene } from "./scene.ts";

/** What people do to an outbox by SQL while a relay reads the log. */
describe("a relay that reads the log goes on", () => {
  let server: Postgres;
  beforeAll(async () => {
    server = await startLogged(15, { max_prepared_transactions: 10 });
  });
  afterAll(() => server.stop("immediate"));

  /** After this, the same events in poll mode bring nothing more. */
  const pollsNothing = async (scene: Scene): Promise<void> => {
    const before = scene.arrivals.length;
    await scene.relay({ mode: "poll" });
    await scene.add("last", ["last"]);
    await until(() => scene.of("last").length > 0);
    await sleep(500);
    expect(scene.arrivals.length).toBe(before + 1);
  };

  test("with prepared transactions, savepoints and what is taken back", async () => {
    await using scene = await sceneOn(server);
    const relay = await scene.tailing();
    const client = await sessionOn(server.url());
    await client.query("BEGIN");
    await scene.add("a", ["1"], { by: client });
    await client.query("PREPARE TRANSACTION 'one'");
    await client.query("BEGIN");
    await scene.add("c", ["1"], { by: client });
    await client.query("PREPARE TRANSACTION 'two'");
    await scene.add("b", numbers(1, 20));
    await until(() => scene.of("b").length === 20);
    await client.query("BEGIN");
    await scene.add("b", ["21"], { by: client });
    await client.query("SAVEPOINT s");
    await scene.add("b", ["undone"], { by: client });
    await client.query("ROLLBACK TO SAVEPOINT s");
    await scene.add("b", ["22"], { by: client });
    await client.query("COMMIT");
    await until(() => scene.of("b").length === 22);
    // The floor cannot pass a prepared transaction: rows are told.
    await sleep(7_000);
    expect((await scene.states())["PUBLISHED"]).toBe(22);
    let refusals = 0;
    scene.answer = ({ aggregate, type }) => (aggregate === "a" && type === "1" && refusals++ < 1 ? "event" : null);
    await client.query("COMMIT PREPARED 'one'");
    await scene.add("a", ["2"]);
    await client.query("ROLLBACK PREPARED 'two'");
    await until(() => scene.of("a").length === 2);
    expect(scene.of("a")).toEqual(["1", "2"]);
    expect(scene.of("b")).toEqual(numbers(1, 22));
    expect(scene.of("c")).toEqual([]);
    await relay.drain();
    await client.end();
    await pollsNothing(scene);
  });

  test("when rows are deleted, changed or published by hand", async () => {
    await using scene = await sceneOn(server);
    const relay = await scene.tailing();
    let well = false;
    scene.answer = ({ type }) => (type.startsWith("bad") && !well ? "event" : null);
    const outbox = `${scene.schema}.outbox`;
    await scene.add("b", ["bad 1", "2", "3"]);
    await until(
      async () => Number((await scene.sql(`SELECT count(*) AS n FROM ${outbox} WHERE status IN ('FAILED', 'DEAD')`))[0]!["n"]) === 1,
    );
    await scene.sql(`DELETE FROM ${outbox} WHERE aggregate_id = 'b' AND event_type = '2'`);
    for (let round = 0; round < 30; round++) {
      const client = await sessionOn(server.url());
      await client.query("BEGIN");
      await scene.add("gone", [`bad ${round}`], { by: client });
      await client.query(`DELETE FROM ${outbox} WHERE aggregate_id = 'gone'`);
      await scene.add("c", [String(round + 1)], { by: client });
      await client.query("COMMIT");
      await client.end();
    }
    await until(() => scene.of("c").length === 30);
    well = true;
    await sleep(1_000);
    await scene.store().operator.redrive({}, { who: "test", dryRun: false });
    await until(() => scene.of("b").length === 2);
    await scene.add("b", ["4"]);
    await scene.add("gone", ["1"]);
    await until(() => scene.of("b").length === 3 && scene.of("gone").includes("1"));
    expect(scene.of("b")).toEqual(["bad 1", "3", "4"]);
    await until(async () => Object.keys(await scene.states()).join() === "PUBLISHED");
    await relay.drain();
    await pollsNothing(scene);
  });

  test("when the outbox is altered and rewritten", async () => {
    await using scene = await sceneOn(server);
    const relay = await scene.tailing();
    const outbox = `${scene.schema}.outbox`;
    let next = 1;
    let writing = true;
    const writer = (async () => {
      while (writing) {
        await scene.add("a", [String(next++)]);
        await sleep(3);
      }
    })();
    await sleep(300);
    await scene.sql(`ALTER TABLE ${outbox} ADD COLUMN tenant text`);
    await sleep(300);
    await scene.sql(`ALTER TABLE ${outbox} ADD COLUMN stamp timestamptz DEFAULT clock_timestamp()`);
    await sleep(300);
    await scene.sql(`ALTER TABLE ${outbox} DROP COLUMN tenant`);
    await sleep(300);
    await scene.sql(`VACUUM FULL ${outbox}`);
    await scene.sql(`REINDEX TABLE ${outbox}`);
    await scene
      .sql(
        `CLUSTER ${outbox} USING ${String((await scene.sql(`SELECT indexname AS i FROM pg_indexes WHERE schemaname = '${scene.schema}' AND tablename = 'outbox' LIMIT 1`))[0]!["i"])}`,
      )
      .catch(() => []);
    await sleep(300);
    writing = false;
    await writer;
    await until(() => scene.of("a").length >= next - 1);
    expect(scene.of("a")).toEqual(numbers(1, next - 1));
    expect(scene.mode()).toBe("tail");
    await relay.drain();
    await pollsNothing(scene);
  });

  test.each(["", " RESTART IDENTITY"])("when the outbox is truncated%s", async (how) => {
    await using scene = await sceneOn(server);
    let relay = await scene.tailing();
    await scene.add("a", numbers(1, 500));
    await until(() => scene.of("a").length === 500);
    await until(async () => Number((await scene.sql(`SELECT floor FROM ${scene.schema}.waybill_tail`))[0]!["floor"]) >= 500);
    await scene.sql(`TRUNCATE ${scene.schema}.outbox${how}`);
    let refusals = 0;
    scene.answer = ({ aggregate, type }) => (aggregate === "c" && type === "1" && refusals++ < 1 ? "event" : null);
    await scene.add("b", numbers(1, 20));
    await scene.add("c", numbers(1, 20));
    await until(() => scene.of("b").length >= 20 && scene.of("c").length >= 20);
    await relay.drain();
    await scene.add("d", numbers(1, 20));
    relay = await scene.relay({ mode: "poll" });
    await until(() => scene.of("d").length >= 20, 10_000);
    await relay.drain();
    await scene.tailing();
    await scene.add("e", numbers(1, 20));
    await until(() => scene.of("e").length >= 20, 10_000);
    for (const aggregate of ["b", "c", "d", "e"]) expect(scene.of(aggregate)).toEqual(numbers(1, 20));
  });
});

describe("a relay that is to read the log while a transaction is open", () => {
  let server: Postgres;
  beforeAll(async () => {
    server = await startLogged(15);
  });
  afterAll(() => server.stop("immediate"));

  test("polls on, says what it waits for, and leaves no slot when it drains", async () => {
    await using scene = await sceneOn(server);
    await using client = await sessionOn(server.url());
    await client.query("BEGIN");
    await client.query("CREATE TEMP TABLE held ()"); // it has an id now
    const relay = await scene.relay();
    await scene.add("a", numbers(1, 50));
    await until(() => scene.of("a").length === 50);
    await sleep(2_000);
    const said = scene.events.flatMap((event) => (event.type === "relay.mode" ? [`${event.mode}: ${event.why}`] : []));
    expect(scene.mode()).toBe("poll");
    expect(said.at(-1)).toMatch(/^poll: the log is being prepared, and waits for the transaction of process \d+, role postgres/);
    expect(said.length).toBeLessThan(4);
    await relay.drain();
    await until(async () => (await scene.sql("SELECT slot_name FROM pg_replication_slots")).length === 0, 5_000);
    await scene.relay();
    await client.query("ROLLBACK");
    await until(() => scene.mode() === "tail");
    await scene.add("a", numbers(51, 60));
    await until(() => scene.of("a").length === 60);
    expect(scene.of("a")).toEqual(numbers(1, 60));
  });

  test("and one that opens later keeps the floor, and what is published is told", async () => {
    await using scene = await sceneOn(server);
    const relay = await scene.tailing({ batch: 10, batchesInFlight: 10 });
    await using client = await sessionOn(server.url());
    await client.query("BEGIN");
    await client.query("CREATE TEMP TABLE held ()");
    await scene.add("a", numbers(1, 1_000));
    await until(() => scene.of("a").length === 1_000);
    await until(async () => (await scene.states())["PUBLISHED"] === 1_000, 12_000);
    await scene.add("b", numbers(1, 300));
    await until(() => scene.of("b").length === 300);
    await relay.stop();
    await scene.relay({ mode: "poll" });
    await scene.add("c", ["1"]);
    await until(() => scene.of("c").length === 1);
    await until(async () => (await scene.states())["PUBLISHED"] === 1_301);
    expect(scene.arrivals.length - 1_301).toBeLessThanOrEqual(100);
  });
});
