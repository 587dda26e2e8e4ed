import { describe, expect, test } from "vitest";
import { memoryBroker } from "../../src/brokers/memory/index.ts";
import { sampleEvent } from "../../src/conformance/corpus.ts";
import { sinkSuite } from "../../src/conformance/sink.ts";
import { sourceSuite } from "../../src/conformance/source.ts";

const never = new AbortController().signal;
const topics = ["order.events", "invoice.events"] as const;

describe("memory", () => {
  sinkSuite({
    test,
    can: { missing: true },
    async create() {
      const broker = memoryBroker({ provision: false });
      await broker.provision(topics);
      return { sink: broker, topics, missing: "nowhere", stored: async (topic) => broker.messages(topic), close: async () => undefined };
    },
  });

  sourceSuite({
    test,
    can: { redeliverWithinMs: 0 },
    async create() {
      const broker = memoryBroker();
      return {
        topics,
        open: async () => broker.reopen(),
        store: async (topic, events) => {
          await broker.publish(
            events.map((envelope) => ({ topic, source: "/test", envelope })),
            never,
          );
        },
        close: async () => broker[Symbol.asyncDispose](),
      };
    },
  });

  test("a topic comes into being with its first message, unless told otherwise", async () => {
    const batch = [{ topic: "new", source: "/test", envelope: sampleEvent() }];
    const open = memoryBroker();
    expect(await open.publish(batch, never)).toEqual([{ status: "stored" }]);
    expect(open.messages("new")).toHaveLength(1);
    const closed = memoryBroker({ provision: false });
    expect(await closed.publish(batch, never)).toMatchObject([{ status: "refused", error: { code: "DESTINATION_UNAVAILABLE" } }]);
    expect(closed.messages("new")).toEqual([]);
  });

  test("purge never deletes what a known consumer has still to acknowledge", async () => {
    const broker = memoryBroker();
    const events = [sampleEvent(), sampleEvent(), sampleEvent()];
    await broker.publish(
      events.map((envelope) => ({ topic: "read", source: "/test", envelope })),
      never,
    );
    await broker.publish(
      events.map((envelope) => ({ topic: "unread", source: "/test", envelope })),
      never,
    );
    for await (const delivery of broker.receive({ consumer: "a", topics: ["read"], prefetch: 5 }, never)) {
      if (delivery.envelope.id === events[1]!.id) break;
      await delivery.ack();
    }
    const future = new Date(Date.now() + 60_000);
    expect(await broker.purge(new Date(0))).toBe(0);
    expect(await broker.purge(future)).toBe(4);
    expect(broker.messages("read").map(({ attributes }) => attributes["id"])).toEqual([events[1]!.id, events[2]!.id]);
    expect(broker.messages("unread")).toEqual([]);
  });

  test("an unknown option and a subscription that cannot be are refused", () => {
    expect(() => memoryBroker({ maxByte: 1 } as object)).toThrow(/did you mean maxBytes/);
    for (const wrong of [{ consumer: "" }, { topics: [] }, { prefetch: 0 }, { prefetch: 1.5 }, { waiting: -1 }]) {
      expect(() => memoryBroker().receive({ consumer: "a", topics: ["t"], prefetch: 1, ...wrong }, never)).toThrow(
        expect.objectContaining({ code: "INVALID_OPTION" }),
      );
    }
  });
});
