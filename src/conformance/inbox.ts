import assert from "node:assert/strict";
import type { StoreSuite } from "./harness.ts";
import { effectCases } from "./inbox-effects.ts";
import { letterCases } from "./inbox-letters.ts";
import { lettersSuite } from "./letters.ts";
import { cases } from "./scene.ts";

export function inboxSuite<Db, Tx>(suite: StoreSuite<Db, Tx>): void {
  const test = cases(suite, "inbox");
  const seatMs = 60_000;
  /** How long the statements of a case may take before a seat that it needs has expired: a server's clock cannot be stopped. */
  const marginMs = 20_000;

  effectCases(suite);

  test("a seat has one owner until it runs out or is left", async ({ store, clock }) => {
    const { inbox } = store;
    const one = { consumer: "billing", topic: "order.events", owner: "p1" };
    const two = { ...one, owner: "p2" };
    assert.equal(await inbox.sit(one, seatMs), true);
    assert.equal(await inbox.sit(two, seatMs), false);
    assert.equal(await inbox.sit({ ...two, topic: "other.events" }, seatMs), true);
    assert.equal(await inbox.sit({ ...two, consumer: "stock" }, seatMs), true);
    await clock.advance(seatMs - marginMs);
    assert.equal(await inbox.sit(one, seatMs), true);
    await clock.advance(seatMs - marginMs);
    assert.equal(await inbox.sit(two, seatMs), false);
    await inbox.leave(two);
    assert.equal(await inbox.sit(two, seatMs), false, "only its owner can leave it");
    await clock.advance(marginMs + 2_000);
    assert.equal(await inbox.sit(two, seatMs), true);
    assert.equal(await inbox.sit(one, seatMs), false);
    await inbox.leave(two);
    await inbox.leave(two);
    assert.equal(await inbox.sit(one, seatMs), true);
  });

  test("a look tells which topics a consumer reads, whether a process of it runs, and when one was seen last", async ({ store, clock }) => {
    const { inbox, consumers } = store;
    const seat = { consumer: "billing", topic: "order.events", owner: "p1" };
    const told = async (name?: string): Promise<readonly string[]> =>
      (await consumers.look(name)).flatMap(({ consumer, reads }) =>
        reads.map(({ topic, running, seenAt }) => {
          assert.ok(Math.abs(seenAt.getTime() - clock.now()) < seatMs + marginMs, `${seenAt.toISOString()} is not a moment ago`);
          return `${consumer} ${topic} ${running}`;
        }),
      );
    assert.deepEqual(await told(), []);
    await inbox.sit(seat, seatMs);
    await inbox.sit({ ...seat, topic: "parcel.events" }, seatMs);
    await inbox.sit({ ...seat, consumer: "stock" }, seatMs);
    await inbox.sit({ ...seat, topic: "waybill:forget" }, seatMs); // the process that forgets marks: no topic
    await inbox.leave({ ...seat, topic: "parcel.events" });
    assert.deepEqual(await told(), ["billing order.events true", "billing parcel.events false", "stock order.events true"]);
    assert.deepEqual(await told("stock"), ["stock order.events true"]);
    await clock.advance(seatMs + 2_000);
    assert.deepEqual(await told("billing"), ["billing order.events false", "billing parcel.events false"]);
    assert.equal(await inbox.sit({ ...seat, topic: "parcel.events", owner: "p2" }, seatMs), true, "a seat that was left is free at once");
    assert.deepEqual(await told("billing"), ["billing order.events false", "billing parcel.events true"]);
  });

  test("of many that sit down at once, one sits", async ({ store }) => {
    const owners = ["p1", "p2", "p3", "p4", "p5"];
    const sat = await Promise.all(owners.map((owner) => store.inbox.sit({ consumer: "billing", topic: "t", owner }, seatMs)));
    assert.equal(sat.filter(Boolean).length, 1);
  });

  letterCases(suite);
  lettersSuite(suite);
}
