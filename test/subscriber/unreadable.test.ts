import { describe, expect, it } from "vitest";
import { WaybillError } from "../../src/core/errors.ts";
import { MarkHeld } from "../../src/core/blameless.ts";
import { unreadableEnvelope } from "../../src/core/unreadable.ts";
import { fatal } from "../../src/subscriber/fatal.ts";
import { envelope, eventually } from "./fakes.ts";
import { setup } from "./setup.ts";

const topic = "order.events";

describe("a message that is no event", () => {
  const junk = { why: "it has no id", raw: Buffer.from("junk\0\xff", "latin1") };

  it("is parked with its bytes and acknowledged, and the next one is delivered", async () => {
    const { broker, inbox, subscriber, of } = setup();
    const next = envelope("a");
    broker.addUnreadable(topic, unreadableEnvelope("unreadable:7"), junk);
    broker.add(topic, next);
    await subscriber({ handlers: { "*": (event, tx) => tx.write(event.id) } }).start();
    await eventually(() => broker.acked.length === 2);
    expect(inbox.effects).toEqual([next.id]);
    expect([...inbox.parked.values()]).toMatchObject([
      { topic, consumer: "stock", raw: junk.raw, code: "MESSAGE_UNREADABLE", error: "it has no id" },
    ]);
    expect(of("subscriber.died")).toMatchObject([{ id: "unreadable:7", topic, error: "MESSAGE_UNREADABLE: it has no id" }]);
    expect(of("subscriber.trouble")).toEqual([]);
  });

  it("is not acknowledged before its letter is durable", async () => {
    const { broker, inbox, subscriber, clock, of } = setup();
    inbox.troubles.park.push(new WaybillError("STORE_UNAVAILABLE", "no"), new WaybillError("STORE_UNAVAILABLE", "no"));
    broker.addUnreadable(topic, unreadableEnvelope("unreadable:7"), junk);
    await subscriber({}).start();
    await eventually(() => of("subscriber.trouble").length === 1);
    expect(broker.acked).toEqual([]);
    await clock.advance(5_000);
    await eventually(() => broker.acked.length === 1);
    expect(inbox.parked.size).toBe(1);
  });

  it("goes to the inbox where letters have a topic: a topic carries events", async () => {
    const { broker, inbox, subscriber } = setup();
    broker.addUnreadable(topic, unreadableEnvelope("unreadable:7"), junk);
    await subscriber({ deadTopic: "{topic}.dead" }).start();
    await eventually(() => broker.acked.length === 1);
    expect([broker.letters.length, inbox.parked.size]).toEqual([0, 1]);
  });
});

describe("an id that no inbox can mark", () => {
  it.each([
    ["holds NUL", "a\0b"],
    ["is longer than the column", "x".repeat(256)],
    ["is half a character", "\ud800"],
  ])("parks its event: it %s", async (_, id) => {
    const { broker, inbox, subscriber, of } = setup();
    const [odd, next] = [envelope("a", {}, { id }), envelope("a")];
    inbox.refuses = (step, refused) => (refused === id && step !== "park" ? new Error("invalid byte sequence") : null);
    broker.add(topic, odd, next);
    await subscriber({}).start();
    await eventually(() => broker.acked.length === 2);
    expect(inbox.effects).toEqual([next.id]);
    expect([...inbox.parked.values()]).toMatchObject([{ envelope: odd }]);
    expect(of("subscriber.died")).toMatchObject([
      { error: expect.stringContaining("MESSAGE_UNREADABLE: its id cannot be marked") as string },
    ]);
  });

  it("is ignored like any other where its type has no handler", async () => {
    const { broker, inbox, subscriber, of } = setup();
    broker.add(topic, envelope("a", {}, { id: "a\0b", type: "OrderShipped" }));
    await subscriber({}).start();
    await eventually(() => broker.acked.length === 1);
    expect([of("subscriber.ignored").length, inbox.parked.size]).toEqual([1, 0]);
  });
});

describe("what the database refuses", () => {
  it("for what the event is, before the handler began, is the event's own failure", async () => {
    const { broker, inbox, subscriber, of } = setup();
    const [odd, next] = [envelope("a"), envelope("a")];
    const refusal = Object.assign(new Error("invalid input"), { severity: "ERROR", code: "22P05" });
    inbox.refuses = (step, id) => (step === "once" && id === odd.id ? refusal : null);
    broker.add(topic, odd, next);
    await subscriber({ retry: { delaysMs: [] } }).start();
    await eventually(() => broker.acked.length === 2);
    expect(of("subscriber.died")).toMatchObject([{ id: odd.id, attempts: 1, error: "invalid input" }]);
    expect(inbox.effects).toEqual([next.id]);
  });

  it.each(["once", "failed"] as const)(
    "of one event alone, again and again (%s), ends with a letter while others flow",
    async (failing) => {
      const { broker, inbox, subscriber, clock, of } = setup();
      const [odd, follower] = [envelope("a"), envelope("a")];
      inbox.refuses = (step, id) =>
        step === failing && id === odd.id ? new WaybillError("STORE_UNAVAILABLE", "closed the connection") : null;
      broker.add(topic, odd, follower);
      await subscriber({
        retry: { delaysMs: [1_000] },
        handlers: {
          OrderPlaced: (event, tx) => {
            if (event.id === odd.id) throw new Error("no");
            tx.write(event.id);
          },
        },
      }).start();
      const others = Array.from({ length: 60 }, (_, n) => envelope(`b${n}`));
      for (const other of others) {
        broker.add(topic, other);
        await clock.advance(10_000);
      }
      await eventually(() => broker.acked.length === 62);
      expect(of("subscriber.died")).toMatchObject([{ id: odd.id, attempts: 2 }]);
      expect(inbox.effects).toContain(follower.id);
    },
  );

  it("of one event whose mark another transaction holds costs it nothing, and its follower waits", async () => {
    const { broker, inbox, subscriber, clock, of } = setup();
    const [held, follower] = [envelope("a"), envelope("a")];
    let frozen = true;
    inbox.refuses = (step, id) => (frozen && step === "once" && id === held.id ? new MarkHeld("the database", null) : null);
    broker.add(topic, held, follower);
    await subscriber({ retry: { delaysMs: [] } }).start();
    for (let n = 0; n < 60; n++) {
      broker.add(topic, envelope(`b${n}`));
      await clock.advance(10_000);
    }
    await eventually(() => broker.acked.length === 60);
    expect([of("subscriber.died").length, inbox.parked.size, inbox.effects.includes(follower.id)]).toEqual([0, 0, false]);
    frozen = false;
    await clock.advance(60_000);
    await eventually(() => broker.acked.length === 62);
    expect(inbox.effects.indexOf(held.id)).toBeLessThan(inbox.effects.indexOf(follower.id));
    expect(inbox.effects).toContain(held.id);
  });

  it("of every event costs nobody an attempt, however long it lasts", async () => {
    const { broker, inbox, subscriber, clock, of } = setup();
    let out = true;
    inbox.refuses = () => (out ? new WaybillError("STORE_UNAVAILABLE", "down") : null);
    broker.add(topic, envelope("a"), envelope("b"), envelope("c"));
    await subscriber({ retry: { delaysMs: [] } }).start();
    await clock.advance(3_600_000);
    out = false;
    await clock.advance(60_000);
    await eventually(() => broker.acked.length === 3);
    expect([of("subscriber.died").length, of("subscriber.failed").length, inbox.effects.length]).toEqual([0, 0, 3]);
  });
});

describe("receivings that end without an acknowledgement", () => {
  it("are counted for the source, until something is acknowledged", async () => {
    const { broker, inbox, subscriber, clock } = setup();
    inbox.refuses = (step) => (step === "once" ? new WaybillError("STORE_UNAVAILABLE", "down") : null);
    broker.add(topic, envelope("a"));
    await subscriber({ handlers: { "*": () => Promise.reject(fatal("no")) } }).start();
    await eventually(() => broker.received.length === 1);
    expect(broker.subscription?.stalls).toBeUndefined();
    for (const stalls of [1, 2, 3]) {
      broker.breakLink(new Error("cut"));
      await clock.advance(60_000);
      await eventually(() => broker.received.length === stalls + 1);
      expect(broker.subscription?.stalls).toBe(stalls);
    }
    inbox.refuses = () => null;
    await clock.advance(60_000);
    await eventually(() => broker.acked.length === 1);
    broker.breakLink(new Error("cut"));
    await clock.advance(60_000);
    await eventually(() => broker.received.length === 5);
    expect(broker.subscription?.stalls).toBeUndefined();
  });
});

describe("a delivery that the subscriber itself fails at", () => {
  it("is parked when it has ended three sessions, and the next one is delivered", async () => {
    const { broker, inbox, subscriber, clock, of } = setup();
    const [odd, next] = [envelope("a"), envelope("b")];
    Object.defineProperty(odd, "type", {
      get: (): string => {
        if (inbox.parked.size === 0 && !parking) throw new TypeError("a defect");
        return "OrderPlaced";
      },
    });
    let parking = false;
    const { park } = inbox.inbox;
    inbox.inbox.park = async (letter) => {
      parking = true;
      await park(letter);
    };
    broker.add(topic, odd, next);
    await subscriber({}).start();
    for (let i = 0; i < 10; i++) await clock.advance(10_000);
    await eventually(() => broker.acked.length === 2);
    expect(of("subscriber.died")).toMatchObject([{ id: odd.id, attempts: 3, error: "a defect" }]);
    expect(inbox.effects).toEqual([next.id]);
  });
});

describe("bytes", () => {
  it("bound what is unacknowledged, and a topic that is full of large waiting messages says so", async () => {
    const { broker, subscriber, clock, of } = setup();
    const data = Buffer.from(JSON.stringify("x".repeat(1_000)));
    broker.add(topic, ...Array.from({ length: 50 }, () => envelope("a", {}, { data })));
    await subscriber({
      prefetchBytes: 10_000,
      handlers: { OrderPlaced: () => Promise.reject(new Error("no")) },
      retry: { delaysMs: [1_000] },
    }).start();
    await eventually(() => of("subscriber.full").length === 1);
    expect(broker.delivered).toBeLessThanOrEqual(11);
    expect(of("subscriber.full")).toMatchObject([{ full: true }]);
    for (let i = 0; i < 60 && broker.acked.length < 50; i++) await clock.advance(1_000);
    await eventually(() => broker.acked.length === 50);
    expect(of("subscriber.full").at(-1)).toMatchObject({ full: false });
  });
});
