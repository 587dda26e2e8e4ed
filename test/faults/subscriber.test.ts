import { expect, test } from "vitest";
import { expectAllPublished, expectOneEffectEach } from "./judge.ts";
import { until, within } from "./processes.ts";
import { createScene } from "./scene.ts";

const seatMs = 1_000;

test.for([
  { between: "effect commit and ack", at: "after-effect", effects: 1 },
  { between: "inbox insert and commit", at: "before-commit", effects: 0 },
])("a subscriber killed between $between: one effect each, in order", async ({ at, effects }, context) => {
  const scene = await createScene(context, { ownBroker: true });
  const aggregates = scene.aggregates(12, "a");
  for (let nth = 0; nth < 3; nth++) {
    await scene.done(scene.writer("writer", { hot: aggregates, cold: aggregates, transactions: 30, most: 3 }));
    await scene.done(scene.cli("relay", "relay", "--once", "--store", scene.storeUrl, "--broker", scene.brokerUrl));
    expectAllPublished(scene);

    const fresh = scene.sql('SELECT id, topic, "offset" FROM log WHERE id NOT IN (SELECT event_id FROM effects)');
    const { id, topic, offset } = fresh[Math.floor(scene.random.next() * fresh.length)]!;
    const victim = scene.subscriber(`victim-${nth}`, { seatMs }, { die: { at, id } });
    expect(await within("its death", 30_000, victim.ended)).toEqual({ code: null, signal: "SIGKILL" });
    expect(victim.lines.at(-1)).toEqual({ type: "dies", at });
    expect(scene.one("SELECT count(*) FROM effects WHERE event_id = ?", String(id))).toBe(effects);
    expect(scene.one("SELECT count(*) FROM inbox WHERE event_id = ?", String(id))).toBe(effects);
    const acked = scene.one("SELECT max(\"offset\") FROM waybill_broker_consumers WHERE consumer = 'effects' AND topic = ?", String(topic));
    expect(acked, "the broker has no ack of it").toBeLessThan(Number(offset));
  }

  const healthy = scene.subscriber("healthy", { seatMs });
  const left = (): number => scene.sql("SELECT id FROM log EXCEPT SELECT event_id FROM effects").length;
  await until("every event has its effect", () => left() === 0, 30_000, left);
  await scene.drain(healthy);
  expectOneEffectEach(scene);
  expect(scene.sql("SELECT event_id FROM inbox EXCEPT SELECT event_id FROM effects")).toEqual([]);
  expect(scene.one("SELECT count(*) FROM inbox")).toBe(scene.one("SELECT count(*) FROM written"));
});
