import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Postgres } from "../servers/postgres.ts";
import { startLogged } from "../stores/postgres-log/harness.ts";
import { numbers, sceneOn, sessionOn, sleep, until } from "./scene.ts";

const due = (ms: number) => ({ columns: { available_at: `clock_timestamp() + interval '${ms} milliseconds'` } });

describe("events that a relay which reads the log takes from the table", () => {
  let server: Postgres;
  beforeAll(async () => {
    server = await startLogged(15);
  });
  afterAll(() => server.stop("immediate"));

  test("a delayed event that is due when it is inserted keeps its place", async () => {
    await using scene = await sceneOn(server);
    await scene.tailing();
    for (let round = 0; round < 100; round++) {
      const at = `${round}`;
      await scene.add("a", [`${at}-1`, `${at}-2`]);
      await scene.add("a", [`${at}-3`], due(-1_000));
      await scene.add("a", [`${at}-4`]);
      if (round % 3 === 0) await sleep(5);
    }
    await until(() => scene.of("a").length >= 400);
    const all = Array.from({ length: 100 }, (_, round) => [1, 2, 3, 4].map((nth) => `${round}-${nth}`)).flat();
    expect(scene.of("a")).toEqual(all);
    await until(async () => (await scene.states())["PUBLISHED"] === 400);
  });

  test("many of them in one transaction with others", async () => {
    await using scene = await sceneOn(server);
    await scene.tailing();
    const client = await sessionOn(server.url());
    await client.query("BEGIN");
    for (let block = 0; block < 20; block++) {
      await scene.add("a", numbers(block * 200 + 1, block * 200 + 199), { by: client });
      await scene.add("a", [String(block * 200 + 200)], { by: client, ...due(-60_000) });
    }
    await client.query("COMMIT");
    await client.end();
    await scene.add("a", numbers(4_001, 4_010));
    await until(() => scene.of("a").length >= 4_010);
    expect(scene.of("a")).toEqual(numbers(1, 4_010));
  });

  test("events that become due go before those that are inserted after that", async () => {
    await using scene = await sceneOn(server);
    await scene.tailing();
    const aggregates = numbers(1, 20);
    for (const aggregate of aggregates) {
      await scene.add(aggregate, ["late"], due(5_000));
      await scene.add(aggregate, ["soon"], due(200));
      await scene.add(aggregate, ["first"]);
    }
    await sleep(230);
    for (let beat = 0; beat < 60; beat++) {
      for (const aggregate of aggregates) await scene.add(aggregate, [`beat ${beat}`]);
      await sleep(100);
    }
    await sleep(200);
    const rows = await scene.sql(
      `SELECT aggregate_id AS aggregate, event_type AS type, extract(epoch FROM created_at) * 1000 AS made, extract(epoch FROM available_at) * 1000 AS due FROM ${scene.schema}.outbox ORDER BY seq`,
    );
    await until(() => scene.arrivals.length >= rows.length);
    for (const aggregate of aggregates) {
      const mine = rows.filter((row) => row["aggregate"] === aggregate);
      const order = scene.of(aggregate);
      expect(new Set(order).size).toBe(order.length);
      expect(order.length).toBe(mine.length);
      expect(order.filter((type) => type.startsWith("beat"))).toEqual(
        mine.map(({ type }) => String(type)).filter((type) => type.startsWith("beat")),
      );
      for (const delayed of mine.filter(({ due }) => due !== null)) {
        const after = mine.filter(({ made }) => Number(made) > Number(delayed["due"]));
        for (const each of after)
          expect(
            order.indexOf(String(each["type"])),
            `${aggregate}: ${String(each["type"])} behind ${String(delayed["type"])}`,
          ).toBeGreaterThan(order.indexOf(String(delayed["type"])));
      }
    }
  });

  test("a dead event's followers wait, and come in order when it is redriven or discarded", async () => {
    await using scene = await sceneOn(server);
    await scene.tailing();
    let well = false;
    scene.answer = ({ type }) => (type === "3" && !well ? "event" : null);
    for (const aggregate of ["redriven", "discarded"]) await scene.add(aggregate, numbers(1, 5));
    await until(async () => (await scene.states())["DEAD"] === 2);
    for (let next = 6; next <= 40; next++)
      for (const aggregate of ["redriven", "discarded", "other"]) await scene.add(aggregate, [String(next)]);
    await until(() => scene.of("other").length === 35);
    expect(scene.of("redriven")).toEqual(["1", "2"]);
    expect(scene.of("discarded")).toEqual(["1", "2"]);
    well = true;
    const idOf = async (aggregate: string): Promise<string> =>
      String(
        (await scene.sql(`SELECT id FROM ${scene.schema}.outbox WHERE aggregate_id = $1 AND event_type = '3'`, [aggregate]))[0]!["id"],
      );
    const { operator } = scene.store();
    await operator.redrive({ ids: [await idOf("redriven")] }, { who: "test", dryRun: false });
    for (let next = 41; next <= 60; next++) for (const aggregate of ["redriven", "discarded"]) await scene.add(aggregate, [String(next)]);
    await operator.discard({ ids: [await idOf("discarded")] }, { who: "test", dryRun: false });
    for (let next = 61; next <= 80; next++) for (const aggregate of ["redriven", "discarded"]) await scene.add(aggregate, [String(next)]);
    await until(() => scene.of("redriven").length >= 80 && scene.of("discarded").length >= 79);
    expect(scene.of("redriven")).toEqual(numbers(1, 80));
    expect(scene.of("discarded")).toEqual(numbers(1, 80).filter((each) => each !== "3"));
    // Back in the log: their rows are not written any more.
    await sleep(3_500);
    await scene.add("redriven", ["81"]);
    await until(() => scene.of("redriven").includes("81"));
    const [row] = await scene.sql(`SELECT status, next_attempt_at FROM ${scene.schema}.outbox WHERE event_type = '81'`);
    expect(row).toEqual({ status: "PENDING", next_attempt_at: null });
  });

  test("followers of a dead event go on where its type is skipped, and a redriven one comes once", async () => {
    await using scene = await sceneOn(server);
    await scene.tailing({ skip: ["Order"] });
    let well = false;
    scene.answer = ({ type }) => (type === "3" && !well ? "event" : null);
    await scene.add("a", numbers(1, 10));
    await until(() => scene.of("a").includes("10"));
    await scene.add("a", numbers(11, 20));
    await until(() => scene.of("a").length >= 19);
    expect(scene.of("a")).toEqual(numbers(1, 20).filter((each) => each !== "3"));
    await sleep(2_500);
    well = true;
    await scene.store().operator.redrive({ aggregateType: "Order" }, { who: "test", dryRun: false });
    await scene.add("a", numbers(21, 30));
    await until(() => scene.of("a").length >= 30);
    await until(async () => (await scene.states())["PUBLISHED"] === 30);
    expect(scene.of("a").filter((each) => each !== "3")).toEqual(numbers(1, 30).filter((each) => each !== "3"));
    expect(scene.of("a").filter((each) => each === "3")).toEqual(["3"]);
  });
});
