import { type } from "arktype";
import * as v from "valibot";
import { describe, expect, expectTypeOf, it } from "vitest";
import * as z from "zod";
import { createSubscriber } from "../../src/subscriber/subscriber.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";
import { envelope, eventually, fakeBroker, fakeInbox, type FakeTx } from "./fakes.ts";
import { setup } from "./setup.ts";

const topic = "order.events";

describe("a catalogue", () => {
  const events = {
    OrderPlaced: { schema: z.object({ sum: z.number(), note: z.string().default("none") }), version: 1 },
    OrderPaid: v.object({ sum: v.number() }),
    OrderShipped: { schema: type({ to: "string" }) },
  };

  it("types and checks payloads, whichever library the schemas are from", async () => {
    const clock = manualClock();
    const broker = fakeBroker({}, clock);
    const inbox = fakeInbox(clock);
    const died: string[] = [];
    const service = createSubscriber({
      ...{ consumer: "stock", source: broker.both, inbox, topics: [topic], clock },
      events,
      handlers: {
        OrderPlaced: (event, tx) => {
          expectTypeOf(event.payload).toEqualTypeOf<{ sum: number; note: string }>();
          expectTypeOf(event.type).toEqualTypeOf<"OrderPlaced">();
          expectTypeOf(tx).toEqualTypeOf<FakeTx>();
          tx.write(`placed ${event.payload.sum} ${event.payload.note}`);
        },
        OrderPaid: (event, tx) => tx.write(`paid ${event.payload.sum.toFixed(1)}`),
        OrderShipped: async (event, tx) => tx.write(`shipped ${event.payload.to.toUpperCase()}`),
        "*": (event, tx) => {
          expectTypeOf(event.payload).toEqualTypeOf<unknown>();
          tx.write(`any ${event.type}`);
        },
      },
      observe: (event) => {
        if (event.type === "subscriber.died") died.push(event.error);
      },
    });
    broker.add(
      topic,
      envelope("a", { sum: 1 }),
      envelope("a", { sum: 2 }, { type: "OrderPaid" }),
      envelope("a", { to: "Oslo" }, { type: "OrderShipped" }),
      envelope("a", 7, { type: "constructor" }),
      envelope("a", { sum: "many" }),
      envelope("a", { sum: null }, { type: "OrderPaid" }),
      envelope("a", {}, { type: "OrderShipped" }),
    );
    await service.start();
    await eventually(() => broker.acked.length === 7);
    await service.drain();
    expect(inbox.effects).toEqual(["placed 1 none", "paid 2.0", "shipped OSLO", "any constructor"]);
    expect(died).toHaveLength(3);
    expect(died[0]).toMatch(/^INVALID_PAYLOAD: the payload of OrderPlaced does not match its schema: sum: /);
  });

  it("does not judge again what has been applied already", async () => {
    const clock = manualClock();
    const broker = fakeBroker({}, clock);
    const inbox = fakeInbox(clock);
    const placed = envelope("a", { sum: 1 });
    const options = { consumer: "stock", source: broker.both, inbox, topics: [topic], clock };
    const before = createSubscriber({ ...options, handlers: { OrderPlaced: (event, tx) => tx.write(event.id) } });
    broker.add(topic, placed);
    await before.start();
    await eventually(() => broker.acked.length === 1);
    await before.drain();
    broker.redeliver(topic, placed);
    const after = createSubscriber({
      ...options,
      events: { OrderPlaced: z.object({ sum: z.string() }) },
      handlers: { OrderPlaced: () => undefined },
    });
    await after.start();
    await eventually(() => broker.acked.length >= 2);
    await after.drain();
    expect(inbox.parked.size).toBe(0);
  });

  it("refuses handlers of types it does not hold", () => {
    const clock = manualClock();
    const options = { consumer: "stock", source: fakeBroker({}, clock).both, inbox: fakeInbox(clock), topics: [topic], events };
    // @ts-expect-error a type that is not in the catalogue
    expect(() => createSubscriber({ ...options, handlers: { OrderPlacd: () => undefined } })).toThrow("did you mean OrderPlaced?");
  });
});

describe("an event", () => {
  it("comes with everything its envelope holds, and JSON decoded", async () => {
    const { broker, subscriber } = setup();
    const json = envelope(
      "a",
      { __proto__: null, deep: [1] },
      { headers: { tenant: "north" }, idempotencyKey: "k", contentType: "Application/vnd.shop+JSON; charset=utf-8" },
    );
    const bytes = envelope("a", {}, { data: new Uint8Array([1, 2, 3]), contentType: "application/octet-stream" });
    broker.add(topic, json, bytes);
    const seen: unknown[] = [];
    await subscriber({ handlers: { "*": (event) => void seen.push(event) } }).start();
    await eventually(() => seen.length === 2);
    expect(seen).toEqual([
      { ...json, topic, payload: { deep: [1] } },
      { ...bytes, topic, payload: bytes.data },
    ]);
  });
});

describe("the transaction", () => {
  it("is mapped to the user's own handle", async () => {
    const clock = manualClock();
    const broker = fakeBroker({}, clock);
    const inbox = fakeInbox(clock);
    broker.add(topic, envelope("a"));
    const service = createSubscriber({
      ...{ consumer: "stock", source: broker.both, inbox, topics: [topic], clock },
      tx: (tx) => ({ insert: (row: string) => tx.write(row) }),
      handlers: {
        OrderPlaced: (_, tx) => {
          expectTypeOf(tx).toEqualTypeOf<{ insert: (row: string) => void }>();
          tx.insert("row");
        },
      },
    });
    await service.start();
    await eventually(() => broker.acked.length === 1);
    await service.drain();
    expect(inbox.effects).toEqual(["row"]);
  });
});

describe("a bad option", () => {
  it.each([
    [{ consumr: "x" }, "did you mean consumer?"],
    [{ consumer: "" }, "consumer"],
    [{ topics: [] }, "topics must name at least one"],
    [{ topics: ["a", "a"] }, "twice"],
    [{ topics: "order.events" }, "topics"],
    [{ handlers: {} }, "at least one event type"],
    [{ handlers: { OrderPlaced: "no" } }, 'the handler of "OrderPlaced" must be a function'],
    [{ source: {} }, "source must be a broker"],
    [{ inbox: {} }, "inbox must be a store"],
    [{ concurrency: 0 }, "concurrency"],
    [{ prefetch: 1.5 }, "prefetch"],
    [{ maxWaiting: 0 }, "maxWaiting"],
    [{ handlerTimeoutMs: -1 }, "handlerTimeoutMs"],
    [{ seatMs: Number.NaN }, "seatMs"],
    [{ retry: { delaysMs: [-1] } }, "retry.delaysMs"],
    [{ deadTopic: "{topic}" }, "must be the name of another topic"],
    [{ deadTopic: "x", deadLetters: { park: async () => undefined } }, "not both"],
    [{ deadLetters: {} }, "deadLetters must have park"],
  ])("%j is refused before anything runs", (wrong, message) => {
    expect(() => setup().subscriber(wrong as object)).toThrow(
      expect.objectContaining({ code: "INVALID_OPTION", message: expect.stringContaining(message) as string }),
    );
  });
});
