import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { LANES } from "../../src/core/lane.ts";
import { inProcess } from "../cli/in-process.ts";
import {
  duplicates,
  everything,
  expectAllPublished,
  expectFewDuplicates,
  expectSound,
  statusSaid,
  statusTruth,
  untilPublished,
} from "./judge.ts";
import { until } from "./processes.ts";
import { createScene, topics, type Scene, type SqlRow } from "./scene.ts";

const outageMs = 60_000;

// Side by side: most of their time goes by waiting.
describe.concurrent("absences", () => {
  test("a broker outage of 60 s spends no attempt, and order holds when it ends", async (context) => {
    const scene = await createScene(context, { ownBroker: true });
    const aggregates = scene.aggregates(40, "a");
    const flag = join(scene.folder, "outage");
    const options = { leaseMs: 5_000, batch: 50, pollIntervalMs: 50, probeMs: { first: 500, last: 4_000 } };
    const relays = [
      scene.relay("refused", options, { refuse: { flag, as: "destination" } }),
      scene.relay("unknown", options, { refuse: { flag, as: "unknown" } }),
    ];
    const writer = scene.writer("writer", { hot: aggregates.slice(0, 4), cold: aggregates, pauseMs: 40, most: 2 });
    await until("events flow", () => scene.one("SELECT count(*) FROM outbox WHERE status = 'PUBLISHED'") > 50, 30_000);

    writeFileSync(flag, "");
    const ends = performance.now() + outageMs;
    await Promise.all(relays.map((relay) => relay.told("that the broker is away", ({ type }) => type === "destination.opened")));
    // What was on its way when the flag came is still stored.
    const before = JSON.stringify(scene.sql("SELECT window FROM waybill_windows").map(({ window }) => window));
    const left = (): number => scene.one("SELECT count(*) FROM waybill_windows WHERE window IN (SELECT value FROM json_each(?))", before);
    await until("what was on its way has come there", () => left() === 0, 20_000);
    const stored = scene.one("SELECT count(*) FROM log");
    const waiting = scene.one("SELECT count(*) FROM outbox WHERE status <> 'PUBLISHED'");
    while (performance.now() < ends) {
      const spent = scene.sql("SELECT seq, status, retry_count FROM outbox WHERE status IN ('FAILED', 'DEAD') OR retry_count > 0 LIMIT 5");
      expect(spent, "no attempt is spent").toEqual([]);
      expect(scene.one("SELECT count(*) FROM log"), "nothing is stored").toBe(stored);
      await sleep(200);
    }
    expect(scene.one("SELECT count(*) FROM outbox WHERE status <> 'PUBLISHED'"), "writers went on").toBeGreaterThan(waiting + 200);
    const { stdout } = await inProcess(["status", "--store", scene.storeUrl, "--json"], { cwd: scene.folder });
    expect(statusSaid(stdout), "status names what events wait for").toMatchObject({ breakers: topics });

    rmSync(flag);
    await scene.stop(writer);
    await untilPublished(scene);
    await scene.drain(...relays);
    expectAllPublished(scene);
    expect(scene.sql("SELECT seq FROM outbox WHERE retry_count > 0")).toEqual([]);
    expect(duplicates(scene)).toEqual({ most: 0, total: 0 });
    expect(statusTruth(scene.sql)).toMatchObject({ breakers: [], holds: { aggregates: 0, blocked: 0 } });
  });

  test.for(["as soon as it wakes", "between its renewal and its next look", "when it has lanes again"] as const)(
    "a relay frozen past its lease while another takes over, which settles %s: changes no row, drops its lanes and rejoins",
    async (when, context) => {
      const scene = await createScene(context);
      const aggregates = scene.aggregates(40, "a");
      const refused = aggregates.slice(0, 20).map(({ aggregateId }) => aggregateId);
      const flag = join(scene.folder, "refusing");
      // Short for the one that is frozen; a busy machine must not cost the other one its lanes.
      const options = { leaseMs: 4_000, batch: 50, batchesInFlight: 3, pollIntervalMs: 50 };
      await scene.done(scene.writer("early", { hot: aggregates, cold: aggregates, transactions: 120, most: 3 }));

      const owns = (relay: string, lanes: number): Promise<void> =>
        until(
          `${relay} has ${lanes} lanes`,
          () => scene.one("SELECT count(*) FROM waybill_lanes WHERE owner LIKE ?", `${relay}:%`) === lanes,
          20_000,
          () => statusTruth(scene.sql),
        );

      const slowLook = when === "between its renewal and its next look";
      const frozen = scene.relay("frozen", options, { pause: { at: "after-publish" }, tell: ["after-claim", "after-settle"], slowLook });
      const ids = (type: string, at: string): string[] =>
        frozen.lines.flatMap((line) => (line["type"] === type && line["at"] === at ? (line["ids"] as string[]) : [])).sort();
      const lanes = (type: string): number[] => frozen.lines.flatMap((line) => (line["type"] === type ? (line["lanes"] as number[]) : []));
      const aggregatesOf = (some: readonly string[]): number =>
        scene.one("SELECT count(DISTINCT aggregate_id) FROM outbox WHERE id IN (SELECT value FROM json_each(?))", JSON.stringify(some));
      const [claimed, sentNow] = [() => ids("passes", "after-claim"), () => ids("paused", "after-publish")];
      await until("it has claimed all that it may", () => claimed().length === options.batch * options.batchesInFlight, 20_000);
      await until("it has published what it may of that", () => aggregatesOf(sentNow()) === aggregatesOf(claimed()), 20_000);
      await scene.freeze(frozen);
      const sent = sentNow();
      expect(sent.length, "it has claimed ahead").toBeLessThan(claimed().length);
      expect(scene.one("SELECT count(*) FROM log")).toBe(sent.length);
      const epochs = epochsOf(scene);
      expect(epochs).toHaveLength(LANES);

      // Under the other's hand half of the aggregates fail: a settle that is not fenced off would change FAILED rows.
      writeFileSync(flag, "");
      const refuse = { flag, as: "event", aggregates: refused };
      const other = scene.relay("other", { ...options, leaseMs: 30_000, retry: { delaysMs: [600_000, 600_000] } }, { refuse });
      await owns("other", LANES);
      await until(
        "the other has settled everything",
        () => scene.one(undecided) === 0,
        20_000,
        () => statusTruth(scene.sql),
      );
      const failed = "SELECT count(*) FROM outbox WHERE status = 'FAILED' AND id IN (SELECT value FROM json_each(?))";
      expect(scene.one(failed, JSON.stringify(sent)), "some of what the frozen one has sent is FAILED now").toBeGreaterThan(5);
      const before = everything(scene.sql);

      if (when === "as soon as it wakes") frozen.say("go");
      frozen.signal("SIGCONT");
      if (slowLook) await frozen.told("that it has renewed its lease", ({ type }) => type === "renewed");
      if (when === "when it has lanes again")
        await until("it knows of its new lanes", () => lanes("lanes.won").length === LANES * 1.5, 20_000);
      frozen.say("go");
      const allSettled = (): boolean => ids("passes", "after-settle").length === ids("passes", "after-claim").length;
      await until("it has settled all that it had claimed", allSettled, 20_000);
      expect(everything(scene.sql), "its settles change no row, and it sends nothing more").toEqual(before);
      frozen.say("look");
      await until("it has dropped its lanes", () => lanes("lanes.lost").length >= LANES, 20_000);
      await owns("frozen", LANES / 2);
      expect(lanes("lanes.lost").sort(byNumber), "it loses each lane once").toEqual(Array.from({ length: LANES }, (_, lane) => lane));
      for (const { lane, epoch } of epochsOf(scene)) {
        expect(epoch, `epoch of lane ${lane}`).toBeGreaterThan(Number(epochs[Number(lane)]?.["epoch"]));
      }
      expectSound(scene);

      rmSync(flag);
      scene.sql("UPDATE outbox SET next_attempt_at = '2000-01-01T00:00:00.000Z' WHERE status = 'FAILED'");
      await scene.done(scene.writer("late", { hot: aggregates, cold: aggregates, transactions: 100, most: 3 }));
      await untilPublished(scene);
      expect(frozen.ending, "the process lives").toBeNull();
      await scene.drain(frozen, other);
      expectAllPublished(scene);
      expectFewDuplicates(scene, 1, options.batch * options.batchesInFlight);
    },
  );
});

/** Followers of a failed event are BLOCKED, those of what the frozen one left behind too. */
const undecided = "SELECT (SELECT count(*) FROM waybill_windows) + (SELECT count(*) FROM outbox WHERE status = 'PENDING')";

const byNumber = (a: number, b: number): number => a - b;

function epochsOf({ sql }: Scene): readonly SqlRow[] {
  return sql("SELECT lane, epoch FROM waybill_lanes WHERE owner IS NOT NULL ORDER BY lane");
}
