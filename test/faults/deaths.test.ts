import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { laneOf } from "../../src/core/lane.ts";
import { expectAllPublished, expectFewDuplicates, expectSound, statusTruth, untilPublished } from "./judge.ts";
import { until, type Process } from "./processes.ts";
import { createScene, type Aggregate } from "./scene.ts";

const options = { leaseMs: 1_500, batch: 50, batchesInFlight: 3, pollIntervalMs: 50 };
const window = options.batch * options.batchesInFlight;

// Side by side: most of their time goes by waiting for leases to run out.
describe.concurrent("deaths", () => {
  test("an event that kills the relay is parked after three deaths alone; others flow meanwhile and after", async (context) => {
    const scene = await createScene(context);
    const [killer, ...neighbours] = scene.aggregates(60, "a") as [Aggregate, ...Aggregate[]];
    const lane = laneOf(killer.aggregateType, killer.aggregateId);
    expect(
      neighbours.some(({ aggregateType, aggregateId }) => laneOf(aggregateType, aggregateId) === lane),
      "some share its lane",
    ).toBe(true);
    // In the middle of a backlog, so that it dies in company first.
    const traffic = { hot: neighbours, cold: neighbours };
    await scene.done(scene.writer("early", { ...traffic, transactions: 60 }));
    const first = scene.add(killer);
    const id = scene.add(killer);
    const followers = [scene.add(killer), scene.add(killer)];
    await scene.done(scene.writer("late", { ...traffic, transactions: 60 }));

    let finish: () => void = () => undefined;
    const finished = new Promise<void>((resolve) => (finish = resolve));
    const deaths: { readonly width: number; readonly others: number }[] = [];
    const started: Process[] = [];
    const start = (nth: number): Process => {
      const relay = scene.relay(`relay-${nth}`, options, { die: { at: "before-publish", id } });
      started.push(relay);
      return relay;
    };
    /** What the dead one had in its window, and how many others are published by now. */
    const postMortem = ({ ending, lines }: Process): (typeof deaths)[number] => {
      expect(ending).toEqual({ code: null, signal: "SIGKILL" });
      expect(lines.at(-1)).toEqual({ type: "dies", at: "before-publish", width: expect.any(Number) as number });
      return {
        width: lines.at(-1)!["width"] as number,
        others: scene.one("SELECT count(*) FROM outbox WHERE status = 'PUBLISHED' AND aggregate_id <> ?", killer.aggregateId),
      };
    };
    const supervise = async (relay: Process): Promise<Process> => {
      for (let running = relay; ; running = start(deaths.length + 2)) {
        await Promise.race([running.ended, finished]);
        if (running.ending === null) return running;
        deaths.push(postMortem(running));
        expect(deaths.length, "deaths").toBeLessThan(20);
      }
    };
    const relays = Promise.all([supervise(start(1)), supervise(start(2))]);
    const meanwhile = scene.writer("meanwhile", { ...traffic, pauseMs: 30 });
    const parked = until(
      "it is parked",
      () => scene.one("SELECT count(*) FROM outbox WHERE status = 'DEAD'") > 0,
      90_000,
      () => ({ deaths, ...statusTruth(scene.sql) }),
    );
    await Promise.race([parked, relays]); // a supervisor that fails ends the wait
    const atParking = started.filter(({ lines }) => lines.at(-1)?.["type"] === "dies").length;
    await scene.stop(meanwhile);
    await scene.done(scene.writer("after", { ...traffic, transactions: 60 }));
    await untilPublished(scene, 120_000, `aggregate_id <> '${killer.aggregateId}'`);
    finish();
    await scene.drain(...(await relays));

    const stateOf = (event: string): unknown => scene.sql("SELECT status, error_code FROM outbox WHERE id = ?", event)[0];
    expect(stateOf(first)).toEqual({ status: "PUBLISHED", error_code: null });
    expect(stateOf(id)).toEqual({ status: "DEAD", error_code: "CRASHED_RELAY" });
    for (const follower of followers) expect(stateOf(follower)).toEqual({ status: "BLOCKED", error_code: null });
    expect(scene.sql("SELECT id FROM outbox WHERE status = 'DEAD'"), "nothing else is parked").toEqual([{ id }]);
    const delivered = scene.sql("SELECT DISTINCT id FROM log WHERE aggregate_id = ?", killer.aggregateId);
    expect(delivered, "its aggregate stops before it").toEqual([{ id: first }]);
    const widths = deaths.map(({ width }) => width);
    expect(widths.slice(-3), "three deaths alone").toEqual([1, 1, 1]);
    expect(Math.min(...widths.slice(0, -3)), "and those before in company").toBeGreaterThan(1);
    expect(deaths.length, "no relay dies after that").toBe(atParking);
    expect(deaths.at(-1)!.others, "others flow between the deaths").toBeGreaterThan(deaths[0]!.others + 50);
    expectSound(scene);
    expectFewDuplicates(scene, deaths.length, window);
  });

  test("a healthy relay killed ten times parks nothing", async (context) => {
    const scene = await createScene(context);
    const aggregates = scene.aggregates(30, "a");
    const traffic = { hot: aggregates.slice(0, 4), cold: aggregates };
    await scene.done(scene.writer("backlog", { ...traffic, transactions: 100, most: 40 }));
    const writer = scene.writer("writer", { ...traffic, pauseMs: 10, most: 2 });
    const start = (nth: number): Process => scene.relay(`relay-${nth}`, options);
    const inHand = ({ name }: Process): boolean => scene.one("SELECT count(*) FROM waybill_windows WHERE relay LIKE ?", `${name}:%`) > 0;

    // Four times in a row with the same event in hand, in company and alone: one death less than what tells a killer.
    const [{ id } = {}] = scene.sql("SELECT id FROM outbox ORDER BY seq LIMIT 1");
    for (let nth = 0; nth < 4; nth++) {
      const victim = scene.relay(`relay-${nth}`, options, { pause: { at: "after-claim", id } });
      await victim.told("that it has the first event in hand", ({ type }) => type === "paused");
      expect(await victim.kill()).toEqual({ code: null, signal: "SIGKILL" });
    }
    // Then at any time: while it has what others died with in hand, a few at a time, or long after.
    let relay = start(4);
    await until(
      "it has published that event",
      () => scene.one("SELECT status = 'PUBLISHED' FROM outbox WHERE id = ?", id as string) === 1,
      20_000,
    );
    for (let nth = 5; nth <= 10; nth++) {
      await relay.told("that it has won lanes", ({ type }) => type === "lanes.won");
      await sleep(scene.random.next() * 800);
      if (nth % 2 === 0) await until("it has something in hand", () => inHand(relay), 20_000);
      expect(await relay.kill()).toEqual({ code: null, signal: "SIGKILL" });
      relay = start(nth);
    }
    await scene.stop(writer);
    await untilPublished(scene, 60_000);
    await scene.drain(relay);
    expectAllPublished(scene);
    expect(scene.sql("SELECT seq, status, retry_count FROM outbox WHERE retry_count > 0"), "no attempt is spent").toEqual([]);
    expect(scene.sql("SELECT seq FROM waybill_suspects"), "nothing is left under suspicion").toEqual([]);
    expectFewDuplicates(scene, 10, window);
  });
});
