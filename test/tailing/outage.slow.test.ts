import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Postgres } from "../servers/postgres.ts";
import { startLogged } from "../stores/postgres-log/harness.ts";
import { sceneOn, sleep, until } from "./scene.ts";

describe("a relay that reads the log while one topic is away", () => {
  let server: Postgres;
  beforeAll(async () => {
    server = await startLogged(15);
  });
  afterAll(() => server.stop("immediate"));

  test("goes on with the others, then sends what waited in order, and reads the log again", async () => {
    await using scene = await sceneOn(server);
    await scene.tailing({
      route: (event: { readonly aggregateId: string }) => event.aggregateId.split("-")[0]!,
      probeMs: { first: 100, last: 200 },
    });
    let away = false;
    scene.answer = ({ topic }) => (away && topic === "sick" ? "destination" : null);
    const sent = new Map<string, number>();
    const names = Array.from({ length: 40 }, (_, at) => `${at % 2 === 0 ? "sick" : "well"}-${at}`);
    const writtenAt = new Map<string, number>();
    let writing = true;
    const writers = [0, 1, 2, 3].map(async (nth) => {
      for (let at = 0; writing; at++) {
        const aggregate = names[(at * 4 + nth) % names.length]!;
        const next = (sent.get(aggregate) ?? 0) + 1;
        sent.set(aggregate, next);
        await scene.add(aggregate, [String(next)]);
        writtenAt.set(`${aggregate} ${next}`, Date.now());
        await sleep(2);
      }
    });
    await sleep(1_000);
    away = true;
    const began = Date.now();
    await sleep(6_000);
    const sick = scene.arrivals.filter(({ topic, at }) => topic === "sick" && at > began + 200);
    expect(sick).toEqual([]);
    away = false;
    await sleep(2_000);
    writing = false;
    await Promise.all(writers);
    const count = [...sent.values()].reduce((sum, each) => sum + each, 0);
    await until(() => scene.arrivals.length >= count);
    for (const [aggregate, last] of sent) expect(scene.of(aggregate)).toEqual(Array.from({ length: last }, (_, at) => String(at + 1)));
    const late = scene.arrivals
      .filter(({ topic, at }) => topic === "well" && at > began)
      .map(({ aggregate, type, at }) => at - (writtenAt.get(`${aggregate} ${type}`) ?? at))
      .sort((a, b) => a - b);
    expect(late[late.length >> 1]!).toBeLessThan(1_000);
    expect(await scene.sql(`SELECT 1 FROM ${scene.schema}.waybill_holds`)).toEqual([]);
    await sleep(3_500);
    const written = async (): Promise<unknown> =>
      (
        await scene.sql(
          `SELECT n_tup_upd + n_tup_del AS n FROM pg_stat_user_tables WHERE schemaname = '${scene.schema}' AND relname = 'outbox'`,
        )
      )[0]!["n"];
    const before = await written();
    for (const aggregate of names) await scene.add(aggregate, ["after", "that"]);
    await until(() => scene.arrivals.length >= count + 80);
    await sleep(2_500);
    expect(await written()).toBe(before);
    await until(async () => (await scene.states())["PUBLISHED"] === count + 80);
  });
});
