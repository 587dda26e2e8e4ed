import { describe, expect, it } from "vitest";
import { WaybillError } from "../../src/core/errors.ts";
import { envelope, eventually, settle } from "./fakes.ts";
import { setup } from "./setup.ts";

const topic = "order.events";

describe("drain", () => {
  it("finishes and acknowledges what is being handled, and takes nothing more", async () => {
    const { broker, inbox, subscriber, clock } = setup();
    const [running, queued, other] = [envelope("a"), envelope("a"), envelope("b")];
    const service = subscriber({
      concurrency: 1,
      handlers: {
        OrderPlaced: async (event, tx) => {
          await clock.sleep(1_000);
          tx.write(event.id);
        },
      },
    });
    await service.start();
    broker.add(topic, running, queued, other);
    await clock.advance(10);
    const drained = service.drain();
    broker.add(topic, envelope("c"));
    await clock.advance(1_000);
    await drained;
    expect(inbox.effects).toEqual([running.id]);
    expect(broker.acked).toEqual([running.id]);
    await clock.advance(60_000);
    expect(inbox.effects).toEqual([running.id]);
  });

  it("does not wait for retries: they are counted and left", async () => {
    const { broker, inbox, subscriber, clock } = setup();
    const placed = envelope("a");
    broker.add(topic, placed);
    const service = subscriber({ handlers: { OrderPlaced: () => Promise.reject(new Error("no")) } });
    await service.start();
    await clock.advance(2_000);
    await service.drain();
    expect(inbox.failures.get(placed.id)).toBe(2);
    expect(broker.acked).toEqual([]);
    expect(inbox.parked.size).toBe(0);
  });

  it("does not wait for a letter that cannot be parked", async () => {
    const { broker, subscriber, clock } = setup();
    broker.answers.push(...Array.from({ length: 50 }, () => ({ status: "unknown" as const, error: new Error("no answer") })));
    broker.add(topic, envelope("a"));
    const service = subscriber({
      deadTopic: "{topic}.dead",
      retry: { delaysMs: [] },
      handlers: { OrderPlaced: () => Promise.reject(new Error("no")) },
    });
    await service.start();
    await clock.advance(5_000);
    await service.drain();
    expect(broker.acked).toEqual([]);
  });
});

describe("stop", () => {
  it("ends a handler that hangs, keeps nothing of it and counts nothing", async () => {
    const { broker, inbox, subscriber, events } = setup({ assign: false });
    const placed = envelope("a");
    broker.add(topic, placed);
    let aborted = false;
    const service = subscriber({
      handlers: {
        OrderPlaced: (_, tx, signal) => {
          tx.write("never kept");
          signal.addEventListener("abort", () => (aborted = true));
          return new Promise(() => undefined);
        },
      },
    });
    await service.start();
    await settle();
    await service.stop();
    expect(aborted).toBe(true);
    expect(inbox.effects).toEqual([]);
    expect(inbox.failures.size).toBe(0);
    expect(broker.acked).toEqual([]);
    expect(events.filter(({ type }) => type !== "subscriber.seat" && type !== "subscriber.started")).toEqual([]);
    // The seat is left to run out: what was aborted here may still be at work.
    expect(inbox.seats.size).toBe(1);
  });

  it("does not wait for ever for a database that hangs", async () => {
    const { broker, inbox, subscriber, clock } = setup();
    broker.add(topic, envelope("a"));
    const service = subscriber({ inbox: { inbox: { ...inbox.inbox, once: () => new Promise(() => undefined) } } });
    await service.start();
    await settle();
    const stopped = service.stop();
    await clock.advance(1_000);
    await stopped;
  });

  it("and drain are harmless twice, and before the start", async () => {
    const { subscriber } = setup();
    const early = subscriber({});
    await early.drain();
    await expect(early.start()).rejects.toMatchObject({ code: "STOPPED" });
    const service = subscriber({});
    await service.start();
    await Promise.all([service.drain(), service.stop(), service.drain()]);
    await service.stopped;
  });
});

describe("start", () => {
  it("does not need the broker to be there: what comes later is handled", async () => {
    const { broker, inbox, subscriber, clock } = setup();
    const observed: string[] = [];
    const source = { ...broker.both, connect: () => Promise.reject(new Error("refused")) };
    const service = subscriber({ source, observe: (event) => void observed.push(event.type) });
    await service.start();
    expect(observed).toContain("subscriber.trouble");
    const placed = envelope("a");
    broker.add(topic, placed);
    await clock.advance(1_000);
    expect(inbox.effects).toEqual([placed.id]);
    expect(observed.filter((type) => type === "subscriber.recovered")).toHaveLength(1);
  });

  it("rejects when the broker can never be had", async () => {
    const { broker, subscriber } = setup();
    const source = { ...broker.both, connect: () => Promise.reject(new WaybillError("DRIVER_MISSING", "install it")) };
    await expect(subscriber({ source }).start()).rejects.toThrow("install it");
  });

  it("can be given up while it connects", async () => {
    const { broker, subscriber } = setup();
    const service = subscriber({ source: { ...broker.both, connect: () => new Promise(() => undefined) } });
    const started = service.start();
    await service.drain();
    await started;
  });
});

describe("a broken link", () => {
  it("is told of, waited out and taken up again where it broke", async () => {
    const { broker, inbox, subscriber, clock, of } = setup();
    const all = [envelope("a"), envelope("a"), envelope("b")];
    await subscriber({}).start();
    broker.add(topic, all[0]!);
    await eventually(() => broker.acked.length === 1);
    broker.breakLink(new Error("connection reset"));
    await eventually(() => of("subscriber.trouble").length === 1);
    broker.add(topic, all[1]!, all[2]!);
    await clock.advance(1_000);
    await eventually(() => broker.acked.length === 3);
    expect(inbox.effects).toEqual(all.map(({ id }) => id));
    expect(of("subscriber.trouble")).toMatchObject([{ step: "receive", topic, id: null, error: "connection reset" }]);
    const [again, ...more] = of("subscriber.recovered");
    expect(again).toMatchObject({ consumer: "stock", step: "receive", topic });
    expect(again!.ms).toBeGreaterThan(0);
    expect(more).toEqual([]);
  });

  it("backs off while it stays broken", async () => {
    const { broker, subscriber, clock, of } = setup();
    const source = {
      ...broker.both,
      receive: () => {
        throw new Error("unreachable");
      },
    };
    await subscriber({ source }).start();
    await clock.advance(300_000);
    expect(of("subscriber.trouble").length).toBeGreaterThan(8);
    expect(of("subscriber.trouble").length).toBeLessThan(30);
  });
});
