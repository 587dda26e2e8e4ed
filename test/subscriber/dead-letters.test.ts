import { describe, expect, it } from "vitest";
import { WaybillError } from "../../src/core/errors.ts";
import { letterRow } from "../../src/core/letter.ts";
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
  it("is kept by the inbox's database: the event as it came, why, and after how many attempts", async () => {
    const { broker, inbox, subscriber } = setup();
    const placed = envelope("a", { sum: 3 }, { headers: { tenant: "north" }, idempotencyKey: "k" });
    broker.add(topic, placed);
    await subscriber({ handlers: refusing, handlerVersion: 7 }).start();
    await eventually(() => broker.acked.length === 1);
    expect([...inbox.parked.values()]).toEqual([
      { envelope: placed, topic, consumer: "stock", code: "", error: "no such customer !", detail: "", attempts: 1, handlerVersion: 7 },
    ]);
    expect(broker.letters).toEqual([]);
  });

  it("is acknowledged only once the inbox has it", async () => {
    const { broker, inbox, subscriber, clock, of } = setup();
    broker.add(topic, envelope("a"));
    inbox.troubles.park.push(...Array.from({ length: 4 }, () => new WaybillError("STORE_UNAVAILABLE", "not now")));
    await subscriber({ handlers: refusing }).start();
    await eventually(() => of("subscriber.trouble").length === 1);
    expect([broker.acked, of("subscriber.died")]).toEqual([[], []]);
    await clock.advance(60_000);
    await eventually(() => broker.acked.length === 1);
    expect(inbox.parked.size).toBe(1);
    expect(of("subscriber.died")).toHaveLength(1);
  });

  it.each(["the inbox", "a place of the user's own"])("that %s never answers for is a failed try, and the others go on", async (where) => {
    const { broker, inbox, subscriber, clock, of } = setup({ assign: false });
    const [placed, other] = [envelope("a"), envelope("b")];
    const kept: string[] = [];
    let silent = true;
    const park = async ({ envelope: { id } }: { envelope: { id: string } }): Promise<void> => {
      if (silent) await new Promise(() => undefined); // and it does not heed its signal
      kept.push(id);
    };
    if (where === "the inbox") inbox.inbox.park = park;
    broker.add(topic, placed);
    await subscriber({
      ...(where === "the inbox" ? {} : { deadLetters: { park } }),
      seatMs: 3_000,
      handlers: { OrderPlaced: (event, tx) => (event.id === placed.id ? refusing.OrderPlaced() : tx.write(event.id)) },
    }).start();
    await settle();
    for (let second = 0; second < 120; second++) await clock.advance(1_000);
    broker.add(topic, other);
    await eventually(() => broker.acked.length === 1);
    expect(of("subscriber.trouble")[0]).toMatchObject({ step: "park", id: placed.id, topic });
    silent = false;
    for (let second = 0; second < 60; second++) await clock.advance(1_000);
    await eventually(() => broker.acked.length === 2);
    expect([broker.acked, kept]).toEqual([[other.id, placed.id], [placed.id]]);
  });

  it("that the inbox takes only in part is kept in part, and says so", async () => {
    const { broker, inbox, subscriber, clock } = setup();
    const large = envelope("a", {}, { data: new Uint8Array(1_000_000) });
    inbox.refuses = (step, id) => (step === "park" && id === large.id && inbox.parked.size === 0 ? new Error("packet too large") : null);
    const { park } = inbox.inbox;
    inbox.inbox.park = async (letter) => {
      if (letter.envelope.data.byteLength > 500_000) throw new Error("packet too large");
      inbox.refuses = () => null;
      await park(letter);
    };
    broker.add(topic, large);
    await subscriber({
      handlers: { OrderPlaced: (event, tx) => (event.id === large.id ? refusing.OrderPlaced() : tx.write(event.id)) },
    }).start();
    for (let i = 0; i < 20; i++) {
      broker.add(topic, envelope(`b${i}`));
      await clock.advance(10_000);
    }
    await eventually(() => broker.acked.length === 21);
    const [letter] = inbox.parked.values();
    expect(letter!.envelope.data.byteLength).toBe(262_144);
    expect([letter!.cut, letter!.detail]).toEqual([true, expect.stringContaining("the inbox did not take its 1000000 bytes")]);
  });

  it("that the inbox calls too large is kept in part at once, also while no other message comes", async () => {
    const { broker, inbox, subscriber } = setup();
    const { park } = inbox.inbox;
    inbox.inbox.park = async (letter) => {
      if (letter.envelope.data.byteLength > 500_000) throw new WaybillError("PAYLOAD_TOO_LARGE", "the letter is larger than a packet");
      await park(letter);
    };
    broker.add(topic, envelope("a", {}, { data: new Uint8Array(1_000_000) }));
    await subscriber({ handlers: refusing }).start();
    await eventually(() => broker.acked.length === 1);
    expect([...inbox.parked.values()].map((letter) => letter.envelope.data.byteLength)).toEqual([262_144]);
  });

  it("whose headers and names the inbox does not take is kept without most of them, under its name", async () => {
    const { broker, inbox, subscriber, clock } = setup();
    const id = "i".repeat(1_000_000);
    const headers = { tenant: "north", ["n".repeat(1_000_000)]: "", x: "x".repeat(10_000_000), y: "y" };
    const large = envelope("a", {}, { id, aggregateId: "a".repeat(1_000_000), headers });
    const { park } = inbox.inbox;
    inbox.inbox.park = async (letter) => {
      if (letterRow(letter).envelope.length > 500_000) throw new Error("packet too large");
      await park(letter);
    };
    broker.add(topic, large);
    await subscriber({ handlers: { OrderPlaced: (event, tx) => tx.write(event.id) } }).start();
    for (let i = 0; i < 20; i++) {
      broker.add(topic, envelope(`b${i}`));
      await clock.advance(10_000);
    }
    await eventually(() => broker.acked.length === 21);
    const [letter] = inbox.parked.values();
    expect(letterRow(letter!).id).toBe(letterRow({ ...letter!, envelope: large }).id);
    expect(letter!.envelope.headers).toMatchObject({ tenant: "north", x: expect.stringMatching(/^x{30000,}$/) as string });
    expect(letter!.envelope.data).toEqual(large.data);
    expect([letter!.cut, letter!.detail]).toEqual([true, expect.stringContaining("names and headers of")]);
  });
});

describe("a letter on a dead-letter topic", () => {
  const deadTopic = "{topic}.dead";
  it("is the event as it came, with reason, attempts and origin in its headers", async () => {
    const { broker, subscriber } = setup();
    const placed = envelope("a", { sum: 3 }, { headers: { tenant: "north" }, idempotencyKey: "k" });
    broker.add(topic, placed);
    await subscriber({ handlers: refusing, deadTopic }).start();
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
    { status: "skipped" },
  ])("that is $status is parked again until it is stored, and only then acknowledged", async (answer) => {
    const { broker, inbox, subscriber, clock, of } = setup();
    const [placed, follower, other] = [envelope("a"), envelope("a"), envelope("b")];
    broker.answers.push(...Array.from({ length: 6 }, () => answer));
    broker.add(topic, placed, follower);
    await subscriber({
      deadTopic,
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
    expect(inbox.parked.size).toBe(0);
  });

  it("that the broker refuses for what it is goes to the inbox, and the next one is delivered", async () => {
    const { broker, inbox, subscriber, of } = setup();
    const [placed, follower] = [envelope("a"), envelope("a")];
    broker.answers.push({ status: "refused", blame: "event", retryable: false, error: new WaybillError("MESSAGE_TOO_LARGE", "too large") });
    broker.add(topic, placed, follower);
    await subscriber({
      deadTopic,
      handlers: {
        OrderPlaced: (event, tx) => {
          if (event.id === placed.id) throw fatal("no");
          tx.write(event.id);
        },
      },
    }).start();
    await eventually(() => broker.acked.length === 2);
    expect(broker.letters).toEqual([]);
    expect([...inbox.parked.values()]).toMatchObject([{ envelope: placed, error: "no" }]);
    expect(inbox.effects).toEqual([follower.id]);
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
    const { broker, inbox, subscriber } = setup();
    const placed = envelope("a");
    broker.add(topic, placed);
    const kept: unknown[] = [];
    await subscriber({ handlers: refusing, deadLetters: { park: async (letter) => void kept.push(letter) } }).start();
    await eventually(() => broker.acked.length === 1);
    expect(kept).toEqual([
      { envelope: placed, topic, consumer: "stock", code: "", error: "no such customer !", detail: "", attempts: 1, handlerVersion: 1 },
    ]);
    expect([broker.letters.length, inbox.parked.size]).toEqual([0, 0]);
  });

  it("needs a source that can publish", () => {
    const clock = manualClock();
    const { source } = fakeBroker({}, clock);
    const options = { consumer: "stock", source, inbox: fakeInbox(clock), topics: [topic], handlers: refusing };
    expect(() => createSubscriber({ ...options, deadTopic })).toThrow(
      expect.objectContaining({ code: "INVALID_OPTION", message: expect.stringContaining("cannot publish letters") as string }),
    );
    expect(() => createSubscriber(options)).not.toThrow();
  });
});
