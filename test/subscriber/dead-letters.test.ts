import { describe, expect, it } from "vitest";
import type { PublishResult } from "../../src/contracts/sink.ts";
import { deadLetterTopic } from "../../src/subscriber/dead-letter-topic.ts";
import { fatal } from "../../src/subscriber/fatal.ts";
import { createSubscriber } from "../../src/subscriber/subscriber.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";
import { envelope, eventually, fakeBroker, fakeInbox, settle } from "./fakes.ts";
import { setup } from "./setup.ts";

const topic = "order.events";
const refusing = {
  OrderPlaced: () => {
    throw fatal("no such\r\ncustomer\0!");
  },
};

describe("a letter", () => {
  it("is the event as it came, with reason, attempts and origin in its headers", async () => {
    const { broker, subscriber } = setup();
    const placed = envelope("a", { sum: 3 }, { headers: { tenant: "north" }, idempotencyKey: "k" });
    broker.add(topic, placed);
    await subscriber({ handlers: refusing }).start();
    await eventually(() => broker.acked.length === 1);
    expect(broker.letters).toEqual([
      {
        topic: "order.events.dead",
        source: "/waybill",
        envelope: {
          ...placed,
          headers: {
            tenant: "north",
            "waybill-dead-reason": "no such customer !",
            "waybill-dead-attempts": "1",
            "waybill-dead-topic": "order.events",
            "waybill-dead-consumer": "stock",
            "waybill-dead-at": "2023-11-14T22:13:20.000Z",
          },
        },
      },
    ]);
  });

  it.each<PublishResult>([
    { status: "unknown", error: new Error("no answer") },
    { status: "refused", blame: "destination", retryable: true, error: new Error("no such topic") },
    { status: "refused", blame: "event", retryable: false, error: new Error("too large") },
    { status: "skipped" },
  ])("that is $status is parked again until it is stored, and only then acknowledged", async (answer) => {
    const { broker, subscriber, clock, of } = setup();
    const [placed, follower, other] = [envelope("a"), envelope("a"), envelope("b")];
    broker.answers.push(...Array.from({ length: 6 }, () => answer));
    broker.add(topic, placed, follower);
    await subscriber({
      handlers: {
        OrderPlaced: (event, tx) => {
          if (event.id === placed.id) throw fatal("no");
          tx.write(event.id);
        },
      },
    }).start();
    await settle();
    broker.add(topic, other);
    await eventually(() => broker.acked.length === 1);
    expect(broker.acked).toEqual([other.id]);
    expect(of("subscriber.died")).toEqual([]);
    expect(of("subscriber.trouble")).toMatchObject([{ step: "park", id: placed.id, topic }]);
    await clock.advance(60_000);
    await eventually(() => broker.acked.length === 3);
    expect(broker.acked).toEqual([other.id, placed.id, follower.id]);
    expect(broker.letters).toHaveLength(1);
    expect(of("subscriber.trouble")).toHaveLength(6);
    expect(of("subscriber.died")).toHaveLength(1);
  });

  it("goes where the template or function says", async () => {
    const clock = manualClock();
    const { sink, letters } = fakeBroker({}, clock);
    const letter = { envelope: envelope("a"), topic, consumer: "stock", error: "no", attempts: 1 };
    const signal = new AbortController().signal;
    await deadLetterTopic({ sink, clock, topic: "letters.{consumer}.{topic}" }).park(letter, signal);
    await deadLetterTopic({ sink, clock, topic: (from) => from.replace("events", "letters"), source: "/shop" }).park(letter, signal);
    expect(letters.map(({ topic: to, source }) => [to, source])).toEqual([
      ["letters.stock.order.events", "/waybill"],
      ["order.letters", "/shop"],
    ]);
    expect(() => deadLetterTopic({ sink, topic: "{topik}.dead" })).toThrow("{topik}: there are {topic} and {consumer}");
    await expect(deadLetterTopic({ sink, topic: "{topic}" }).park(letter, signal)).rejects.toMatchObject({ code: "INVALID_OPTION" });
  });

  it("may go to a place of the user's own", async () => {
    const { broker, subscriber } = setup();
    const placed = envelope("a");
    broker.add(topic, placed);
    const kept: unknown[] = [];
    await subscriber({ handlers: refusing, deadLetters: { park: async (letter) => void kept.push(letter) } }).start();
    await eventually(() => broker.acked.length === 1);
    expect(kept).toEqual([{ envelope: placed, topic, consumer: "stock", error: "no such customer !", attempts: 1 }]);
    expect(broker.letters).toEqual([]);
  });

  it("needs a place: a source that cannot publish must come with one", () => {
    const clock = manualClock();
    const { source } = fakeBroker({}, clock);
    expect(() => createSubscriber({ consumer: "stock", source, inbox: fakeInbox(clock), topics: [topic], handlers: refusing })).toThrow(
      expect.objectContaining({ code: "INVALID_OPTION", message: expect.stringContaining("deadLetters is missing") as string }),
    );
  });
});
