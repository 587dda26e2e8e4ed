import assert from "node:assert/strict";
import type { Delivery, Source, Subscription } from "../contracts/source.ts";
import { aggregateKey, type Envelope } from "../core/event.ts";
import { seededRandom } from "../core/random.ts";
import { comparable, difficultEvents, quiet, sampleEvent, within } from "./corpus.ts";
import type { Test } from "./harness.ts";
import { begin, type Receiving } from "./receiving.ts";

export interface SourceHarness {
  /** Another source on the same broker, as a new process would have it; not connected yet. */
  open(): Promise<Source>;
  /** Two topics that are there, and empty. */
  readonly topics: readonly [string, string];
  /** Stores these events, in this order. */
  readonly store: (topic: string, events: readonly Envelope[]) => Promise<void>;
  /** Removes everything. */
  close(): Promise<void>;
}

export interface SourceSuite {
  readonly test: Test;
  /** How long anything may take before it counts as hanging. @default 5000 */
  readonly patienceMs?: number;
  create(): Promise<SourceHarness>;
  readonly can: {
    /** The longest a broker may take to give an unacknowledged message to the next who asks. */
    readonly redeliverWithinMs: number;
  };
}

interface Bench extends SourceHarness {
  /** Opens, receives, and closes at the end of the test. */
  readonly receive: (subscription: Partial<Subscription>, signal?: AbortSignal) => Promise<Receiving>;
}

const quietMs = 200;

/** Every promise of the Source contract. A third party's adapter that passes keeps them. */
export function sourceSuite(suite: SourceSuite): void {
  const soonMs = suite.patienceMs ?? 5_000;
  const test = (name: string, run: (bench: Bench) => Promise<void>): void =>
    void suite.test(`source: ${name}`, async () => {
      const harness = await suite.create();
      const opened: Receiving[] = [];
      try {
        await run({
          ...harness,
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

  test("an event arrives as it was stored: bytes, headers and every field", async ({ topics: [topic], store, receive }) => {
    const events = difficultEvents();
    await store(
      topic,
      events.map(([, event]) => event),
    );
    const deliveries = await (await receive({})).take(events.length);
    const byId = new Map(deliveries.map((delivery) => [delivery.envelope.id, delivery]));
    for (const [about, event] of events) {
      const delivery = byId.get(event.id);
      assert.ok(delivery !== undefined, about);
      assert.equal(delivery.topic, topic, about);
      assert.deepEqual(comparable(delivery.envelope), comparable(event), about);
    }
  });

  test("one aggregate's deliveries come in the order they were stored, each once", async ({ topics: [topic], store, receive }) => {
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

  test("an event stored while a source waits is delivered", async ({ topics: [topic], store, receive }) => {
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
    assert.deepEqual(
      new Map(named as [string, string][]),
      new Map([
        [first!.id, one],
        [second!.id, two],
      ]),
    );
    await store(one, [third!]);
    assert.deepEqual(ids(await single.take(1)), [second!.id]);
    await quiet(quietMs, "another topic's event was delivered", single.next());
  });

  test("what was not acknowledged is delivered again, in order, and what was acknowledged is not", async ({
    topics: [topic],
    store,
    receive,
  }) => {
    const events = many(12);
    await store(topic, events);
    const first = await receive({});
    for (const delivery of (await first.take(12)).slice(0, 5)) await delivery.ack();
    await first.close();
    const second = await receive({});
    assert.deepEqual(
      ids(await second.take(7)),
      events.slice(5).map(({ id }) => id),
    );
    await quiet(quietMs, "an acknowledged event was delivered again", second.next());
  });

  test("acks out of order never pass one that is missing", async ({ topics: [topic], store, receive }) => {
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

  test("acks out of order count once the missing one is given", async ({ topics: [topic], store, receive }) => {
    const events = many(4);
    await store(topic, events);
    const first = await receive({});
    const deliveries = await first.take(3);
    for (const n of [2, 1, 0]) await deliveries[n]!.ack();
    await first.close();
    assert.deepEqual(ids(await (await receive({})).take(1)), [events[3]!.id]);
  });

  test("no more than `prefetch` are unacknowledged at once, and an ack makes room for one", async ({ topics: [topic], store, receive }) => {
    const events = many(8);
    await store(topic, events);
    const { take, next } = await receive({ prefetch: 3 });
    const deliveries = await take(3);
    const fourth = next();
    await quiet(quietMs, "a delivery beyond prefetch", fourth);
    await deliveries[1]!.ack();
    // The same ack once more makes no more room.
    await deliveries[1]!.ack();
    assert.equal((await within(soonMs, "delivery after an ack", fourth))?.envelope.id, events[3]!.id);
    await quiet(quietMs, "a delivery beyond prefetch, after one ack given twice", next());
  });

  test("what is set aside makes room for others, up to `waiting`, and is not acknowledged by it", async ({
    topics: [topic],
    store,
    receive,
  }) => {
    const events = many(8);
    await store(topic, events);
    const first = await receive({ prefetch: 2, waiting: 3 });
    const deliveries = [...(await first.take(2))];
    deliveries[0]!.aside();
    // The same one once more makes no more room.
    deliveries[0]!.aside();
    deliveries.push(...(await first.take(1)));
    const fourth = first.next();
    await quiet(quietMs, "a delivery beyond prefetch, after one was set aside twice", fourth);
    deliveries[1]!.aside();
    deliveries.push((await within(soonMs, "delivery after one was set aside", fourth))!);
    for (const delivery of deliveries) delivery.aside();
    deliveries.push(...(await first.take(1)));
    const sixth = first.next();
    await quiet(quietMs, "a delivery beyond prefetch and waiting", sixth);
    await deliveries[0]!.ack();
    deliveries.push((await within(soonMs, "delivery after an ack of what was set aside", sixth))!);
    assert.deepEqual(
      ids(deliveries),
      events.slice(0, 6).map(({ id }) => id),
    );
    await first.close();
    assert.deepEqual(ids(await (await receive({})).take(1)), [events[1]!.id]);
  });

  test("one message larger than `bytes` comes alone, and once it is set aside others come, up to a bound", async ({
    topics: [topic],
    store,
    receive,
  }) => {
    const large = (): Envelope => sampleEvent({ aggregateId: "one", data: new Uint8Array(20_000).fill(120) });
    const small = (): Envelope => sampleEvent({ aggregateId: "one" });
    const [first, second] = [large(), small()];
    await store(topic, [first]);
    const { take, next } = await receive({ waiting: 10, bytes: 5_000 });
    const [one] = await take(1);
    assert.equal(one!.envelope.id, first.id);
    await store(topic, [second]);
    const waiting = next();
    await quiet(quietMs, "a delivery beyond the bytes", waiting);
    one!.aside();
    const two = (await within(soonMs, "delivery while a large one waits", waiting))!;
    assert.equal(two.envelope.id, second.id);
    await two.ack();

    const [third, fourth] = [large(), small()];
    await store(topic, [third, fourth]);
    const [three] = await take(1);
    assert.equal(three!.envelope.id, third.id);
    three!.aside();
    const last = next();
    await quiet(quietMs, "a delivery beyond the bytes that may wait", last);
    await one!.ack();
    assert.equal((await within(soonMs, "delivery after an ack of what waited", last))?.envelope.id, fourth.id);
  });

  test("receivings that ended without progress set nothing aside that can be read: `stalls` alone is no verdict", async ({
    topics: [topic],
    store,
    receive,
  }) => {
    const events = many(12);
    await store(topic, events);
    for (const stalls of [1, 3, 30]) {
      const receiving = await receive({ stalls });
      const deliveries = await receiving.take(12);
      assert.deepEqual(
        deliveries.map(({ envelope, unreadable }) => unreadable?.why ?? envelope.id),
        events.map(({ id }) => id),
        String(stalls),
      );
      if (stalls === 30) for (const delivery of deliveries) await delivery.ack();
      await receiving.close();
    }
    await quiet(quietMs, "an acknowledged event was delivered again", (await receive({ stalls: 30 })).next());
  });

  test("consumers are independent: each gets everything, each has its own acks", async ({ topics: [topic], store, receive }) => {
    const events = many(5);
    await store(topic, events);
    const [left, right] = [await receive({ consumer: "left" }), await receive({ consumer: "right" })];
    const expected = events.map(({ id }) => id);
    const deliveries = await left.take(5);
    assert.deepEqual(ids(deliveries), expected);
    for (const delivery of deliveries) await delivery.ack();
    await left.close();
    assert.deepEqual(ids(await right.take(5)), expected);
    await right.close();
    assert.deepEqual(ids(await (await receive({ consumer: "right" })).take(5)), expected);
  });

  test("an abort ends the iteration while it waits, while it is full, and before it begins", async ({
    topics: [topic],
    store,
    receive,
  }) => {
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

  test("an abort does not take acks back, and one given after it still counts", async ({ topics: [topic], store, receive }) => {
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

  test("leaving the loop ends the iteration, also while it waits", async ({ topics: [topic], store, receive }) => {
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

  test("closing ends the iteration, twice is harmless, and nothing is received after it", async ({ topics: [topic], store, receive }) => {
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
    assert.equal(
      await within(
        soonMs,
        "receive after close",
        after().catch(() => undefined),
      ),
      undefined,
    );
  });
}

const never = (): AbortSignal => new AbortController().signal;

const many = (count: number): readonly Envelope[] => Array.from({ length: count }, () => sampleEvent());

const ids = (deliveries: readonly Delivery[]): string[] => deliveries.map(({ envelope }) => envelope.id);

const defaults = ({ topics: [topic] }: SourceHarness): Subscription => ({ consumer: "suite", topics: [topic], prefetch: 20 });

async function acked(soonMs: number, next: () => Promise<Delivery | undefined>): Promise<Envelope> {
  const delivery = await within(soonMs, "delivery", next());
  assert.ok(delivery !== undefined, "the iteration ended early");
  await delivery.ack();
  return delivery.envelope;
}

function idsByAggregate(events: readonly Envelope[]): Record<string, string[]> {
  const found: Record<string, string[]> = {};
  for (const event of events) (found[aggregateKey(event)] ??= []).push(event.id);
  return found;
}
