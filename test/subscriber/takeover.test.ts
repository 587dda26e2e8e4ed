import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { SessionEnded } from "../../src/core/blameless.ts";
import { seededRandom } from "../../src/core/random.ts";
import type { Service } from "../../src/core/service.ts";
import { createSubscriber } from "../../src/subscriber/subscriber.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";
import { envelope, fakeBroker, fakeInbox, type FakeTx } from "./fakes.ts";

const topic = "order.events";

describe("three processes", () => {
  it("keep order and one effect each while they are stopped, drained, started and robbed of their seat", async () => {
    const action = fc.record({
      kind: fc.constantFrom("add", "add", "add", "add", "stop", "drain", "start", "start", "rob", "break", "database", "pass"),
      process: fc.integer({ min: 0, max: 2 }),
      aggregate: fc.constantFrom("a", "b"),
      passMs: fc.constantFrom(0, 1, 40, 300, 6_000, 20_000),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(action, { minLength: 10, maxLength: 60 }), fc.nat(), async (actions, seed) => {
        const clock = manualClock(1_000_000);
        const broker = fakeBroker({ assign: false }, clock);
        const inbox = fakeInbox(clock);
        const random = seededRandom(seed);
        const processes: (Service | null)[] = [null, null, null];
        const added: { id: string; aggregate: string }[] = [];
        let made = 0;
        const start = async (n: number): Promise<void> => {
          if (processes[n] !== null) return;
          const service = createSubscriber<FakeTx>({
            ...{
              consumer: "stock",
              source: broker.both,
              inbox,
              topics: [topic],
              concurrency: 2,
              prefetch: 4,
              maxWaiting: 3,
              observe: false,
              clock,
              random,
            },
            owner: `process-${++made}`,
            handlerTimeoutMs: 2_000,
            retry: { delaysMs: Array.from({ length: 200 }, () => 100) },
            handlers: {
              async OrderPlaced({ id }, tx) {
                await clock.sleep(Math.floor(random.next() * 100));
                if (random.next() < 0.2) throw new Error("not yet");
                tx.write(id);
              },
            },
          });
          processes[n] = service;
          await service.start();
        };
        const end = async (n: number, how: "stop" | "drain"): Promise<void> => {
          const ended = processes[n]?.[how]();
          processes[n] = null;
          await clock.advance(3_000);
          await ended;
        };

        for (const n of [0, 1, 2]) await start(n);
        for (const { kind, process, aggregate, passMs } of actions) {
          if (kind === "add") {
            const one = envelope(aggregate);
            added.push({ id: one.id, aggregate });
            broker.add(topic, one);
          } else if (kind === "start") await start(process);
          else if (kind === "stop" || kind === "drain") await end(process, kind);
          else if (kind === "rob") inbox.seats.set(`stock ${topic}`, { owner: "robber", expiresAt: clock.now() + 3_000 });
          else if (kind === "break") broker.breakLink(new Error("link lost"));
          else if (kind === "database") inbox.troubles.commit.push(new SessionEnded("the database", null));
          await clock.advance(passMs);
        }
        await start(0);
        for (let i = 0; i < 300 && new Set(broker.acked).size < added.length; i++) await clock.advance(1_000);
        for (const n of [0, 1, 2]) await end(n, "drain");

        expect(inbox.parked.size).toBe(0);
        expect(new Set(broker.acked).size).toBe(added.length);
        for (const aggregate of ["a", "b"]) {
          const ids = added.filter((one) => one.aggregate === aggregate).map(({ id }) => id);
          expect(inbox.effects.filter((id) => ids.includes(id))).toEqual(ids);
        }
      }),
      { numRuns: 60 },
    );
  });
});
