import { describe, expect, it } from "vitest";
import { causesOf } from "../../src/core/causes.ts";
import { WaybillError } from "../../src/core/errors.ts";
import { SessionEnded } from "../../src/core/blameless.ts";
import { fatal } from "../../src/subscriber/fatal.ts";
import { envelope, eventually, settle } from "./fakes.ts";
import { setup } from "./setup.ts";

const topic = "order.events";

const revoked = (): Error => {
  const { proxy, revoke } = Proxy.revocable(new Error("x"), {});
  revoke();
  return proxy;
};
const throws = (): never => {
  throw revoked();
};

describe("attempts", () => {
  it("come at once and then after 1, 5, 30 and 120 s; the fifth failure parks the letter", async () => {
    const { broker, inbox, subscriber, clock, of } = setup();
    const placed = envelope("a");
    broker.add(topic, placed);
    const at: number[] = [];
    await subscriber({
      handlers: {
        OrderPlaced: () => {
          at.push(clock.monotonic());
          throw new Error("out of stock");
        },
      },
    }).start();
    await clock.advance(155_999);
    expect(at).toEqual([0, 1_000, 6_000, 36_000]);
    expect(broker.acked).toEqual([]);
    await clock.advance(1);
    await eventually(() => broker.acked.length === 1);
    expect(at).toEqual([0, 1_000, 6_000, 36_000, 156_000]);
    expect([...inbox.parked.values()]).toMatchObject([{ topic, consumer: "stock", envelope: placed, attempts: 5, error: "out of stock" }]);
    expect(of("subscriber.failed").map(({ attempts, retryInMs }) => [attempts, retryInMs])).toEqual([
      [1, 1_000],
      [2, 5_000],
      [3, 30_000],
      [4, 120_000],
    ]);
    expect(of("subscriber.died")).toMatchObject([{ id: placed.id, topic, attempts: 5, error: "out of stock" }]);
  });

  it("vary their waits by the jitter that was asked for", async () => {
    const { broker, subscriber, clock, of } = setup();
    broker.add(topic, envelope("a"));
    const failing = { OrderPlaced: () => Promise.reject(new Error("no")) };
    await subscriber({ handlers: failing, retry: { delaysMs: [1_000, 1_000, 1_000], jitter: 0.5 } }).start();
    await clock.advance(10_000);
    const waits = of("subscriber.failed").map(({ retryInMs }) => retryInMs);
    expect(waits).toHaveLength(3);
    expect(new Set(waits).size).toBe(3);
    for (const wait of waits) expect(Math.abs(wait - 1_000)).toBeLessThanOrEqual(500);
  });

  it("go on where they were after a restart", async () => {
    const { broker, inbox, subscriber, clock, of } = setup();
    const placed = envelope("a");
    broker.add(topic, placed);
    let runs = 0;
    const failing = {
      OrderPlaced: () => {
        runs += 1;
        throw new Error("no");
      },
    };
    const first = subscriber({ handlers: failing });
    await first.start();
    await clock.advance(7_000);
    expect(inbox.failures.get(placed.id)).toBe(3);
    const stopped = first.stop();
    await clock.advance(2_000);
    await stopped;
    expect(broker.acked).toEqual([]);

    await subscriber({ handlers: failing }).start();
    await clock.advance(200_000);
    await eventually(() => broker.acked.length === 1);
    expect(runs).toBe(5);
    expect(of("subscriber.died")).toMatchObject([{ attempts: 5 }]);
  });

  it("keep their waits when the link breaks in between", async () => {
    const { broker, inbox, subscriber, clock } = setup();
    broker.add(topic, envelope("a"));
    const at: number[] = [];
    await subscriber({
      handlers: {
        OrderPlaced: () => {
          at.push(clock.monotonic());
          throw new Error("no");
        },
      },
    }).start();
    for (let i = 0; i < 36; i++) {
      await clock.advance(1_000);
      broker.breakLink(new Error("link lost"));
    }
    expect(at.length).toBeLessThanOrEqual(4);
    expect(inbox.parked.size).toBe(0);
  });

  it("are not spent by the database: what it cannot do now is done later", async () => {
    const { broker, inbox, subscriber, clock, of } = setup();
    const placed = envelope("a");
    broker.add(topic, placed);
    const outage = Array.from({ length: 12 }, () => new WaybillError("STORE_UNAVAILABLE", "no answer"));
    inbox.troubles.once.push(...outage, new Error("an error without a code, before the handler began"));
    inbox.troubles.commit.push(new SessionEnded("the database", null), new WaybillError("COMMIT_UNKNOWN", "who knows"));
    let runs = 0;
    await subscriber({
      handlers: {
        OrderPlaced: (event, tx) => {
          if (++runs === 1) throw new WaybillError("STORE_UNAVAILABLE", "the connection broke inside the handler");
          tx.write(event.id);
        },
      },
    }).start();
    await clock.advance(600_000);
    await eventually(() => broker.acked.length === 1);
    expect(inbox.effects).toEqual([placed.id]);
    expect(inbox.failures.size).toBe(0);
    expect(of("subscriber.failed")).toEqual([]);
    expect(of("subscriber.trouble")).toHaveLength(16);
    expect(of("subscriber.recovered").map(({ step }) => step)).toEqual(["once"]);
    expect(of("subscriber.trouble")[0]).toMatchObject({ step: "once", id: placed.id, error: "STORE_UNAVAILABLE: no answer" });
  });

  const ofTheDatabase = [
    "STORE_UNAVAILABLE",
    "STORE_READ_ONLY",
    "STORE_CORRUPT",
    "NOT_MIGRATED",
    "SCHEMA_NEWER",
    "COMMIT_UNKNOWN",
  ] as const;
  it.each(ofTheDatabase)("are not spent by %s inside the handler", async (code) => {
    const { broker, inbox, subscriber, clock, of } = setup();
    const placed = envelope("a");
    broker.add(topic, placed);
    let runs = 0;
    await subscriber({
      retry: { delaysMs: [] },
      handlers: {
        OrderPlaced: (event, tx) => {
          if (++runs === 1) throw new WaybillError(code, "not now");
          tx.write(event.id);
        },
      },
    }).start();
    await clock.advance(60_000);
    await eventually(() => broker.acked.length === 1);
    expect(inbox.effects).toEqual([placed.id]);
    expect(of("subscriber.died")).toEqual([]);
    expect([inbox.failures.size, inbox.parked.size]).toEqual([0, 0]);
  });

  it("are spent by a handler that ends its own transaction every time", async () => {
    const { broker, inbox, subscriber, of } = setup();
    broker.add(topic, envelope("a"), envelope("b"));
    inbox.troubles.commit.push(...Array.from({ length: 2 }, () => new WaybillError("TRANSACTION_LOST", "ended inside its handler")));
    await subscriber({ concurrency: 1, retry: { delaysMs: [] } }).start();
    await eventually(() => broker.acked.length === 2);
    expect(of("subscriber.died")).toMatchObject([
      { attempts: 1, error: "TRANSACTION_LOST: ended inside its handler" },
      { attempts: 1, error: "TRANSACTION_LOST: ended inside its handler" },
    ]);
    expect(of("subscriber.trouble")).toEqual([]);
    expect(inbox.effects).toEqual([]);
  });

  it.each([
    [2, []],
    [3, [{ attempts: 1, error: "STORE_UNAVAILABLE: the database ended the session while a handler worked in it" }]],
  ])("are not spent by a session that the database ended, unless it ends in every try: %i times", async (times, letters) => {
    const { broker, inbox, subscriber, clock, of } = setup();
    const placed = envelope("a");
    broker.add(topic, placed);
    inbox.troubles.commit.push(...Array.from({ length: times }, () => new SessionEnded("the database", null)));
    await subscriber({ retry: { delaysMs: [] } }).start();
    await clock.advance(10_000);
    await eventually(() => broker.acked.length === 1);
    expect(of("subscriber.died")).toMatchObject(letters);
    expect(inbox.effects).toEqual(letters.length === 0 ? [placed.id] : []);
  });

  const unreadable = {
    "a cause": () => Object.defineProperty(new Error("x"), "cause", { get: throws }),
    "a code under our brand": () =>
      Object.defineProperties(new Error("x"), { [Symbol.for("waybill.error")]: { value: true }, code: { get: throws } }),
    everything: revoked,
  };
  it.each(Object.entries(unreadable))("are spent by an error that throws when it is read: %s", async (_, make) => {
    const { broker, inbox, subscriber, clock, of } = setup();
    broker.add(topic, envelope("a"));
    await subscriber({
      retry: { delaysMs: [] },
      handlers: {
        OrderPlaced: () => {
          throw make();
        },
      },
    }).start();
    await clock.advance(10_000);
    await eventually(() => broker.acked.length === 1);
    expect(of("subscriber.died")).toMatchObject([{ attempts: 1 }]);
    expect(inbox.parked.size).toBe(1);
    for (const error of [make(), new Error("wraps it", { cause: make() })]) expect(() => causesOf(error)).not.toThrow();
  });

  it("an effect that an earlier attempt left unfinished ends in a letter at once, and its handler does not run", async () => {
    const { broker, inbox, subscriber, of } = setup();
    const placed = envelope("a");
    broker.add(topic, placed);
    inbox.troubles.once.push(new WaybillError("EFFECT_UNFINISHED", "half of it is there"));
    await subscriber({}).start();
    await eventually(() => broker.acked.length === 1);
    expect(of("subscriber.died")).toMatchObject([{ id: placed.id, attempts: 1, error: "EFFECT_UNFINISHED: half of it is there" }]);
    expect([inbox.effects.length, inbox.parked.size]).toEqual([0, 1]);
  });

  it("are spent by a commit that the handler's work made impossible", async () => {
    const { broker, inbox, subscriber, of } = setup();
    broker.add(topic, envelope("a"));
    inbox.troubles.commit.push(new Error("deferred constraint violated"));
    await subscriber({}).start();
    await eventually(() => of("subscriber.failed").length === 1);
    expect(of("subscriber.failed")).toMatchObject([{ attempts: 1, error: "deferred constraint violated" }]);
  });

  it("are counted before anything else happens, however long the count takes", async () => {
    const { broker, inbox, subscriber, clock, of } = setup();
    const placed = envelope("a");
    broker.add(topic, placed);
    inbox.troubles.failed.push(new WaybillError("STORE_UNAVAILABLE", "no"), new WaybillError("STORE_UNAVAILABLE", "no"));
    let runs = 0;
    await subscriber({
      handlers: {
        OrderPlaced: () => {
          runs += 1;
          throw new Error("no");
        },
      },
    }).start();
    await settle();
    expect([runs, inbox.failures.get(placed.id)]).toEqual([1, undefined]);
    await clock.advance(900);
    expect([runs, inbox.failures.get(placed.id)]).toEqual([1, 1]);
    expect(of("subscriber.trouble").map(({ step }) => step)).toEqual(["count", "count"]);
  });
});

describe("errors", () => {
  it("that are fatal park the event at once", async () => {
    const { broker, inbox, subscriber, of } = setup();
    const [bad, worse, follower] = [envelope("a"), envelope("a", { worse: true }), envelope("a")];
    broker.add(topic, bad, worse, follower);
    await subscriber({
      handlers: {
        OrderPlaced: (event, tx) => {
          if (event.id === bad.id) throw fatal("no such customer");
          if (event.id === worse.id) throw fatal(new TypeError("cannot be right"));
          tx.write(event.id);
        },
      },
    }).start();
    await eventually(() => broker.acked.length === 3);
    expect(of("subscriber.died").map(({ error, attempts }) => [error, attempts])).toEqual([
      ["no such customer", 1],
      ["cannot be right", 1],
    ]);
    expect(inbox.effects).toEqual([follower.id]);
  });

  it("of the data are fatal: JSON that is none, text that is not UTF-8, nothing at all", async () => {
    const { broker, inbox, subscriber, of } = setup();
    const secret = envelope("a", {}, { data: Buffer.from('{"card": "4111111111111111"') });
    const bytes = envelope("b", {}, { data: Buffer.from([0x22, 0xff, 0x22]) });
    const empty = envelope("c", {}, { data: new Uint8Array() });
    broker.add(topic, secret, bytes, empty);
    await subscriber({}).start();
    await eventually(() => broker.acked.length === 3);
    expect(of("subscriber.died")).toHaveLength(3);
    for (const { error, attempts } of of("subscriber.died")) {
      expect(error).toBe("INVALID_PAYLOAD: the data of OrderPlaced is not the JSON that its content type says");
      expect(attempts).toBe(1);
    }
    expect(inbox.effects).toEqual([]);
  });

  it("may be anything that can be thrown, and are told in one line", async () => {
    const { broker, subscriber, of } = setup();
    const thrown: unknown[] = [
      undefined,
      null,
      Object.create(null),
      "text\r\nwith\0lines",
      Symbol("s"),
      new Error("x".repeat(2_000)),
      new Error(""),
    ];
    broker.add(topic, ...thrown.map((_, n) => envelope(`${n}`, n)));
    await subscriber({
      handlers: {
        OrderPlaced: (event) => {
          throw thrown[event.payload as number];
        },
      },
    }).start();
    await eventually(() => of("subscriber.failed").length === thrown.length);
    const errors = of("subscriber.failed").map(({ error }) => error);
    expect(errors[3]).toBe("text with lines");
    expect(errors[5]).toMatch(/^x+…$/);
    expect(errors[6]).toBe("Error");
    for (const error of errors) {
      expect(error).not.toMatch(/[\0\r\n]/);
      expect(error.length).toBeGreaterThan(0);
      expect(error.length).toBeLessThanOrEqual(500);
    }
  });
});

describe("a handler that takes too long", () => {
  it("fails with HANDLER_TIMEOUT, its signal aborts, and what it does later is not kept", async () => {
    const { broker, inbox, subscriber, clock, of } = setup();
    const placed = envelope("a");
    broker.add(topic, placed);
    const late: unknown[] = [];
    let runs = 0;
    await subscriber({
      handlerTimeoutMs: 2_000,
      handlers: {
        OrderPlaced: async (event, tx, signal) => {
          runs += 1;
          if (runs > 1) return tx.write(event.id);
          tx.write("never kept");
          signal.addEventListener("abort", () => late.push((signal.reason as WaybillError).code));
          await clock.sleep(2_500);
          try {
            tx.write("too late");
          } catch (error) {
            late.push((error as Error).message);
          }
          throw new Error("nobody listens any more");
        },
      },
    }).start();
    await clock.advance(2_000);
    await eventually(() => of("subscriber.failed").length === 1);
    expect(of("subscriber.failed")).toMatchObject([{ attempts: 1, error: "HANDLER_TIMEOUT: the handler did not finish within 2000 ms" }]);
    await clock.advance(1_000);
    await eventually(() => broker.acked.length === 1);
    expect(inbox.effects).toEqual([placed.id]);
    expect(late).toEqual(["HANDLER_TIMEOUT", "the transaction has ended"]);
  });
});

describe("event types", () => {
  it("without a handler are acknowledged and told of", async () => {
    const { broker, inbox, subscriber, of } = setup();
    const [other, named] = [envelope("a", {}, { type: "OrderShipped" }), envelope("a", {}, { type: "constructor" })];
    broker.add(topic, other, named);
    await subscriber({}).start();
    await eventually(() => broker.acked.length === 2);
    expect(of("subscriber.ignored").map(({ eventType }) => eventType)).toEqual(["OrderShipped", "constructor"]);
    expect(inbox.effects).toEqual([]);
  });

  it('without a handler of their own go to "*"', async () => {
    const { broker, inbox, subscriber } = setup();
    broker.add(topic, envelope("a"), envelope("a", {}, { type: "__proto__" }));
    await subscriber({ handlers: { OrderPlaced: (_, tx) => tx.write("own"), "*": (event, tx) => tx.write(`any ${event.type}`) } }).start();
    await eventually(() => broker.acked.length === 2);
    expect(inbox.effects).toEqual(["own", "any __proto__"]);
  });
});
