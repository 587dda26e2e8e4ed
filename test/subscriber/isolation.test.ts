import { describe, expect, it } from "vitest";
import type { Envelope } from "../../src/core/event.ts";
import { fatal } from "../../src/subscriber/fatal.ts";
import { envelope, eventually, settle } from "./fakes.ts";
import { setup } from "./setup.ts";

const topic = "order.events";
const several = (count: number, aggregate: string | ((n: number) => string)): Envelope[] =>
  Array.from({ length: count }, (_, n) => envelope(typeof aggregate === "string" ? aggregate : aggregate(n)));
const idsOf = (envelopes: readonly Envelope[]): string[] => envelopes.map(({ id }) => id);

describe("a bad event harms its own aggregate only", () => {
  it("with thousands of followers: others go on while it waits, and its followers keep their order", async () => {
    const { broker, inbox, subscriber, clock } = setup();
    const [bad, ...followers] = several(5_001, "bad");
    const before = followers.slice(0, 2_000);
    const [between, after] = [several(300, (n) => `good-${n}`), several(300, (n) => `good-${n}`)];
    broker.add(topic, bad!, ...before, ...between, ...followers.slice(2_000), ...after);
    let mended = false;
    await subscriber({
      handlers: {
        OrderPlaced: (event, tx) => {
          if (event.id === bad!.id && !mended) throw new Error("not yet");
          tx.write(event.id);
        },
      },
    }).start();
    await eventually(() => inbox.effects.length === 600);
    expect(new Set(inbox.effects)).toEqual(new Set(idsOf([...between, ...after])));
    mended = true;
    await clock.advance(1_000);
    await eventually(() => broker.acked.length === 5_601);
    expect(inbox.effects.slice(600)).toEqual(idsOf([bad!, ...followers]));
  });

  it("with others like it: more bad events than the prefetch, each of an aggregate of its own", async () => {
    const { broker, inbox, subscriber } = setup();
    const good = envelope("good");
    broker.add(topic, ...several(300, (n) => `bad-${n}`), good);
    await subscriber({
      handlers: {
        OrderPlaced: (event, tx) => {
          if (event.id !== good.id) throw new Error("no");
          tx.write(event.id);
        },
      },
    }).start();
    await eventually(() => inbox.effects.length === 1);
    expect(inbox.effects).toEqual([good.id]);
  });

  it("when its handler hangs: others wait for a second at most, not for the time limit", async () => {
    const { broker, inbox, subscriber, clock } = setup();
    const good = envelope("good");
    broker.add(topic, ...several(400, "bad"), good);
    await subscriber({
      handlers: { OrderPlaced: (event, tx) => (event.id === good.id ? tx.write(event.id) : new Promise<void>(() => undefined)) },
    }).start();
    await clock.advance(1_000);
    await eventually(() => inbox.effects.length === 1);
  });

  it("when it goes on: others do not wait for its followers", async () => {
    const { broker, inbox, subscriber, clock } = setup();
    const [bad, ...followers] = several(1_001, "bad");
    const good = several(200, (n) => `good-${n}`);
    broker.add(topic, bad!, ...followers);
    let mended = false;
    await subscriber({
      concurrency: 2,
      handlers: {
        OrderPlaced: async (event, tx) => {
          if (event.id === bad!.id && !mended) throw new Error("not yet");
          await clock.sleep(10);
          tx.write(event.id);
        },
      },
    }).start();
    await settle();
    mended = true;
    await clock.advance(1_100);
    expect(inbox.effects[0]).toBe(bad!.id);
    expect(inbox.effects.length).toBeLessThan(20);
    broker.add(topic, ...good);
    await clock.advance(3_000);
    expect(idsOf(good).every((id) => inbox.effects.includes(id))).toBe(true);
    expect(inbox.effects).not.toContain(followers[400]!.id);
  });

  it("when its letter cannot be parked: others go on", async () => {
    const { broker, inbox, subscriber, of } = setup();
    const [bad, ...followers] = several(400, "bad");
    const good = envelope("good");
    broker.add(topic, bad!, ...followers, good);
    await subscriber({
      deadLetters: { park: () => Promise.reject(new Error("the place for letters is away")) },
      handlers: {
        OrderPlaced: (event, tx) => {
          if (event.id === bad!.id) throw fatal("no");
          tx.write(event.id);
        },
      },
    }).start();
    await eventually(() => inbox.effects.length === 1);
    expect(inbox.effects).toEqual([good.id]);
    expect(of("subscriber.trouble")).toMatchObject([{ step: "park", id: bad!.id }]);
  });

  it("when it is larger than `prefetchBytes`: others go on while it waits", async () => {
    const { broker, inbox, subscriber, clock, of } = setup();
    const bad = envelope("bad", "x".repeat(5_000));
    const good = several(50, (n) => `good-${n}`);
    broker.add(topic, bad, ...good);
    let mended = false;
    await subscriber({
      prefetchBytes: 1_000,
      handlers: {
        OrderPlaced: (event, tx) => {
          if (event.id === bad.id && !mended) throw new Error("not yet");
          tx.write(event.id);
        },
      },
    }).start();
    await eventually(() => inbox.effects.length === 50);
    expect(inbox.effects).toEqual(idsOf(good));
    expect(of("subscriber.full")).toEqual([]);
    mended = true;
    await clock.advance(1_000);
    await eventually(() => broker.acked.length === 51);
  });

  it("when the link breaks meanwhile: others go on in the next session too", async () => {
    const { broker, inbox, subscriber, clock } = setup();
    const [bad, ...followers] = several(600, "bad");
    const [one, two] = [envelope("good"), envelope("good")];
    broker.add(topic, bad!, ...followers, one);
    let tries = 0;
    await subscriber({
      retry: { delaysMs: [60_000], jitter: 0 },
      handlers: {
        OrderPlaced: (event, tx) => {
          if (event.id === bad!.id && ++tries === 1) throw new Error("not yet");
          tx.write(event.id);
        },
      },
    }).start();
    await eventually(() => inbox.effects.length === 1);
    broker.breakLink(new Error("link lost"));
    broker.add(topic, two);
    await clock.advance(2_000);
    await eventually(() => inbox.effects.length === 2);
    expect(inbox.effects).toEqual([one.id, two.id]);
    await clock.advance(60_000);
    await eventually(() => inbox.effects.length === 602);
    expect(inbox.effects.slice(2)).toEqual(idsOf([bad!, ...followers]));
    expect(tries).toBe(2);
  });
});

describe("when more wait behind a bad event than may", () => {
  it("the topic waits, which is told, and goes on by itself", async () => {
    const { broker, inbox, subscriber, clock, of } = setup();
    const [bad, ...followers] = several(1_001, "bad");
    const good = envelope("good");
    broker.add(topic, bad!, ...followers, good);
    await subscriber({
      prefetch: 20,
      maxWaiting: 100,
      handlers: {
        OrderPlaced: (event, tx) => {
          if (event.id === bad!.id) throw new Error("no");
          tx.write(event.id);
        },
      },
    }).start();
    await settle();
    const full = { type: "subscriber.full", consumer: "stock", topic };
    expect(of("subscriber.full")).toEqual([{ ...full, unacknowledged: 120, full: true }]);
    await clock.advance(155_000);
    expect(inbox.effects).toEqual([]);
    expect(of("subscriber.full")).toHaveLength(1);
    await clock.advance(1_000);
    await eventually(() => broker.acked.length === 1_002);
    expect(inbox.effects.filter((id) => id !== good.id)).toEqual(idsOf(followers));
    expect(of("subscriber.full")[1]).toEqual({ ...full, unacknowledged: 100, full: false });
    expect(of("subscriber.full").at(-1)).toMatchObject({ full: false });
  });

  it("an ordinary backlog is not told of, and no more is received than the prefetch", async () => {
    const { broker, inbox, subscriber, clock, of } = setup();
    broker.add(topic, ...several(400, "one"), ...several(400, (n) => `many-${n % 50}`));
    let most = 0;
    await subscriber({
      prefetch: 30,
      maxWaiting: 1,
      handlers: {
        OrderPlaced: async (event, tx) => {
          most = Math.max(most, broker.delivered - broker.acked.length);
          await clock.sleep(5);
          tx.write(event.id);
        },
      },
    }).start();
    await clock.advance(5_000);
    await eventually(() => inbox.effects.length === 800);
    expect(most).toBe(30);
    expect(of("subscriber.full")).toEqual([]);
  });
});
