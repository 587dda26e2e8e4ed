import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Postgres } from "../servers/postgres.ts";
import { startLogged } from "../stores/postgres-log/harness.ts";
import { numbers, sceneOn, sessionOn, sleep, until, type Scene } from "./scene.ts";

/** The log has a commit that waits for a synchronous standby. Nobody else sees its rows. */
describe("events that the log has and the table does not show yet", () => {
  let server: Postgres;
  beforeAll(async () => {
    server = await startLogged(15);
  });
  afterAll(() => server.stop("immediate"));

  const standby = async (scene: Scene, name: string): Promise<void> => {
    await scene.sql("SET synchronous_commit = local");
    await scene.sql(`ALTER SYSTEM SET synchronous_standby_names = '${name}'`);
    await scene.sql("SELECT pg_reload_conf()");
    await until(async () => (await scene.sql("SHOW synchronous_standby_names"))[0]!["synchronous_standby_names"] === name);
  };
  /** Everybody but `waiting` commits at once. */
  const local = (): string => `${server.url()}?options=-c%20synchronous_commit%3Dlocal`;
  const waitingFor = async (scene: Scene, aggregate: string, types: readonly string[]) => {
    const client = await sessionOn(server.url());
    const added = scene.add(aggregate, types, { by: client });
    let over = false;
    void added.then(() => (over = true));
    return {
      isOver: () => over,
      async [Symbol.asyncDispose]() {
        await standby(scene, "");
        await added;
        await client.end();
      },
    };
  };

  test("one that is refused is not lost, and stops its own aggregate only", async () => {
    await using scene = await sceneOn(server, { url: local() });
    await scene.tailing();
    let refusals = 0;
    scene.answer = ({ aggregate, type }) => (aggregate === "a" && type === "1" && refusals++ < 2 ? "event" : null);
    await standby(scene, "nobody");
    {
      await using waiting = await waitingFor(scene, "a", ["1"]);
      await until(() => refusals === 1);
      const [end] = await scene.sql("SELECT pg_current_wal_insert_lsn() AS lsn");
      await scene.add("a", numbers(2, 20));
      await scene.add("b", numbers(1, 50));
      await until(() => scene.of("b").length === 50);
      await sleep(2_500);
      expect(waiting.isOver()).toBe(false);
      expect(scene.of("a")).toEqual([]);
      const [slot] = await scene.sql("SELECT confirmed_flush_lsn < $1::pg_lsn AS behind FROM pg_replication_slots", [end!["lsn"]]);
      expect(slot).toEqual({ behind: true });
    }
    await until(() => scene.of("a").length >= 20);
    expect(scene.of("a")).toEqual(numbers(1, 20));
    expect(scene.of("b")).toEqual(numbers(1, 50));
    await until(async () => (await scene.states())["PUBLISHED"] === 70);
  });

  test.each(["poll", "tail"] as const)("one that is published is not sent again by the next relay, with mode %s", async (mode) => {
    await using scene = await sceneOn(server, { url: local() });
    const relay = await scene.tailing();
    await standby(scene, "nobody");
    let drained: Promise<unknown>;
    {
      await using _ = await waitingFor(scene, "a", ["1"]);
      await until(() => scene.of("a").length === 1);
      drained = relay.drain();
      await sleep(500);
    }
    await drained;
    await scene.relay({ mode });
    await scene.add("a", ["2"]);
    await until(() => scene.of("a").includes("2"));
    await sleep(500);
    expect(scene.of("a")).toEqual(["1", "2"]);
  });

  test("a relay that leaves does not wait for a standby that stays away", async () => {
    await using scene = await sceneOn(server, { url: local() });
    const relay = await scene.tailing();
    scene.answer = ({ aggregate }) => (aggregate === "b" ? "event" : null);
    await standby(scene, "nobody");
    {
      await using _ = await waitingFor(scene, "a", ["1"]);
      await using __ = await waitingFor(scene, "b", ["1"]);
      await until(() => scene.of("a").length === 1);
      await sleep(300);
      await relay.drain();
      scene.answer = () => null;
      await scene.tailing();
      await scene.add("c", ["1"]);
      await until(() => scene.of("c").length === 1);
    }
    await scene.add("a", ["2"]);
    await scene.add("b", ["2"]);
    await until(() => scene.of("b").includes("2") && scene.of("a").includes("2"));
    expect(scene.of("b")).toEqual(["1", "2"]);
    expect(scene.of("a").slice(-2)).toEqual(["1", "2"]);
  });

  test("a relay whose own commits wait goes on when the standby is back", async () => {
    await using scene = await sceneOn(server);
    await scene.tailing();
    await scene.add("a", numbers(1, 50));
    await standby(scene, "nobody");
    {
      await using one = await waitingFor(scene, "a", numbers(51, 100));
      await sleep(6_000);
      expect(one.isOver()).toBe(false);
    }
    await scene.add("a", numbers(101, 150));
    await until(() => scene.of("a").includes("150"));
    await until(async () => (await scene.states())["PUBLISHED"] === 150);
    const first = scene.of("a").filter((type, at, all) => all.indexOf(type) === at);
    expect(first).toEqual(numbers(1, 150));
  });

  test("a store that deletes published events deletes them once they can be seen", async () => {
    await using scene = await sceneOn(server, { url: local(), onPublish: "delete" });
    await scene.tailing();
    const rows = async (): Promise<number> => Number((await scene.sql(`SELECT count(*) AS n FROM ${scene.schema}.outbox`))[0]!["n"]);
    await standby(scene, "nobody");
    {
      await using _ = await waitingFor(scene, "a", numbers(1, 10));
      await until(() => scene.of("a").length === 10);
      await scene.add("b", ["1"]);
      await until(() => scene.of("b").length === 1);
      await sleep(2_500);
    }
    await until(async () => (await rows()) === 0);
    await sleep(500);
    expect(scene.arrivals.length).toBe(11);
  });
});
