import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { SessionEnded } from "../../src/core/blameless.ts";
import { seededRandom } from "../../src/core/random.ts";
import { fatal } from "../../src/subscriber/fatal.ts";
import { createSubscriber } from "../../src/subscriber/subscriber.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";
import { envelope, eventually, fakeBroker, fakeInbox, settle, type FakeTx } from "./fakes.ts";
import { setup } from "./setup.ts";

const topic = "order.events";

describe("one effect", () => {
  it("applies an event once however often it is delivered", async () => {
    const { broker, inbox, subscriber, of } = setup();
    const placed = envelope("a");
    broker.add(topic, placed);
    await subscriber({}).start();
    await eventually(() => broker.acked.length === 1);
    broker.redeliver(topic, placed);
    broker.redeliver(topic, placed);
    await eventually(() => broker.acked.length === 3);
    expect(inbox.effects).toEqual([placed.id]);
    expect(of("subscriber.handled").map(({ first }) => first)).toEqual([true, false, false]);
  });

  it("keeps nothing of a handler that failed half-way", async () => {
    const { broker, inbox, subscriber, clock } = setup();
    const placed = envelope("a");
    broker.add(topic, placed);
    let runs = 0;
    await subscriber({
      handlers: {
        OrderPlaced: (event, tx) => {
          tx.write(`${event.id} run ${++runs}`);
          if (runs === 1) throw new Error("not yet");
        },
      },
    }).start();
    await settle();
    expect(inbox.effects).toEqual([]);
    await clock.advance(1_000);
    await eventually(() => broker.acked.length === 1);
    expect(inbox.effects).toEqual([`${placed.id} run 2`]);
  });

  it("acknowledges after the commit and never before", async () => {
    const { broker, inbox, subscriber } = setup();
    broker.add(topic, envelope("a"));
    const at: string[] = [];
    const look = (): string => `${inbox.effects.length} committed, ${broker.acked.length} acked`;
    await subscriber({ failpoints: { hit: (point) => void at.push(`${point}: ${look()}`) } }).start();
    await eventually(() => at.length === 4);
    expect(at).toEqual([
      "before-handle: 0 committed, 0 acked",
      "before-commit: 0 committed, 0 acked",
      "after-effect: 1 committed, 0 acked",
      "after-ack: 1 committed, 1 acked",
    ]);
  });

  it("tries an ack that failed again, and the effect stays one", async () => {
    const { broker, inbox, subscriber, clock, of } = setup();
    const placed = envelope("a");
    broker.ackErrors.push(new Error("link lost"), new Error("link lost"));
    broker.add(topic, placed);
    await subscriber({}).start();
    await clock.advance(2_000);
    await eventually(() => broker.acked.length === 1);
    expect(inbox.effects).toEqual([placed.id]);
    expect(of("subscriber.trouble")).toMatchObject([
      { step: "ack", id: placed.id, topic, error: "link lost" },
      { step: "ack", id: placed.id },
    ]);
  });
});

describe("order", () => {
  it("gives each aggregate its events in order, whatever fails, is redelivered or loses its link", async () => {
    const kinds = fc.constantFrom("fine", "fails once", "fails twice", "fatal", "lost once", "ack lost", "again");
    const event = fc.record({ aggregate: fc.constantFrom("a", "b", "c"), kind: kinds });
    await fc.assert(
      fc.asyncProperty(
        fc.array(event, { minLength: 1, maxLength: 25 }),
        fc.integer({ min: 1, max: 4 }),
        fc.nat(),
        async (script, concurrency, seed) => {
          const clock = manualClock();
          const broker = fakeBroker({}, clock);
          const inbox = fakeInbox(clock);
          const random = seededRandom(seed);
          const all = script.map(({ aggregate, kind }) => ({ ...envelope(aggregate), kind }));
          const tries = new Map<string, number>();
          const started: string[] = [];
          const service = createSubscriber<FakeTx>({
            ...{ consumer: "stock", source: broker.both, inbox, topics: [topic], concurrency, prefetch: 8, clock, random, observe: false },
            handlers: {
              async OrderPlaced({ id }, tx) {
                started.push(id);
                const { kind } = all.find((one) => one.id === id)!;
                const nth = (tries.get(id) ?? 0) + 1;
                tries.set(id, nth);
                await clock.sleep(Math.floor(random.next() * 50));
                if (kind === "fails once" && nth === 1) throw new Error("once");
                if (kind === "fails twice" && nth <= 2) throw new Error("twice");
                if (kind === "fatal") throw fatal("never");
                tx.write(id);
              },
            },
          });
          const aggregateOf = new Map(all.map(({ id, aggregateId }) => [id, aggregateId]));
          for (const one of all) {
            if (one.kind === "lost once") inbox.troubles.commit.push(new SessionEnded("the database", null));
            if (one.kind === "ack lost") broker.ackErrors.push(new Error("gone"));
          }
          await service.start();
          for (const one of all) {
            broker.add(topic, one);
            if (one.kind === "again") broker.redeliver(topic, one);
            if (random.next() < 0.15) broker.breakLink(new Error("link lost"));
            if (random.next() < 0.5) await clock.advance(Math.floor(random.next() * 200));
          }
          for (let i = 0; i < 400 && new Set(broker.acked).size < all.length; i++) await clock.advance(1_000);
          const stopped = service.drain();
          await clock.advance(60_000);
          await stopped;

          expect(new Set(broker.acked).size).toBe(all.length);
          expect(new Set(inbox.effects).size).toBe(inbox.effects.length);
          const dead = new Set([...inbox.parked.values()].map(({ envelope: { id } }) => id));
          for (const aggregate of ["a", "b", "c"]) {
            const added = all.filter(({ aggregateId }) => aggregateId === aggregate).map(({ id }) => id);
            expect(inbox.effects.filter((id) => aggregateOf.get(id) === aggregate)).toEqual(added.filter((id) => !dead.has(id)));
            // First tries too: nothing was begun before what it follows was done with.
            expect([...new Set(started)].filter((id) => aggregateOf.get(id) === aggregate)).toEqual(added);
          }
          expect([...dead].sort()).toEqual(
            all
              .filter(({ kind }) => kind === "fatal")
              .map(({ id }) => id)
              .sort(),
          );
        },
      ),
      { numRuns: 60 },
    );
  });

  it("lets other aggregates go on while one waits for its next attempt, and its followers wait behind it", async () => {
    const { broker, inbox, subscriber, clock } = setup();
    const [bad, follower, other] = [envelope("a"), envelope("a"), envelope("b")];
    broker.add(topic, bad, follower, other);
    let failing = true;
    await subscriber({
      concurrency: 1,
      handlers: {
        OrderPlaced: (event, tx) => {
          if (event.id === bad.id && failing) throw new Error("not yet");
          tx.write(event.id);
        },
      },
    }).start();
    await eventually(() => inbox.effects.length === 1);
    expect(inbox.effects).toEqual([other.id]);
    failing = false;
    await clock.advance(1_000);
    await eventually(() => inbox.effects.length === 3);
    expect(inbox.effects).toEqual([other.id, bad.id, follower.id]);
  });

  it.each([
    [3, 3],
    [undefined, 16],
  ])("handles no more aggregates at once than `concurrency` (%s)", async (concurrency, limit) => {
    const { broker, inbox, subscriber, clock } = setup();
    broker.add(topic, ...Array.from({ length: 20 }, (_, n) => envelope(`aggregate-${n}`)));
    let running = 0;
    let most = 0;
    await subscriber({
      ...(concurrency === undefined ? {} : { concurrency }),
      handlers: {
        OrderPlaced: async (event, tx) => {
          most = Math.max(most, ++running);
          await clock.sleep(10);
          running -= 1;
          tx.write(event.id);
        },
      },
    }).start();
    await clock.advance(100);
    await eventually(() => inbox.effects.length === 20);
    expect(most).toBe(limit);
  });
});
