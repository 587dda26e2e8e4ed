import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Inbox } from "../../src/contracts/inbox.ts";
import { seededRandom } from "../../src/core/random.ts";
import { callsOf } from "../../src/subscriber/calls.ts";
import { createSubscriber } from "../../src/subscriber/subscriber.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";
import { envelope, eventually, fakeBroker, fakeInbox, settle, type FakeInbox, type FakeTx } from "./fakes.ts";
import { setup } from "./setup.ts";

const topic = "order.events";

/** The inbox, and the ids of each transaction that it was asked for. */
function asked({ inbox }: FakeInbox): { readonly inbox: { readonly inbox: Inbox<FakeTx> }; readonly transactions: string[][] } {
  const transactions: string[][] = [];
  const once: typeof inbox.once = (keys, ...rest) => {
    transactions.push([keys.id, ...(keys.also ?? [])]);
    return inbox.once(keys, ...rest);
  };
  return { inbox: { inbox: { ...inbox, once } }, transactions };
}

describe("a batch", () => {
  it("applies events of several aggregates in one transaction, each aggregate's in order", async () => {
    const { broker, inbox, subscriber, of } = setup();
    const events = ["a", "b", "a", "c", "a"].map((aggregate) => envelope(aggregate));
    const { inbox: watching, transactions } = asked(inbox);
    broker.add(topic, ...events);
    await subscriber({ batch: 10, inbox: watching }).start();
    await eventually(() => broker.acked.length === 5);
    expect(transactions).toHaveLength(1);
    expect(inbox.effects.filter((id) => [0, 2, 4].some((n) => events[n]!.id === id))).toEqual([0, 2, 4].map((n) => events[n]!.id));
    expect(new Set(inbox.effects)).toEqual(new Set(events.map(({ id }) => id)));
    expect(of("subscriber.handled").map(({ first }) => first)).toEqual([true, true, true, true, true]);
  });

  it("is never larger than it may be", async () => {
    const { broker, inbox, subscriber } = setup();
    const { inbox: watching, transactions } = asked(inbox);
    broker.add(topic, ...Array.from({ length: 10 }, (_, n) => envelope(`a${n % 4}`)));
    await subscriber({ batch: 3, inbox: watching }).start();
    await eventually(() => broker.acked.length === 10);
    expect(Math.max(...transactions.map((ids) => ids.length))).toBe(3);
  });

  it("is acknowledged after its commit and never before", async () => {
    const { broker, inbox, subscriber } = setup();
    broker.add(topic, envelope("a"), envelope("b"));
    const at: string[] = [];
    const hit = (point: string): void => void at.push(`${point}: ${inbox.effects.length} committed, ${broker.acked.length} acked`);
    await subscriber({ batch: 2, failpoints: { hit } }).start();
    await eventually(() => broker.acked.length === 2);
    expect(at.slice(0, 3)).toEqual([
      "before-handle: 0 committed, 0 acked",
      "before-commit: 0 committed, 0 acked",
      "after-effect: 2 committed, 0 acked",
    ]);
  });

  it("leaves out what was applied before, and acknowledges it", async () => {
    const { broker, inbox, subscriber, of } = setup();
    const events = ["a", "b", "c"].map((aggregate) => envelope(aggregate));
    await inbox.inbox.once({ consumer: "stock", id: events[1]!.id }, 1, (tx) => tx.write("before"));
    const { inbox: watching, transactions } = asked(inbox);
    broker.add(topic, ...events);
    await subscriber({ batch: 10, inbox: watching }).start();
    await eventually(() => broker.acked.length === 3);
    expect(transactions).toHaveLength(1);
    expect(inbox.effects).toEqual(["before", events[0]!.id, events[2]!.id]);
    expect(of("subscriber.handled").map(({ first }) => first)).toEqual([true, false, true]);
  });

  it("with an event that fails is rolled back, and each of its events is applied by itself", async () => {
    const { broker, inbox, subscriber, clock, of } = setup();
    const events = ["a", "b", "b", "c"].map((aggregate) => envelope(aggregate));
    const { inbox: watching, transactions } = asked(inbox);
    broker.add(topic, ...events);
    let failing = true;
    const OrderPlaced = (event: { readonly id: string }, tx: FakeTx): void => {
      tx.write(event.id);
      if (event.id === events[1]!.id && failing) throw new Error("no");
    };
    await subscriber({ batch: 10, inbox: watching, handlers: { OrderPlaced } }).start();
    await eventually(() => broker.acked.length === 2);
    await settle();
    expect(transactions[0]).toHaveLength(4);
    expect(transactions.slice(1).every((ids) => ids.length === 1)).toBe(true);
    expect(new Set(inbox.effects)).toEqual(new Set([events[0]!.id, events[3]!.id])); // the failed event's follower waits behind it
    expect(of("subscriber.failed").map(({ id, attempts }) => [id, attempts])).toEqual([[events[1]!.id, 1]]); // the batch cost no attempt
    failing = false;
    await clock.advance(1_000);
    await eventually(() => broker.acked.length === 4);
    expect(inbox.effects.slice(2)).toEqual([events[1]!.id, events[2]!.id]);
  });

  it("whose handlers take too long is rolled back, and what is slow fails alone", async () => {
    const { broker, inbox, subscriber, clock, of } = setup();
    const events = ["a", "b"].map((aggregate) => envelope(aggregate));
    broker.add(topic, ...events);
    const OrderPlaced = (event: { readonly id: string }, tx: FakeTx): void | Promise<void> =>
      event.id === events[0]!.id ? new Promise(() => undefined) : tx.write(event.id);
    await subscriber({ batch: 2, handlers: { OrderPlaced }, handlerTimeoutMs: 5_000 }).start();
    await settle();
    await clock.advance(5_000);
    await eventually(() => inbox.effects.length === 1);
    expect(of("subscriber.failed")).toEqual([]);
    await clock.advance(5_000);
    await eventually(() => of("subscriber.failed").length === 1);
    expect([inbox.effects, of("subscriber.failed")[0]!.id]).toEqual([[events[1]!.id], events[0]!.id]);
  });

  it("never holds two copies of one event", async () => {
    const { broker, inbox, subscriber } = setup();
    const twice = envelope("a");
    broker.add(topic, twice, twice, envelope("b"));
    const { inbox: watching, transactions } = asked(inbox);
    await subscriber({ batch: 10, inbox: watching }).start();
    await eventually(() => broker.acked.length === 3);
    for (const ids of transactions) expect(new Set(ids).size).toBe(ids.length);
    expect(inbox.effects).toHaveLength(2);
  });

  it("is given whole to a handler of batches, and one event at a time after a failure", async () => {
    const { broker, inbox, subscriber } = setup();
    const calls: string[][] = [];
    broker.add(topic, ...["a", "b", "c"].map((aggregate) => envelope(aggregate)));
    const OrderPlaced = (events: readonly { readonly id: string; readonly aggregateId: string }[], tx: FakeTx): void => {
      calls.push(events.map(({ aggregateId }) => aggregateId));
      if (events.length > 1) throw new Error("one of them is bad");
      for (const { id } of events) tx.write(id);
    };
    await subscriber({ batch: 3, handlers: {}, batchHandlers: { OrderPlaced } }).start();
    await eventually(() => broker.acked.length === 3);
    expect(calls[0]).toEqual(["a", "b", "c"]);
    expect(calls.slice(1).map((ids) => ids.length)).toEqual([1, 1, 1]);
    expect(inbox.effects).toHaveLength(3);
  });

  it("gives each aggregate its events once and in order, whatever fails and is redelivered", async () => {
    const given = fc.record({ aggregate: fc.constantFrom("a", "b", "c", "d"), fails: fc.integer({ min: 0, max: 2 }), again: fc.boolean() });
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 2, max: 6 }), fc.array(given, { maxLength: 25 }), async (batch, plan) => {
        const clock = manualClock();
        const broker = fakeBroker({}, clock);
        const inbox = fakeInbox(clock);
        const events = plan.map(({ aggregate }) => envelope(aggregate));
        const failures = new Map(events.map(({ id }, n) => [id, plan[n]!.fails]));
        const subscriber = createSubscriber<FakeTx>({
          ...{ consumer: "stock", source: broker.both, inbox, topics: [topic], batch, concurrency: 2, clock, random: seededRandom(1) },
          observe: false,
          handlers: {
            OrderPlaced(event, tx) {
              const left = failures.get(event.id)!;
              failures.set(event.id, left - 1);
              tx.write(event.id);
              if (left > 0) throw new Error("not yet");
            },
          },
        });
        broker.add(topic, ...events);
        await subscriber.start();
        events.forEach((event, n) => plan[n]!.again && broker.redeliver(topic, event));
        const done = (): boolean => new Set(broker.acked).size === events.length;
        for (let rounds = 0; !done() && rounds < 200; rounds++) await clock.advance(1_000);
        await subscriber.stop();
        for (const aggregate of ["a", "b", "c", "d"]) {
          const ids = events.filter(({ aggregateId }) => aggregateId === aggregate).map(({ id }) => id);
          expect(inbox.effects.filter((id) => ids.includes(id))).toEqual(ids);
        }
      }),
      { numRuns: 40 },
    );
  });
});

describe("the calls of a batch", () => {
  const of = (...names: string[]) =>
    names.map((name) => ({
      topic,
      envelope: envelope(name[0]!, {}, { type: name[1]! }),
      ack: async () => undefined,
      aside: () => undefined,
    }));
  const calls = (...names: string[]): string[] =>
    callsOf(
      of(...names),
      ({ envelope: { type } }) => type,
      (type) => type !== "1",
    ).map((call) => call.map(({ envelope: { aggregateId, type } }) => aggregateId + type).join(" "));

  it("hold as many events of one handler as their aggregates' order allows", () => {
    expect(calls("aX", "bX", "cX")).toEqual(["aX bX cX"]);
    expect(calls("aX", "aX")).toEqual(["aX aX"]);
    expect(calls("aX", "aY", "bX", "bY")).toEqual(["aX bX", "aY bY"]);
    expect(calls("aX", "aY", "aX", "bX")).toEqual(["aX", "aY", "aX bX"]);
    expect(calls("aY", "bX", "aX", "bY")).toEqual(["aY", "bX aX", "bY"]);
  });

  it("hold one event of a handler that takes one", () => {
    expect(calls("a1", "b1", "aX", "a1", "bX")).toEqual(["a1", "b1", "aX bX", "a1"]);
  });
});
