import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { LANES } from "../../src/core/lane.ts";
import { duplicates, expectAllPublished, statusTruth, untilPublished } from "./judge.ts";
import { until, within, type Process } from "./processes.ts";
import { createScene } from "./scene.ts";

/** The lease has twenty seconds left at least, far more than a hand-over may take: whoever waited for it to run out would be seen. */
const flags = "--lease 30s --batch 10 --poll-interval 20ms --json".split(" ");
const handOverMs = 15_000;

test("SIGTERM at any moment: exit code 0, no duplicate, and another relay has every lane at once", async (context) => {
  const scene = await createScene(context, { ownBroker: true });
  const aggregates = scene.aggregates(60, "a");
  const traffic = { hot: aggregates.slice(0, 6), cold: aggregates };
  const writers = ["left", "right"].map((name) => scene.writer(name, { ...traffic, pauseMs: 3, most: 8 }));
  let started = 0;
  const start = async (): Promise<Process> => {
    const child = scene.cli(`relay-${++started}`, "relay", "--store", scene.storeUrl, "--broker", scene.brokerUrl, ...flags);
    await child.told("that it has started", ({ type }) => type === "relay.started");
    return child;
  };
  /** By its name in the tables; it has one once it has lanes. */
  const inHand = (child: Process): boolean => {
    const relay = child.lines.find(({ type }) => type === "lanes.won")?.["relay"];
    return relay !== undefined && scene.one("SELECT count(*) FROM waybill_windows WHERE relay = ?", relay as string) > 0;
  };
  const handedOver = (): boolean =>
    scene.one("SELECT count(*) FROM waybill_relays") === 1 &&
    scene.one("SELECT count(*) FROM waybill_lanes WHERE owner IN (SELECT relay FROM waybill_relays)") === LANES;

  let stays = await start();
  let goes = await start();
  for (let nth = 0; nth < 15; nth++) {
    // From before it has its first lane to long after. The one that goes is the elder or the younger.
    await sleep(scene.random.next() * 1_800);
    if (scene.random.next() < 0.5) [stays, goes] = [goes, stays];
    if (nth % 3 > 0) await until(`${goes.name} has something in hand`, () => inHand(goes), 10_000);
    goes.signal("SIGTERM");
    await until(`${stays.name} has every lane`, handedOver, handOverMs, () => ({ nth, ...statusTruth(scene.sql) }));
    expect(await within(`the end of ${goes.name}`, handOverMs, goes.ended)).toEqual({ code: 0, signal: null });
    expect(stays.ending).toBeNull();
    const left = "SELECT window FROM waybill_windows WHERE relay NOT IN (SELECT relay FROM waybill_relays)";
    expect(scene.sql(left), "it left no window").toEqual([]);
    expect(scene.sql("SELECT seq FROM waybill_suspects"), "it left no suspect").toEqual([]);
    expect(duplicates(scene)).toEqual({ most: 0, total: 0 });
    goes = await start();
  }

  for (const writer of writers) await scene.stop(writer);
  await untilPublished(scene);
  await scene.drain(stays, goes);
  expectAllPublished(scene);
  expect(duplicates(scene)).toEqual({ most: 0, total: 0 });
  expect(scene.one("SELECT count(*) FROM waybill_lanes WHERE owner IS NOT NULL")).toBe(0);
});
