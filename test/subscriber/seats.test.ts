import { describe, expect, it } from "vitest";
import { WaybillError } from "../../src/core/errors.ts";
import { createMutex } from "../../src/core/queue.ts";
import { fatal } from "../../src/subscriber/fatal.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";
import { envelope, eventually, settle } from "./fakes.ts";
import { setup } from "./setup.ts";

const topic = "order.events";

describe("a seat", () => {
  it("is taken by one process for each topic; only that one receives", async () => {
    const { broker, inbox, subscriber, clock } = setup({ assign: false });
    await subscriber({ topics: ["a.events", "b.events"] }).start();
    await subscriber({ topics: ["a.events", "b.events", "c.events"] }).start();
    await clock.advance(60_000);
    expect(broker.received.sort()).toEqual(["a.events", "b.events", "c.events"]);
    expect([...inbox.seats].map(([place, { owner }]) => `${place} ${owner}`).sort()).toEqual([
      "stock a.events process-1",
      "stock b.events process-1",
      "stock c.events process-2",
    ]);
  });

  it("is not needed where the broker assigns: all processes receive, and one keeps it, so that the database knows that one runs", async () => {
    const { broker, inbox, subscriber, clock } = setup({ assign: true });
    const topics = ["a.events", "b.events"];
    const [first, second] = [subscriber({ topics }), subscriber({ topics })];
    await first.start();
    await second.start();
    await clock.advance(60_000);
    expect(broker.received).toEqual(["a.events,b.events", "a.events,b.events"]);
    const owners = (): readonly string[] => [...inbox.seats].map(([place, { owner }]) => `${place} ${owner}`).sort();
    expect(owners()).toEqual(["stock a.events process-1", "stock b.events process-1"]);
    await first.drain();
    await clock.advance(15_000);
    expect(owners()).toEqual(["stock a.events process-2", "stock b.events process-2"]);
    await second.drain();
    expect(owners()).toEqual([]);
  });

  it("is not waited for where the broker assigns: a database that is away stops no reception", async () => {
    const { broker, inbox, subscriber, clock } = setup({ assign: true });
    inbox.troubles.sit.push(...Array.from({ length: 50 }, () => new WaybillError("STORE_UNAVAILABLE", "away")));
    await subscriber({ topics: ["a.events"] }).start();
    await clock.advance(60_000);
    expect(broker.received).toEqual(["a.events"]);
  });

  it("is handed over at once by a drain, after what is being handled is done", async () => {
    const { broker, inbox, subscriber, clock, of } = setup({ assign: false });
    const [slow, next] = [envelope("a"), envelope("a")];
    const by: string[] = [];
    const handledBy = (name: string) => ({
      OrderPlaced: async (event: { id: string }, tx: { write: (effect: string) => void }) => {
        by.push(name);
        if (event.id === slow.id) await clock.sleep(20_000);
        tx.write(event.id);
      },
    });
    const first = subscriber({ handlers: handledBy("first") });
    await first.start();
    await subscriber({ handlers: handledBy("second") }).start();
    broker.add(topic, slow, next);
    await clock.advance(100);
    const drained = first.drain();
    await clock.advance(19_000);
    expect(by).toEqual(["first"]);
    await clock.advance(901);
    await drained;
    await clock.advance(500);
    await eventually(() => inbox.effects.length === 2);
    expect(by).toEqual(["first", "second"]);
    expect(broker.acked).toEqual([slow.id, next.id]);
    expect(of("subscriber.seat").map(({ held }) => held)).toEqual([true, false, true]);
  });

  it("is kept by a drain until what is being handled is acknowledged, also when it leaves a failed event behind", async () => {
    const { broker, inbox, subscriber, clock } = setup({ assign: false });
    const [slow, failed] = [envelope("a"), envelope("b")];
    broker.add(topic, slow, failed);
    const OrderPlaced = async ({ id }: { id: string }): Promise<void> => {
      if (id === failed.id) throw new Error("no");
      await clock.sleep(900);
    };
    const service = subscriber({ handlers: { OrderPlaced } });
    await service.start();
    await clock.advance(100);
    const drained = service.drain();
    await clock.advance(100);
    expect(inbox.seats.size).toBe(1);
    expect(broker.acked).toEqual([]);
    await clock.advance(1_000);
    await drained;
    expect(inbox.seats.size).toBe(0);
    expect(broker.acked).toEqual([slow.id]);
  });

  it("of a process that died is free when it has run out, and not before", async () => {
    const { broker, inbox, subscriber, clock } = setup({ assign: false });
    inbox.seats.set(`stock ${topic}`, { owner: "dead", expiresAt: clock.now() + 15_000 });
    await subscriber({}).start();
    broker.add(topic, envelope("a"));
    await clock.advance(14_999);
    expect(inbox.effects).toEqual([]);
    await clock.advance(501);
    await eventually(() => inbox.effects.length === 1);
  });

  it("that was lost stops handling at once; what is being handled may finish", async () => {
    const { broker, inbox, subscriber, clock, of } = setup({ assign: false });
    const [running, follower, other] = [envelope("a"), envelope("a"), envelope("b")];
    await subscriber({
      concurrency: 1,
      handlers: {
        OrderPlaced: async (event, tx) => {
          await clock.sleep(7_000);
          tx.write(event.id);
        },
      },
    }).start();
    broker.add(topic, running, follower, other);
    await clock.advance(100);
    inbox.seats.set(`stock ${topic}`, { owner: "another", expiresAt: clock.now() + 600_000 });
    await clock.advance(300_000);
    expect(inbox.effects).toEqual([running.id]);
    expect(broker.acked).toEqual([running.id]);
    expect(of("subscriber.seat").map(({ held }) => held)).toEqual([true, false]);

    inbox.seats.delete(`stock ${topic}`);
    await clock.advance(60_000);
    expect(inbox.effects).toEqual([running.id, follower.id, other.id]);
  });

  it("that was lost begins no handler that still waits for its transaction", async () => {
    const { broker, inbox, subscriber, clock } = setup({ assign: false });
    // As a database that lets one transaction in at a time.
    const mutex = createMutex();
    const serial: typeof inbox.inbox = { ...inbox.inbox, once: (...args) => mutex.run(() => inbox.inbox.once(...args)) };
    const began: string[] = [];
    await subscriber({
      inbox: { inbox: serial },
      handlers: {
        OrderPlaced: async (event, tx) => {
          began.push(event.id);
          await clock.sleep(7_000);
          tx.write(event.id);
        },
      },
    }).start();
    const [running, waiting] = [envelope("a"), envelope("b")];
    broker.add(topic, running, waiting);
    await clock.advance(100);
    inbox.seats.set(`stock ${topic}`, { owner: "another", expiresAt: Infinity });
    await clock.advance(60_000);
    expect(began).toEqual([running.id]);
    expect(inbox.effects).toEqual([running.id]);
  });

  it("that was lost parks no letter: the event is another's now", async () => {
    const { broker, inbox, subscriber, clock } = setup({ assign: false });
    const placed = envelope("a");
    await subscriber({
      handlers: {
        OrderPlaced: async () => {
          await clock.sleep(7_000);
          throw fatal("no");
        },
      },
    }).start();
    broker.add(topic, placed);
    await clock.advance(100);
    inbox.seats.set(`stock ${topic}`, { owner: "another", expiresAt: Infinity });
    await clock.advance(60_000);
    expect(inbox.failures.get(placed.id)).toBe(1);
    expect(inbox.parked.size).toBe(0);
    expect(broker.acked).toEqual([]);
  });

  it("parks no letter after a freeze past its end, even before a timer tells it so", async () => {
    let frozenMs = 0;
    const clock = manualClock();
    const frozen = { ...clock, now: () => clock.now() + frozenMs, monotonic: () => clock.monotonic() + frozenMs };
    const { broker, inbox, subscriber } = setup({ assign: false });
    const placed = envelope("a");
    const OrderPlaced = (): void => {
      frozenMs = 20_000;
      inbox.seats.set(`stock ${topic}`, { owner: "another", expiresAt: Infinity });
      throw fatal("no");
    };
    await subscriber({ clock: frozen, handlers: { OrderPlaced } }).start();
    broker.add(topic, placed);
    await eventually(() => inbox.failures.has(placed.id));
    await settle();
    expect(inbox.parked.size).toBe(0);
    expect(broker.acked).toEqual([]);
  });

  it("that was lost does not hurry a drain: what is being handled is still waited for", async () => {
    const { broker, inbox, subscriber, clock } = setup({ assign: false });
    const service = subscriber({
      handlers: {
        OrderPlaced: async (event, tx) => {
          await clock.sleep(20_000);
          tx.write(event.id);
        },
      },
    });
    await service.start();
    broker.add(topic, envelope("a"));
    await clock.advance(100);
    inbox.seats.set(`stock ${topic}`, { owner: "another", expiresAt: Infinity });
    await clock.advance(10_000);
    let drained = false;
    void service.drain().then(() => (drained = true));
    await clock.advance(5_000);
    expect(drained).toBe(false);
    await clock.advance(5_000);
    await eventually(() => drained);
    expect(inbox.effects).toHaveLength(1);
  });

  it("gives up waiting retries when it is lost, without spending them", async () => {
    const { broker, inbox, subscriber, clock } = setup({ assign: false });
    const placed = envelope("a");
    await subscriber({ handlers: { OrderPlaced: () => Promise.reject(new Error("no")) } }).start();
    broker.add(topic, placed);
    await clock.advance(2_000);
    expect(inbox.failures.get(placed.id)).toBe(2);
    inbox.seats.set(`stock ${topic}`, { owner: "another", expiresAt: clock.now() + 600_000 });
    await clock.advance(400_000);
    expect(inbox.failures.get(placed.id)).toBe(2);
    expect(inbox.parked.size).toBe(0);
    expect(broker.acked).toEqual([]);
  });

  it("is trusted for less time than it lasts: with no answer to the renewal, handling stops before it runs out", async () => {
    const { broker, inbox, subscriber, clock, of } = setup({ assign: false });
    const at: number[] = [];
    await subscriber({ handlers: { OrderPlaced: () => void at.push(clock.monotonic()) } }).start();
    inbox.hung = true;
    for (let second = 0; second < 30; second++) {
      broker.add(topic, envelope(`aggregate-${second}`));
      await clock.advance(1_000);
    }
    expect(at.length).toBeGreaterThanOrEqual(11);
    expect(Math.max(...at)).toBeLessThan(12_000);
    expect(of("subscriber.seat").map(({ held }) => held)).toEqual([true, false]);
  });

  it("is not trusted by a process that was frozen past its end, even before a timer tells it so", async () => {
    // Frozen: time has passed, and not one of its timers has run.
    let frozenMs = 0;
    const clock = manualClock();
    const frozen = { ...clock, now: () => clock.now() + frozenMs, monotonic: () => clock.monotonic() + frozenMs };
    const { broker, inbox, subscriber } = setup({ assign: false });
    await subscriber({ clock: frozen }).start();
    broker.add(topic, envelope("a"));
    await eventually(() => inbox.effects.length === 1);
    inbox.seats.set(`stock ${topic}`, { owner: "another", expiresAt: Infinity });
    frozenMs = 20_000;
    broker.add(topic, envelope("a"), envelope("b"));
    await settle();
    expect(inbox.effects).toHaveLength(1);
  });

  it("is kept through an outage of the database that is shorter than it", async () => {
    const { broker, inbox, subscriber, clock, of } = setup({ assign: false });
    await subscriber({}).start();
    inbox.troubles.sit.push(...Array.from({ length: 4 }, () => new WaybillError("STORE_UNAVAILABLE", "no answer")));
    await clock.advance(20_000);
    broker.add(topic, envelope("a"));
    await eventually(() => inbox.effects.length === 1);
    expect(of("subscriber.seat").map(({ held }) => held)).toEqual([true]);
    expect(of("subscriber.trouble")).toHaveLength(4);
    expect(of("subscriber.recovered").map(({ step }) => step)).toEqual(["seat"]);
  });

  it("is not renewed while something hangs beyond its time", async () => {
    const { broker, inbox, subscriber, clock, of } = setup({ assign: false });
    const placed = envelope("a");
    let hang = true;
    const hanging = {
      ...inbox.inbox,
      once: (...args: Parameters<typeof inbox.inbox.once>) => (hang ? new Promise<never>(() => undefined) : inbox.inbox.once(...args)),
    };
    await subscriber({ inbox: { inbox: hanging }, concurrency: 1, handlerTimeoutMs: 10_000 }).start();
    broker.add(topic, placed);
    await clock.advance(30_000);
    expect(of("subscriber.seat").map(({ held }) => held)).toEqual([true]);
    await clock.advance(60_000);
    expect(of("subscriber.seat").map(({ held }) => held)).toEqual([true, false]);
    expect(of("subscriber.trouble")).toMatchObject([{ step: "once", id: placed.id, topic }]);
    hang = false;
    await subscriber({}).start();
    await clock.advance(15_000);
    await eventually(() => inbox.effects.length === 1);
  });

  it("refuses to start over tables that are not there, and waits for a database that is not there yet", async () => {
    const { inbox, subscriber, clock, of } = setup({ assign: false });
    inbox.troubles.sit.push(new WaybillError("NOT_MIGRATED", "no tables"));
    await expect(subscriber({}).start()).rejects.toMatchObject({ code: "NOT_MIGRATED" });
    inbox.troubles.sit.push(new WaybillError("STORE_UNAVAILABLE", "no answer"));
    await subscriber({}).start();
    await clock.advance(500);
    expect(of("subscriber.seat").map(({ held }) => held)).toEqual([true]);
  });
});
