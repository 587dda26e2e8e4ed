import assert from "node:assert/strict";
import type { Outgoing, PublishResult, Sink } from "../contracts/sink.ts";
import { toAttributes, type Attributes } from "../core/cloudevents.ts";
import { aggregateKey, type Envelope } from "../core/event.ts";
import { seededRandom } from "../core/random.ts";
import { difficultEvents, sampleEvent, within } from "./corpus.ts";
import type { Test } from "./harness.ts";

/** A message as somebody else reads it from the broker. */
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
  /** A topic that is not there and does not come into being; asked for only where `can.missing`. */
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

const source = "/conformance";

/** Every promise of the Sink contract. A third party's adapter that passes keeps them. */
export function sinkSuite(suite: SinkSuite): void {
  const soonMs = suite.patienceMs ?? 5_000;
  const run = (body: (harness: SinkHarness) => Promise<void>) => async (): Promise<void> => {
    const harness = await suite.create();
    try {
      await within(soonMs, "connect", harness.sink.connect(never()));
      await body(harness);
    } finally {
      await harness.sink[Symbol.asyncDispose]();
      await harness.close();
    }
  };
  const connected = (name: string, body: (harness: SinkHarness) => Promise<void>): void => void suite.test(`sink: ${name}`, run(body));
  const whenMissing = (name: string, body: (harness: SinkHarness) => Promise<void>): void => {
    // Skipped in sight.
    if (suite.can.missing) connected(name, body);
    else suite.test.skip?.(`sink: ${name} (cannot: missing)`, run(body));
  };

  connected("a message is stored with its key, attributes, headers and exact bytes", async ({ sink, topics: [topic], stored }) => {
    const events = difficultEvents().map(([, event], i) => ({ ...event, aggregateId: `${event.aggregateId}-${i}` }));
    all("stored", await sink.publish(to(topic, events), never()));
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

  connected(
    "one aggregate's messages are stored in the order given, within and across batches",
    async ({ sink, topics: [topic], stored }) => {
      const random = seededRandom(7);
      const events = Array.from({ length: 300 }, () => sampleEvent({ aggregateId: `order-${Math.floor(random.next() * 9)}` }));
      for (let at = 0; at < events.length; at += 100) all("stored", await sink.publish(to(topic, events.slice(at, at + 100)), never()));
      assert.deepEqual(idsByKey(await stored(topic)), idsByAggregate(events));
    },
  );

  connected("publishes under way at once keep each aggregate's order", async ({ sink, topics: [topic], stored }) => {
    const runs = [1, 2, 3, 4].map((n) => Array.from({ length: 50 }, () => sampleEvent({ aggregateId: `order-${n}` })));
    for (const results of await Promise.all(runs.map((run) => sink.publish(to(topic, run), never())))) all("stored", results);
    assert.deepEqual(idsByKey(await stored(topic)), idsByAggregate(runs.flat()));
  });

  connected("no messages give no results", async ({ sink }) => {
    assert.deepEqual(await sink.publish([], never()), []);
  });

  connected(
    "a message that is too large is refused for what it is, its followers are skipped, all others are stored",
    async ({ sink, topics: [topic, other], stored }) => {
      const huge = new Uint8Array(sink.can.maxBytes + 1);
      const batch = [
        ...to(topic, [sampleEvent({ aggregateId: "a" }), sampleEvent({ aggregateId: "b" })]),
        ...to(topic, [sampleEvent({ aggregateId: "b", data: huge })]),
        ...to(topic, [sampleEvent({ aggregateId: "c" }), sampleEvent({ aggregateId: "b" })]),
        ...to(other, [sampleEvent({ aggregateId: "b" })]),
        // The same id under another type is another aggregate.
        ...to(topic, [sampleEvent({ aggregateId: "b", aggregateType: "Invoice" })]),
      ];
      const results = await sink.publish(batch, never());
      assert.deepEqual(statuses(results), ["stored", "stored", "refused", "stored", "skipped", "skipped", "stored"]);
      const refused = results[2]!;
      assert.ok(refused.status === "refused" && refused.blame === "event" && !refused.retryable && refused.error instanceof Error);
      await agree({ stored }, batch, results);
    },
  );

  whenMissing(
    "a topic that is not there is refused as the destination's fault, and other topics are stored",
    async ({ sink, topics: [topic], missing, stored }) => {
      const batch = [
        ...to(topic, [sampleEvent({ aggregateId: "a" })]),
        ...to(missing, [sampleEvent({ aggregateId: "a" }), sampleEvent({ aggregateId: "b" })]),
        // Another topic, but the same aggregate: order comes before isolation.
        ...to(topic, [sampleEvent({ aggregateId: "a" }), sampleEvent({ aggregateId: "c" })]),
      ];
      const results = await sink.publish(batch, never());
      assert.deepEqual(statuses(results), ["stored", "refused", "refused", "skipped", "stored"]);
      for (const result of results)
        assert.ok(result.status !== "refused" || (result.blame === "destination" && result.error instanceof Error));
      await agree(
        { stored },
        batch.filter(({ topic: to }) => to === topic),
        results.filter((_, i) => batch[i]!.topic === topic),
      );
    },
  );

  connected(
    "after an abort, publish settles soon, and stores nothing that it says is not stored",
    async ({ sink, topics: [topic], stored }) => {
      const before = to(topic, [sampleEvent({ aggregateId: "a" }), sampleEvent({ aggregateId: "b" })]);
      const early = await within(soonMs, "publish with an aborted signal", sink.publish(before, AbortSignal.abort()));
      assert.equal(early.length, 2);

      const during = to(
        topic,
        Array.from({ length: 40 }, (_, i) => sampleEvent({ aggregateId: `order-${i % 4}` })),
      );
      const controller = new AbortController();
      const publishing = sink.publish(during, controller.signal);
      controller.abort();
      const late = await within(soonMs, "publish whose signal aborts", publishing);
      assert.equal(late.length, during.length);

      // Whatever is still on its way has arrived once a later message is there.
      all(
        "stored",
        await within(soonMs, "publish after an abort", sink.publish(to(topic, [sampleEvent({ aggregateId: "last" })]), never())),
      );
      await agree({ stored }, [...before, ...during], [...early, ...late]);
    },
  );

  connected("probe is content with a topic that is there, and stores nothing", async ({ sink, topics: [topic], stored }) => {
    await within(soonMs, "probe", sink.probe(topic, never()));
    assert.deepEqual(await stored(topic), []);
  });

  whenMissing("probe rejects for a topic that is not there, and does not make it", async ({ sink, missing }) => {
    await assert.rejects(within(soonMs, "probe", sink.probe(missing, never())), Error);
    await assert.rejects(within(soonMs, "probe", sink.probe(missing, never())), Error);
  });

  connected("connecting twice is harmless", async ({ sink, topics: [topic] }) => {
    await within(soonMs, "connect", sink.connect(never()));
    all("stored", await sink.publish(to(topic, [sampleEvent()]), never()));
  });

  connected(
    "closing twice is harmless, and a publish after it does not reject and stores nothing",
    async ({ sink, topics: [topic], stored }) => {
      const first = sampleEvent();
      all("stored", await sink.publish(to(topic, [first]), never()));
      await within(soonMs, "close", sink[Symbol.asyncDispose]());
      await within(soonMs, "close again", sink[Symbol.asyncDispose]());
      const results = await within(soonMs, "publish after close", sink.publish(to(topic, [sampleEvent(), sampleEvent()]), never()));
      assert.equal(results.length, 2);
      assert.ok(results.every(({ status }) => status !== "stored"));
      await assert.rejects(within(soonMs, "probe after close", sink.probe(topic, never())), Error);
      assert.deepEqual(
        (await stored(topic)).map(({ attributes }) => attributes["id"]),
        [first.id],
      );
    },
  );
}

const never = (): AbortSignal => new AbortController().signal;

const to = (topic: string, events: readonly Envelope[]): Outgoing[] => events.map((envelope) => ({ topic, source, envelope }));

const statuses = (results: readonly PublishResult[]): string[] => results.map(({ status }) => status);

function all(status: PublishResult["status"], results: readonly PublishResult[]): void {
  assert.deepEqual(statuses(results), statuses(results).fill(status));
}

/** What the results say and what the log holds are the same; `unknown` may be either. */
async function agree(
  { stored }: Pick<SinkHarness, "stored">,
  batch: readonly Outgoing[],
  results: readonly PublishResult[],
): Promise<void> {
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

function idsByAggregate(events: readonly Envelope[]): Record<string, string[]> {
  const found: Record<string, string[]> = {};
  for (const event of events) (found[aggregateKey(event)] ??= []).push(event.id);
  return found;
}
