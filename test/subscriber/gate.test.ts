import { describe, expect, it } from "vitest";
import { Conflict } from "../../src/core/blameless.ts";
import type { Inbox } from "../../src/contracts/inbox.ts";
import { createGate, type Gate } from "../../src/subscriber/gate.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";
import { envelope, eventually, settle, type FakeTx } from "./fakes.ts";
import { setup } from "./setup.ts";

const conflict = (): Conflict => new Conflict("the database", new Error("deadlock detected"));

/** Starts batches that run until they are told to end. */
function running(gate: Gate) {
  const ends: ((failure?: Error) => void)[] = [];
  return {
    start: (count: number): void => {
      for (let n = 0; n < count; n++)
        void gate
          .run(() => new Promise<void>((resolve, reject) => ends.push((failure) => (failure ? reject(failure) : resolve()))))
          .catch(() => undefined);
    },
    count: (): number => ends.length,
    end: async (failure?: Error): Promise<void> => {
      ends.shift()!(failure);
      await settle();
    },
  };
}

describe("batches", () => {
  it("run side by side until two of them conflict, then one at a time, and widen slowly", async () => {
    const clock = manualClock();
    const batches = running(createGate(clock, 8));
    batches.start(40);
    await settle();
    expect(batches.count()).toBe(8);
    await batches.end(conflict());
    for (let others = 7; others > 1; others--) {
      await batches.end(conflict());
      expect(batches.count()).toBe(others - 1); // none begins before all of them have ended
    }
    await batches.end();
    expect(batches.count()).toBe(1);
    for (const wide of [2, 4, 8]) {
      await batches.end();
      expect(batches.count()).toBe(wide / 2);
      await clock.advance(5_000);
      await batches.end();
      expect(batches.count()).toBe(wide);
    }
  });

  it("that conflict again go one at a time for twice as long, up to ten minutes", async () => {
    const clock = manualClock();
    const batches = running(createGate(clock, 2));
    batches.start(200);
    await settle();
    for (const seconds of [5, 10, 20, 40, 80, 160, 320, 600, 600]) {
      expect(batches.count()).toBe(2);
      await batches.end(conflict());
      await batches.end(conflict());
      expect(batches.count()).toBe(1);
      await clock.advance(seconds * 1_000 - 1);
      await batches.end();
      expect(batches.count()).toBe(1);
      await clock.advance(1);
      await batches.end();
    }
  });
});

describe("a batch that lost a conflict", () => {
  for (const [times, transactions] of [
    [1, [3, 3]],
    [2, [3, 3, 1, 1, 1]],
  ] as const)
    it(`${times} times costs none of its events an attempt`, async () => {
      const { broker, inbox, subscriber, of } = setup();
      const asked: number[] = [];
      const once: Inbox<FakeTx>["once"] = (keys, ...rest) => {
        asked.push(1 + (keys.also ?? []).length);
        if (asked.length <= times) return Promise.reject(conflict());
        return inbox.inbox.once(keys, ...rest);
      };
      broker.add("order.events", ...["a", "b", "c"].map((aggregate) => envelope(aggregate)));
      await subscriber({ batch: 3, inbox: { inbox: { ...inbox.inbox, once } } }).start();
      await eventually(() => broker.acked.length === 3);
      expect(asked).toEqual(transactions);
      expect(inbox.effects).toHaveLength(3);
      expect(of("subscriber.failed")).toEqual([]);
      expect(of("subscriber.trouble")).toHaveLength(times);
    });

  it("by itself costs no attempt either, until its handler has always conflicted", async () => {
    const { broker, inbox, subscriber, clock, of } = setup();
    broker.add("order.events", envelope("a"));
    let left = 2;
    const once: Inbox<FakeTx>["once"] = (keys, version, work, letter) =>
      inbox.inbox.once(
        keys,
        version,
        async (tx, ...rest) => {
          await work(tx, ...rest);
          if (left-- > 0) throw conflict();
        },
        letter,
      );
    await subscriber({ inbox: { inbox: { ...inbox.inbox, once } } }).start();
    await settle();
    await clock.advance(10_000);
    await eventually(() => broker.acked.length === 1);
    expect(of("subscriber.failed")).toEqual([]);
    left = 3;
    broker.add("order.events", envelope("b"));
    await settle();
    await clock.advance(10_000);
    await eventually(() => of("subscriber.failed").length === 1);
  });
});
