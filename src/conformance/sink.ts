import assert from "node:assert/strict";
import type { Outgoing, PublishResult, Sink } from "../contracts/sink.ts";
import { toAttributes, type Attributes } from "../core/cloudevents.ts";
import type { Envelope } from "../core/event.ts";
import { seededRandom } from "../core/random.ts";
import { difficultEvents, idsByAggregate, never, sampleEvent, within } from "./corpus.ts";
import type { Test } from "./harness.ts";

/** A message as another client reads it from the broker. */
export interface StoredMessage {
  readonly key: string;
  readonly attributes: Attributes;
  readonly headers: Readonly<Record<string, string>>;
  readonly data: Uint8Array;
}

export interface SinkHarness {
  /** Not connected yet. */
  readonly sink: Sink;
  /** Two topics that are there, and empty. */
  readonly topics: readonly [string, string];
  /** A topic that does not exist, and that a publish does not create. Used only where `can.missing`. */
  readonly missing: string;
  /** Everything the topic holds, oldest first, read without the sink. */
  readonly stored: (topic: string) => Promise<readonly StoredMessage[]>;
  /** Removes everything. */
  close(): Promise<void>;
}

export interface SinkSuite {
  readonly test: Test;
  /** How long anything may take before it counts as hanging. @default 5000 */
  readonly patienceMs?: number;
  create(): Promise<SinkHarness>;
  readonly can: {
    /** Publishing to a topic that is not there is refused. */
    readonly missing: boolean;
  };
}

/** A harness, and how a case publishes to it. */
interface SinkBench extends SinkHarness {
  /** The first of the topics. */
  readonly topic: string;
  readonly publish: (batch: readonly Outgoing[], signal?: AbortSignal) => Promise<readonly PublishResult[]>;
  /** Publishes to the topic, and fails unless all are stored. */
  readonly store: (events: readonly Envelope[]) => Promise<void>;
}

const source = "/conformance";

/** Every promise of the Sink contract. A third party's adapter that passes keeps them. */
export function sinkSuite(suite: SinkSuite): void {
  const soonMs = suite.patienceMs ?? 5_000;
  const run = (body: (bench: SinkBench) => Promise<void>) => async (): Promise<void> => {
    const harness = await suite.create();
    const { sink, topics } = harness;
    const publish = (batch: readonly Outgoing[], signal = never()): Promise<readonly PublishResult[]> => sink.publish(batch, signal);
    const store = async (events: readonly Envelope[]): Promise<void> => {
      const results = statuses(await publish(to(topics[0], events)));
      assert.deepEqual(results, Array(events.length).fill("stored"));
    };
    try {
      await within(soonMs, "connect", sink.connect(never()));
      await body({ ...harness, topic: topics[0], publish, store });
    } finally {
      await sink[Symbol.asyncDispose]();
      await harness.close();
    }
  };
  const test = (name: string, body: (bench: SinkBench) => Promise<void>): unknown => suite.test(`sink: ${name}`, run(body));
  const whenMissing: typeof test = (name, body) =>
    suite.can.missing ? test(name, body) : suite.test.skip?.(`sink: ${name} (cannot: missing)`, run(body));

  test("a message is stored with its key, attributes, headers and exact bytes", async ({ topic, store, stored }) => {
    const events = difficultEvents().map(([, event], i) => ({ ...event, aggregateId: `${event.aggregateId}-${i}` }));
    await store(events);
    const byId = new Map((await stored(topic)).map((message) => [message.attributes["id"], message]));
    assert.equal(byId.size, events.length);
    difficultEvents().forEach(([about], i) => {
      const event = events[i]!;
      const message = byId.get(event.id);
      assert.ok(message !== undefined, about);
      assert.equal(message.key, event.aggregateId, about);
      assert.deepEqual({ ...message.attributes }, { ...toAttributes(event, source) }, about);
      assert.deepEqual({ ...message.headers }, { ...event.headers }, about);
      assert.equal(Buffer.from(message.data).toString("hex"), Buffer.from(event.data).toString("hex"), about);
    });
  });

  test("one aggregate's messages are stored in the order given, within and across batches", async ({ topic, store, stored }) => {
    const random = seededRandom(7);
    const events = Array.from({ length: 300 }, () => sampleEvent({ aggregateId: `order-${Math.floor(random.next() * 9)}` }));
    for (let at = 0; at < events.length; at += 100) await store(events.slice(at, at + 100));
    assert.deepEqual(idsByKey(await stored(topic)), idsByAggregate(events));
  });

  test("publishes under way at once keep each aggregate's order", async ({ topic, store, stored }) => {
    const runs = [1, 2, 3, 4].map((n) => Array.from({ length: 50 }, () => sampleEvent({ aggregateId: `order-${n}` })));
    await Promise.all(runs.map(store));
    assert.deepEqual(idsByKey(await stored(topic)), idsByAggregate(runs.flat()));
  });

  test("no messages give no results", async ({ publish }) => {
    assert.deepEqual(await publish([]), []);
  });

  test("a message that is too large is refused for what it is, its followers are skipped, all others are stored", async (bench) => {
    const { topic, topics, publish } = bench;
    const huge = new Uint8Array(bench.sink.can.maxBytes + 1);
    const batch = [
      ...to(topic, [sampleEvent({ aggregateId: "a" }), sampleEvent({ aggregateId: "b" })]),
      ...to(topic, [sampleEvent({ aggregateId: "b", data: huge })]),
      ...to(topic, [sampleEvent({ aggregateId: "c" }), sampleEvent({ aggregateId: "b" })]),
      ...to(topics[1], [sampleEvent({ aggregateId: "b" })]),
      // The same id under another type is another aggregate.
      ...to(topic, [sampleEvent({ aggregateId: "b", aggregateType: "Invoice" })]),
    ];
    const results = await publish(batch);
    assert.deepEqual(statuses(results), ["stored", "stored", "refused", "stored", "skipped", "skipped", "stored"]);
    const refused = results[2]!;
    assert.ok(refused.status === "refused" && refused.blame === "event" && !refused.retryable && refused.error instanceof Error);
    await agree(bench, batch, results);
  });

  test("a header in an attribute's place, or half a character, is refused for what it is, and nothing is written over or changed", async (bench) => {
    const { topic, publish } = bench;
    const half = "\ud83d";
    const names = ["ce_id", "ce-id", "CE-Type", "cloudEvents:id", "content-type", "Content-Type", "Nats-Msg-Id", "CC", "bcc"];
    const wrong = [
      ...names.map((name) => sampleEvent({ headers: { [name]: "other" } })),
      sampleEvent({ headers: { note: `a${half}` } }),
      sampleEvent({ headers: { [`note${half}`]: "a" } }),
      ...["id", "type", "aggregateId", "aggregateType", "idempotencyKey"].map((field) => sampleEvent({ [field]: `a${half}b` })),
    ].map((event, i) => ({ ...event, aggregateId: `${i}-${event.aggregateId}` }));
    const good = sampleEvent({ headers: { ce: "a", content: "b", natsy: "c", "waybill-dead-topic": "e" } });
    const batch = to(topic, [...wrong, good]);
    const results = await publish(batch);
    results.slice(0, -1).forEach((result, i) => {
      const about = JSON.stringify([wrong[i]!.id, wrong[i]!.aggregateId, wrong[i]!.headers]);
      assert.ok(result.status === "refused" && result.blame === "event" && !result.retryable, about);
    });
    assert.equal(results.at(-1)!.status, "stored");
    await agree(bench, batch, results);
    const [refused] = await publish(to(`order${half}.events`, [sampleEvent()]));
    assert.ok(refused!.status === "refused" && !refused!.retryable, "a topic with half a character");
  });

  whenMissing("a topic that is not there is refused as the destination's fault, and other topics are stored", async (bench) => {
    const { topic, missing, publish } = bench;
    const batch = [
      ...to(topic, [sampleEvent({ aggregateId: "a" })]),
      ...to(missing, [sampleEvent({ aggregateId: "a" }), sampleEvent({ aggregateId: "b" })]),
      // Another topic, but the same aggregate: order comes before isolation.
      ...to(topic, [sampleEvent({ aggregateId: "a" }), sampleEvent({ aggregateId: "c" })]),
    ];
    const results = await publish(batch);
    assert.deepEqual(statuses(results), ["stored", "refused", "refused", "skipped", "stored"]);
    for (const result of results)
      assert.ok(result.status !== "refused" || (result.blame === "destination" && result.error instanceof Error));
    await agree(
      bench,
      batch.filter(({ topic: to }) => to === topic),
      results.filter((_, i) => batch[i]!.topic === topic),
    );
  });

  test("after an abort, publish settles soon, and stores nothing that it says is not stored", async (bench) => {
    const { topic, publish, store } = bench;
    const before = to(topic, [sampleEvent({ aggregateId: "a" }), sampleEvent({ aggregateId: "b" })]);
    const early = await within(soonMs, "publish with an aborted signal", publish(before, AbortSignal.abort()));
    assert.equal(early.length, 2);

    const events = Array.from({ length: 40 }, (_, i) => sampleEvent({ aggregateId: `order-${i % 4}` }));
    const during = to(topic, events);
    const controller = new AbortController();
    const publishing = publish(during, controller.signal);
    controller.abort();
    const late = await within(soonMs, "publish whose signal aborts", publishing);
    assert.equal(late.length, during.length);

    // Messages that are still on their way have arrived once a later message is there.
    await within(soonMs, "publish after an abort", store([sampleEvent({ aggregateId: "last" })]));
    await agree(bench, [...before, ...during], [...early, ...late]);
  });

  test("probe is content with a topic that is there, and stores nothing", async ({ sink, topic, stored }) => {
    await within(soonMs, "probe", sink.probe(topic, never()));
    assert.deepEqual(await stored(topic), []);
  });

  whenMissing("probe rejects for a topic that is not there, and does not make it", async ({ sink, missing }) => {
    await assert.rejects(within(soonMs, "probe", sink.probe(missing, never())), Error);
    await assert.rejects(within(soonMs, "probe", sink.probe(missing, never())), Error);
  });

  test("connecting twice is harmless", async ({ sink, store }) => {
    await within(soonMs, "connect", sink.connect(never()));
    await store([sampleEvent()]);
  });

  test("closing twice is harmless, and a publish after it does not reject and stores nothing", async (bench) => {
    const { sink, topic, publish, store, stored } = bench;
    const first = sampleEvent();
    await store([first]);
    await within(soonMs, "close", sink[Symbol.asyncDispose]());
    await within(soonMs, "close again", sink[Symbol.asyncDispose]());
    const results = await within(soonMs, "publish after close", publish(to(topic, [sampleEvent(), sampleEvent()])));
    assert.equal(results.length, 2);
    assert.ok(results.every(({ status }) => status !== "stored"));
    await assert.rejects(within(soonMs, "probe after close", sink.probe(topic, never())), Error);
    const kept = (await stored(topic)).map(({ attributes }) => attributes["id"]);
    assert.deepEqual(kept, [first.id]);
  });
}

const to = (topic: string, events: readonly Envelope[]): Outgoing[] => events.map((envelope) => ({ topic, source, envelope }));

const statuses = (results: readonly PublishResult[]): string[] => results.map(({ status }) => status);

/** The results agree with the log; `unknown` may be either. */
async function agree({ stored }: SinkHarness, batch: readonly Outgoing[], results: readonly PublishResult[]): Promise<void> {
  assert.equal(results.length, batch.length);
  const ids = new Map<string, ReadonlySet<string | undefined>>();
  for (const topic of new Set(batch.map(({ topic }) => topic))) {
    ids.set(topic, new Set((await stored(topic)).map(({ attributes }) => attributes["id"])));
  }
  batch.forEach(({ topic, envelope }, i) => {
    const { status } = results[i]!;
    if (status !== "unknown") assert.equal(ids.get(topic)!.has(envelope.id), status === "stored", `result ${i} is ${status}`);
  });
}

function idsByKey(messages: readonly StoredMessage[]): Record<string, (string | undefined)[]> {
  const found: Record<string, (string | undefined)[]> = {};
  for (const { key, attributes } of messages) (found[`${attributes["aggregatetype"]}\0${key}`] ??= []).push(attributes["id"]);
  return found;
}
