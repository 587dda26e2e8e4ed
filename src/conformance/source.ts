import assert from "node:assert/strict";
import type { Delivery, Subscription } from "../contracts/source.ts";
import { systemClock } from "../core/clock.ts";
import type { Envelope } from "../core/event.ts";
import { seededRandom } from "../core/random.ts";
import { comparable, difficultEvents, idsByAggregate, never, quiet, sampleEvent, within } from "./corpus.ts";
import type { Test } from "./harness.ts";
import { begin, eventIds, ids, many, quietMs, type Receiving, type SourceBench, type SourceHarness } from "./receiving.ts";
import { sourceBounds } from "./source-bounds.ts";

export interface SourceSuite {
  readonly test: Test;
  /** How long anything may take before it counts as hanging. @default 5000 */
  readonly patienceMs?: number;
  create(): Promise<SourceHarness>;
  readonly can: {
    /** The longest a broker may take to give an unacknowledged message to the next receiver. */
    readonly redeliverWithinMs: number;
  };
}

/** Every promise of the Source contract. A third party's adapter that passes keeps them. */
export function sourceSuite(suite: SourceSuite): void {
  const soonMs = suite.patienceMs ?? 5_000;
  const test = (name: string, run: (bench: SourceBench) => Promise<void>): void =>
    void suite.test(`source: ${name}`, async () => {
      const harness = await suite.create();
      const opened: Receiving[] = [];
      try {
        await run({
          ...harness,
          topic: harness.topics[0],
          async receive(subscription, signal) {
            const wanted = { ...defaults(harness), ...subscription };
            const receiving = await begin(await harness.open(), wanted, signal ?? never(), {
              soonMs,
              againMs: soonMs + suite.can.redeliverWithinMs,
            });
            opened.push(receiving);
            return receiving;
          },
        });
      } finally {
        for (const receiving of opened) await receiving.close();
        await harness.close();
      }
    });

  sourceBounds(test, soonMs);

  test("an event arrives as it was stored: bytes, headers and every field", async ({ topic, store, receive }) => {
    const events = difficultEvents();
    const given = events.map(([, event]) => event);
    await store(topic, given);
    const deliveries = await (await receive({})).take(events.length);
    const byId = new Map(deliveries.map((delivery) => [delivery.envelope.id, delivery]));
    for (const [about, event] of events) {
      const delivery = byId.get(event.id);
      assert.ok(delivery !== undefined, about);
      assert.equal(delivery.topic, topic, about);
      assert.deepEqual(comparable(delivery.envelope), comparable(event), about);
    }
  });

  test("one aggregate's deliveries come in the order they were stored, each once", async ({ topic, store, receive }) => {
    const random = seededRandom(11);
    const events = Array.from({ length: 1_200 }, () => sampleEvent({ aggregateId: `order-${Math.floor(random.next() * 9)}` }));
    const { next } = await receive({ prefetch: 50 });
    await store(topic, events.slice(0, 500));
    const got: Envelope[] = [];
    for (const part of [events.slice(500, 600), events.slice(600)]) {
      while (got.length < events.indexOf(part[0]!)) got.push(await acked(soonMs, next));
      await store(topic, part);
    }
    while (got.length < events.length) got.push(await acked(soonMs, next));
    assert.deepEqual(idsByAggregate(got), idsByAggregate(events));
  });

  test("an event stored while a source waits is delivered", async ({ topic, store, receive }) => {
    const { next } = await receive({});
    const waiting = next();
    await quiet(quietMs, "something came out of an empty topic", waiting);
    const event = sampleEvent();
    await store(topic, [event]);
    assert.equal((await within(soonMs, "delivery", waiting))?.envelope.id, event.id);
  });

  test("only the topics asked for are delivered, each delivery under its own", async ({ topics: [one, two], store, receive }) => {
    const [first, second, third] = many(3);
    await store(one, [first!]);
    await store(two, [second!]);
    const both = await receive({ consumer: "both", topics: [one, two] });
    const single = await receive({ consumer: "single", topics: [two] });
    const named = (await both.take(2)).map(({ topic, envelope }) => [envelope.id, topic]);
    assert.deepEqual(Object.fromEntries(named), { [first!.id]: one, [second!.id]: two });
    await store(one, [third!]);
    assert.deepEqual(ids(await single.take(1)), [second!.id]);
    await quiet(quietMs, "another topic's event was delivered", single.next());
  });

  test("what was not acknowledged is delivered again, in order, and what was acknowledged is not", async ({ topic, store, receive }) => {
    const events = many(12);
    await store(topic, events);
    const first = await receive({});
    for (const delivery of (await first.take(12)).slice(0, 5)) await delivery.ack();
    await first.close();
    const second = await receive({});
    assert.deepEqual(ids(await second.take(7)), eventIds(events.slice(5)));
    await quiet(quietMs, "an acknowledged event was delivered again", second.next());
  });

  test("acks out of order never pass one that is missing", async ({ topic, store, receive }) => {
    const events = many(6);
    await store(topic, events);
    const first = await receive({});
    const deliveries = await first.take(6);
    for (const n of [5, 0, 4, 2, 3]) await deliveries[n]!.ack();
    await first.close();
    const second = await receive({});
    const [again] = await second.take(1);
    assert.equal(again!.envelope.id, events[1]!.id);
    await again!.ack();
  });

  test("acks out of order count once the missing one is given", async ({ topic, store, receive }) => {
    const events = many(4);
    await store(topic, events);
    const first = await receive({});
    const deliveries = await first.take(3);
    for (const n of [2, 1, 0]) await deliveries[n]!.ack();
    await first.close();
    assert.deepEqual(ids(await (await receive({})).take(1)), [events[3]!.id]);
  });

  test("consumers are independent: each gets everything, each has its own acks", async ({ topic, store, receive }) => {
    const events = many(5);
    await store(topic, events);
    const [left, right] = [await receive({ consumer: "left" }), await receive({ consumer: "right" })];
    const expected = eventIds(events);
    const deliveries = await left.take(5);
    assert.deepEqual(ids(deliveries), expected);
    for (const delivery of deliveries) await delivery.ack();
    await left.close();
    assert.deepEqual(ids(await right.take(5)), expected);
    await right.close();
    assert.deepEqual(ids(await (await receive({ consumer: "right" })).take(5)), expected);
  });

  test("an abort ends the iteration while it waits, while it is full, and before it begins", async ({ topic, store, receive }) => {
    await store(topic, many(2));
    for (const [prefetch, taken] of [
      [9, 2],
      [1, 1],
    ] as const) {
      const controller = new AbortController();
      const { take, next } = await receive({ prefetch, consumer: `prefetch-${prefetch}` }, controller.signal);
      await take(taken);
      const waiting = next();
      controller.abort();
      assert.equal(await within(soonMs, "the end after an abort", waiting), undefined);
      assert.equal(await within(soonMs, "next after the end", next()), undefined);
    }
    const { next } = await receive({}, AbortSignal.abort());
    assert.equal(await within(soonMs, "the end of an aborted iteration", next()), undefined);
  });

  test("an abort does not take acks back, and one given after it still counts", async ({ topic, store, receive }) => {
    const events = many(4);
    await store(topic, events);
    const controller = new AbortController();
    const first = await receive({}, controller.signal);
    const deliveries = await first.take(3);
    await deliveries[0]!.ack();
    controller.abort();
    assert.equal(await within(soonMs, "the end after an abort", first.next()), undefined);
    await within(soonMs, "a late ack", deliveries[1]!.ack());
    await first.close();
    assert.deepEqual(ids(await (await receive({})).take(2)), [events[2]!.id, events[3]!.id]);
  });

  test("leaving the loop ends the iteration, also while it waits", async ({ topic, store, receive }) => {
    const events = many(2);
    await store(topic, events);
    const first = await receive({});
    await (await first.take(1))[0]!.ack();
    await within(soonMs, "return", first.return());
    await first.close();

    const second = await receive({});
    assert.deepEqual(ids(await second.take(1)), [events[1]!.id]);
    const waiting = second.next();
    await within(soonMs, "return while waiting", second.return());
    assert.equal(await within(soonMs, "next after return", waiting), undefined);
  });

  test("closing ends the iteration, twice is harmless, and nothing is received after it", async ({ topic, store, receive }) => {
    const { source, next } = await receive({});
    const waiting = next();
    await within(soonMs, "close", source[Symbol.asyncDispose]());
    await within(soonMs, "close again", source[Symbol.asyncDispose]());
    assert.equal(await within(soonMs, "the end after close", waiting), undefined);
    await store(topic, many(1));
    const after = async (): Promise<unknown> => {
      for await (const delivery of source.receive({ consumer: "late", topics: [topic], prefetch: 1 }, never())) return delivery;
      return undefined;
    };
    const received = after().catch(() => undefined);
    assert.equal(await within(soonMs, "receive after close", received), undefined);
  });

  test("lag counts what a consumer is not done with, is null for one without a place, and changes nothing", async ({
    topic,
    store,
    receive,
    open,
  }) => {
    await using source = await open();
    if (source.lag === undefined) return;
    await within(soonMs, "connect", source.connect(never()));
    const lag = (consumer: string): Promise<number | null> => within(soonMs, "lag", source.lag!(topic, never(), consumer));
    await store(topic, many(7));
    assert.equal(await lag("stranger"), null);
    assert.equal(await lag("stranger"), null, "asking made a place");
    const reaches = async (expected: number): Promise<void> => {
      const until = systemClock.monotonic() + soonMs;
      let found = await lag("suite");
      while (found !== expected && systemClock.monotonic() < until) {
        await systemClock.sleep(20);
        found = await lag("suite");
      }
      assert.equal(found, expected);
    };
    let left = 7;
    for (const acks of [0, 1, 2, 4]) {
      const receiving = await receive({});
      const deliveries = await receiving.take(left);
      await lag("suite");
      for (const delivery of deliveries.slice(0, acks)) await delivery.ack();
      await receiving.close();
      left -= acks;
      await reaches(left);
    }
    await store(topic, many(2));
    await reaches(2);
  });
}

const defaults = ({ topics: [topic] }: SourceHarness): Subscription => ({ consumer: "suite", topics: [topic], prefetch: 20 });

async function acked(soonMs: number, next: () => Promise<Delivery | undefined>): Promise<Envelope> {
  const delivery = await within(soonMs, "delivery", next());
  assert.ok(delivery !== undefined, "the iteration ended early");
  await delivery.ack();
  return delivery.envelope;
}
