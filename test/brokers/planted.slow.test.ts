import { describe, expect, test } from "vitest";
import { memoryBroker, type MemoryBroker } from "../../src/brokers/memory/index.ts";
import type { Test } from "../../src/conformance/harness.ts";
import { sinkSuite } from "../../src/conformance/sink.ts";
import { sourceSuite } from "../../src/conformance/source.ts";
import type { PublishResult, Sink } from "../../src/contracts/sink.ts";
import type { Delivery, Source, Subscription } from "../../src/contracts/source.ts";
import type { Envelope } from "../../src/core/event.ts";

const never = new AbortController().signal;
const topics = ["order.events", "invoice.events"] as const;

/** Runs a suite without a runner; the names of the cases that failed. */
async function failures(register: (test: Test) => void): Promise<string[]> {
  const cases: { name: string; body: () => Promise<void> }[] = [];
  register((name, body) => cases.push({ name, body }));
  const failed = await Promise.all(
    cases.map(({ name, body }) =>
      body().then(
        () => [],
        () => [name],
      ),
    ),
  );
  return failed.flat();
}

const sinkFailures = (mutate: (broker: MemoryBroker) => Partial<Sink>, patienceMs = 500): Promise<string[]> =>
  failures((run) =>
    sinkSuite({
      test: run,
      patienceMs,
      can: { missing: true },
      async create() {
        const broker = memoryBroker({ provision: false });
        await broker.provision(topics);
        const sink = { ...broker, ...mutate(broker) };
        return { sink, topics, missing: "nowhere", stored: async (topic) => broker.messages(topic), close: async () => undefined };
      },
    }),
  );

const sourceFailures = (mutate: (broker: MemoryBroker) => Partial<Source>, patienceMs = 500): Promise<string[]> =>
  failures((run) =>
    sourceSuite({
      test: run,
      patienceMs,
      can: { redeliverWithinMs: 0 },
      async create() {
        const broker = memoryBroker();
        return {
          topics,
          async open() {
            const handle = broker.reopen();
            return { ...handle, ...mutate(handle) };
          },
          async store(topic, events) {
            await broker.publish(
              events.map((envelope) => ({ topic, source: "/test", envelope })),
              never,
            );
          },
          close: async () => broker[Symbol.asyncDispose](),
        };
      },
    }),
  );

const hanging = new Promise<never>(() => undefined);
const asText = (data: Uint8Array): Uint8Array => Buffer.from(Buffer.from(data).toString("utf8"));

describe("the sink suite", () => {
  /** A sink that sees each batch through `change`. */
  const sending =
    (change: (envelope: Envelope) => Partial<Envelope>) =>
    (broker: MemoryBroker): Partial<Sink> => ({
      publish: (batch, signal) =>
        broker.publish(
          batch.map((message) => ({ ...message, envelope: { ...message.envelope, ...change(message.envelope) } })),
          signal,
        ),
    });
  /** A sink that changes its results. */
  const answering =
    (change: (results: readonly PublishResult[]) => readonly PublishResult[]) =>
    (broker: MemoryBroker): Partial<Sink> => ({
      publish: async (batch, signal) => change(await broker.publish(batch, signal)),
    });
  const blaming = (blame: "event" | "destination") =>
    answering((results) => results.map((result) => (result.status === "refused" ? { ...result, blame } : result)));

  test("passes a sink that keeps the contract", async () => {
    expect(await sinkFailures(() => ({}), 10_000)).toEqual([]);
    expect(
      await sinkFailures(
        sending(() => ({})),
        10_000,
      ),
    ).toEqual([]);
    expect(
      await sinkFailures(
        answering((results) => results),
        10_000,
      ),
    ).toEqual([]);
  });

  test.each<[string, RegExp, (broker: MemoryBroker) => Partial<Sink>]>([
    [
      "goes on past a refused message",
      /too large/,
      (broker) => ({
        async publish(batch, signal) {
          const results: PublishResult[] = [];
          for (const message of batch) results.push(...(await broker.publish([message], signal)));
          return results;
        },
      }),
    ],
    ["skips by aggregate id alone", /too large/, sending(() => ({ aggregateType: "Order" }))],
    ["gives results in another order", /too large/, answering((results) => [...results].reverse())],
    ["gives too few results", /after an abort/, answering((results) => results.slice(0, 1))],
    [
      "stores a batch in another order",
      /order given/,
      (broker) => ({ publish: async (batch, signal) => [...(await broker.publish([...batch].reverse(), signal))].reverse() }),
    ],
    ["reads data as text", /exact bytes/, sending(({ data }) => ({ data: asText(data) }))],
    ["stores the whole buffer behind a view", /exact bytes/, sending(({ data }) => ({ data: new Uint8Array(data.buffer) }))],
    ["loses headers", /exact bytes/, sending(() => ({ headers: {} }))],
    ["rounds seq", /exact bytes/, sending(({ seq }) => ({ seq: BigInt(Number(seq)) }))],
    ["blames the destination for a large message", /too large/, blaming("destination")],
    ["blames the event for a missing topic", /not there is refused/, blaming("event")],
    [
      "makes a missing topic",
      /not there is refused/,
      (broker) => ({
        async publish(batch, signal) {
          await broker.provision(batch.map(({ topic }) => topic));
          return broker.publish(batch, signal);
        },
      }),
    ],
    [
      "rejects after an abort",
      /after an abort/,
      (broker) => ({ publish: (batch, signal) => (signal.aborted ? Promise.reject(new Error("aborted")) : broker.publish(batch, signal)) }),
    ],
    [
      "stores what it says is refused",
      /after an abort/,
      (broker) => ({
        async publish(batch, signal) {
          if (signal.aborted) await broker.publish(batch, never);
          return broker.publish(batch, signal);
        },
      }),
    ],
    [
      "says stored after an abort",
      /after an abort/,
      (broker) => ({
        publish: async (batch, signal) => (signal.aborted ? batch.map(() => ({ status: "stored" })) : broker.publish(batch, signal)),
      }),
    ],
    [
      "hangs after an abort",
      /after an abort/,
      (broker) => ({ publish: (batch, signal) => (signal.aborted ? hanging : broker.publish(batch, signal)) }),
    ],
    ["probes nothing", /probe rejects/, () => ({ probe: async () => undefined })],
    ["rejects every probe", /probe is content/, () => ({ probe: () => Promise.reject(new Error("no")) })],
    ["cannot be closed", /closing twice/, () => ({ [Symbol.asyncDispose]: async () => undefined })],
  ])("finds a sink that %s", async (_, found, mutate) => {
    expect(await sinkFailures(mutate)).toContainEqual(expect.stringMatching(found));
  });
});

describe("the source suite", () => {
  type Change = (delivery: Delivery, earlier: readonly Delivery[], signal: AbortSignal) => Delivery | readonly Delivery[];

  /** A source whose deliveries pass through `change`, which may also keep them back or add some. */
  const handing =
    (begin: (broker: MemoryBroker, subscription: Subscription) => Change) =>
    (broker: MemoryBroker): Partial<Source> => ({
      receive: (subscription, signal) => ({
        [Symbol.asyncIterator]() {
          const inner = broker.receive(subscription, signal)[Symbol.asyncIterator]();
          const change = begin(broker, subscription);
          const [earlier, ready]: [Delivery[], Delivery[]] = [[], []];
          return {
            async next() {
              while (ready.length === 0) {
                const result = await inner.next();
                if (result.done === true) return result;
                ready.push(...[change(result.value, earlier, signal)].flat());
                earlier.push(result.value);
              }
              return { done: false, value: ready.shift()! };
            },
            return: () => inner.return!(),
          };
        },
      }),
    });
  const asking =
    (change: (subscription: Subscription) => Partial<Subscription>) =>
    (broker: MemoryBroker): Partial<Source> => ({
      receive: (subscription, signal) => broker.receive({ ...subscription, ...change(subscription) }, signal),
    });
  const envelopes = (change: (envelope: Envelope) => Partial<Envelope>) =>
    handing(() => (delivery) => ({ ...delivery, envelope: { ...delivery.envelope, ...change(delivery.envelope) } }));

  test("passes a source that keeps the contract", async () => {
    expect(await sourceFailures(() => ({}), 10_000)).toEqual([]);
    expect(
      await sourceFailures(
        handing(() => (delivery) => delivery),
        10_000,
      ),
    ).toEqual([]);
    expect(
      await sourceFailures(
        asking(() => ({})),
        10_000,
      ),
    ).toEqual([]);
  });

  test.concurrent.each<[string, RegExp, (broker: MemoryBroker) => Partial<Source>]>([
    [
      "commits past one that is missing",
      /never pass/,
      handing(() => (delivery, earlier) => {
        const all = [...earlier, delivery];
        return { ...delivery, ack: async () => void (await Promise.all(all.map((each) => each.ack()))) };
      }),
    ],
    [
      "acknowledges what it hands over",
      /delivered again, in order/,
      handing(() => (delivery) => {
        void delivery.ack();
        return delivery;
      }),
    ],
    ["loses acks", /delivered again, in order/, handing(() => (delivery) => ({ ...delivery, ack: async () => undefined }))],
    [
      "forgets acks given after the end",
      /after it still counts/,
      handing(() => (delivery, _, signal) => ({ ...delivery, ack: async () => (signal.aborted ? undefined : delivery.ack()) })),
    ],
    ["delivers twice", /each once/, handing(() => (delivery) => [delivery, delivery])],
    [
      "swaps neighbours",
      /each once/,
      handing(() => {
        let kept: Delivery | null = null;
        return (delivery) => {
          const before = kept;
          kept = before === null ? delivery : null;
          return before === null ? [] : [delivery, before];
        };
      }),
    ],
    ["names the wrong topic", /each delivery under its own/, handing(() => (delivery) => ({ ...delivery, topic: topics[1] }))],
    ["loses headers", /as it was stored/, envelopes(() => ({ headers: {} }))],
    ["reads data as text", /as it was stored/, envelopes(({ data }) => ({ data: asText(data) }))],
    ["loses the idempotency key", /as it was stored/, envelopes(() => ({ idempotencyKey: null }))],
    ["takes prefetch as a suggestion", /no more than `prefetch`/, asking(({ prefetch }) => ({ prefetch: prefetch + 1 }))],
    ["does not hear that a delivery waits", /what is set aside/, handing(() => (delivery) => ({ ...delivery, aside: () => undefined }))],
    ["acknowledges what waits", /what is set aside/, handing(() => (delivery) => ({ ...delivery, aside: () => void delivery.ack() }))],
    ["lets any number wait", /what is set aside/, asking(() => ({ waiting: 1_000 }))],
    ["has one offset for all consumers", /consumers are independent/, asking(() => ({ consumer: "one" }))],
    ["reads every topic", /only the topics asked for/, asking(() => ({ topics }))],
    [
      "starts at the end",
      /as it was stored/,
      handing((broker, { topics: from }) => {
        const old = new Set(from.flatMap((topic) => broker.messages(topic)).map(({ attributes }) => attributes["id"]));
        return (delivery) => (old.has(delivery.envelope.id) ? [] : delivery);
      }),
    ],
    [
      "does not hear an abort",
      /an abort ends/,
      (broker) => ({ receive: (subscription) => broker.receive(subscription, new AbortController().signal) }),
    ],
    ["cannot be closed", /closing ends/, () => ({ [Symbol.asyncDispose]: async () => undefined })],
    ["has no lag to tell of", /lag counts/, () => ({ lag: async () => 0 })],
    ["takes a stranger for a consumer", /lag counts/, (broker) => ({ lag: async (...asked) => (await broker.lag!(...asked)) ?? 7 })],
    ["counts what is done", /lag counts/, (broker) => ({ lag: async (...asked) => (await broker.lag!(...asked)) && 7 })],
  ])("finds a source that %s", async (_, found, mutate) => {
    expect(await sourceFailures(mutate)).toContainEqual(expect.stringMatching(found));
  });
});
