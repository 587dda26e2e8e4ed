import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import type { Status } from "../../src/contracts/operator.ts";
import { seededRandom } from "../../src/core/random.ts";
import { inProcess } from "../cli/in-process.ts";
import { expectAllPublished, expectFewDuplicates, expectOneEffectEach, statusSaid, statusTruth, untilPublished } from "./judge.ts";
import { until, type Process } from "./processes.ts";
import { createScene, type Scene } from "./scene.ts";

const kills = 10;
const relayOptions = { leaseMs: 3_000, batch: 50, batchesInFlight: 3, pollIntervalMs: 50 };
const window = relayOptions.batch * relayOptions.batchesInFlight;

test.for([
  { file: "the same file", ownBroker: false },
  { file: "a file of its own", ownBroker: true },
])(
  "three relays and three subscribers, ten of each killed at random moments, the broker in $file: nothing lost or invented, in order, one effect each",
  async ({ ownBroker }, context) => {
    const scene = await createScene(context, { ownBroker });
    const [hot, cold] = [scene.aggregates(6, "hot"), scene.aggregates(60, "cold")];
    await scene.done(scene.writer("backlog", { hot, cold, transactions: 60, most: 40 }));
    const relays = fleet((nth) => scene.relay(`relay-${nth}`, relayOptions));
    const subscribers = fleet((nth) => scene.subscriber(`subscriber-${nth}`, { seatMs: 1_500 }));
    const writers = ["left", "right"].map((name) => scene.writer(name, { hot, cold, pauseMs: 8, most: 3 }));
    await until("the first effect", () => scene.one("SELECT count(*) FROM effects") > 0, 30_000);

    const claims = ({ name }: Process): boolean => scene.one("SELECT count(*) FROM waybill_windows WHERE relay LIKE ?", `${name}:%`) > 0;
    const sits = ({ name }: Process): boolean => scene.one("SELECT count(*) FROM waybill_seats WHERE owner = ?", name) > 0;
    await Promise.all([
      killAtRandom(relays, scene.seed + 1, claims),
      killAtRandom(subscribers, scene.seed + 2, sits),
      expectTrueStatus(scene),
    ]);
    const doomed = await Promise.all(writers.map((writer) => scene.stop(writer)));
    expect(Math.min(...doomed), "some transactions were rolled back").toBeGreaterThan(0);

    const left = (): number => scene.one("SELECT (SELECT count(*) FROM written) - (SELECT count(DISTINCT event_id) FROM effects)");
    await until(
      "every event has its effect",
      () => left() === 0,
      60_000,
      () => ({ left: left(), ...statusTruth(scene.sql) }),
    );
    await untilPublished(scene);
    await scene.drain(...relays.running(), ...subscribers.running());
    const status = scene.cli("status", "status", "--store", scene.storeUrl, "--json");
    await scene.done(status);
    expect(statusSaid(status.output())).toEqual(statusTruth(scene.sql));

    expectAllPublished(scene);
    expectOneEffectEach(scene);
    expectFewDuplicates(scene, kills, window);
    expect(scene.sql("SELECT seq, retry_count, last_error FROM outbox WHERE retry_count > 0"), "a death is no failed attempt").toEqual([]);
    expect(scene.one("SELECT count(*) FROM written"), "there was enough to double").toBeGreaterThan(1_000);
    expect(scene.one("SELECT max(epoch) FROM waybill_lanes"), "lanes changed hands").toBeGreaterThan(5);
  },
);

interface Fleet {
  running(): readonly Process[];
  /** Kills one and starts a new one in its place. */
  replace(victim: Process): Promise<void>;
}

function fleet(start: (nth: number) => Process): Fleet {
  let started = 3;
  let members = [1, 2, 3].map(start);
  return {
    running: () => members,
    async replace(victim) {
      expect(await victim.kill()).toEqual({ code: null, signal: "SIGKILL" });
      members = [...members.filter((member) => member !== victim), start(++started)];
    },
  };
}

/** Any of them at any moment; every other time one that has something in hand, since that is where it hurts. */
async function killAtRandom(of: Fleet, seed: number, atWork: (process: Process) => boolean): Promise<void> {
  const random = seededRandom(seed);
  for (let nth = 0; nth < kills; nth++) {
    await sleep(100 + random.next() * 3_900);
    const first = Math.floor(random.next() * of.running().length);
    const inTurn = [...of.running().slice(first), ...of.running().slice(0, first)];
    let victim = inTurn[0]!;
    if (nth % 2 === 1) await until("one of them is at work", () => (victim = inTurn.find(atWork) ?? victim) && atWork(victim), 20_000);
    expect(victim.ending, `${victim.name} is alive until it is killed`).toBeNull();
    await of.replace(victim);
  }
}

/** In the middle of it all, under the write lock, so that nothing changes between the two looks. */
async function expectTrueStatus({ sql, storeUrl, folder }: Scene): Promise<void> {
  for (let checked = 0; checked < 8;) {
    await sleep(1_000);
    sql("BEGIN IMMEDIATE");
    try {
      const before = statusTruth(sql);
      const { code, stdout } = await inProcess(["status", "--store", storeUrl, "--json"], { cwd: folder });
      const truth = statusTruth(sql);
      expect(code).toBe(0);
      if (JSON.stringify(before) !== JSON.stringify(truth)) continue; // a lease ran out while we looked
      expect(statusSaid(stdout)).toEqual(truth);
      const { relays } = JSON.parse(stdout) as Status;
      for (const { windowLimit } of relays) expect(windowLimit, "how many duplicates a fault may cause").toBe(window);
      checked++;
    } finally {
      sql("ROLLBACK");
    }
  }
}
