import { describe, expect, test } from "vitest";
import type { Holder, Housekeeping, Watch } from "../../src/contracts/housekeeping.ts";
import type { EventRecord } from "../../src/contracts/operator.ts";
import { WaybillError } from "../../src/core/errors.ts";
import type { PathEvent } from "../../src/core/path-events.ts";
import { seededRandom } from "../../src/core/random.ts";
import { createRelay, type HousekeepingOptions, type Relay, type RelayOptions } from "../../src/relay/create-relay.ts";
import { manualClock, type ManualClock } from "../../src/testing/manual-clock.ts";
import { type Bench, benches, draft } from "../support/outbox.ts";
import { scriptedSink } from "../support/scripted-sink.ts";

const hour = 3_600_000;
const day = 24 * hour;

interface Scene {
  readonly clock: ManualClock;
  readonly bench: Bench;
  readonly events: PathEvent[];
  relay(name: string, options?: Partial<RelayOptions>): Promise<Relay>;
  /** Adds that many events and has them published. */
  publish(count: number): Promise<void>;
  count(): Promise<number>;
  of<T extends PathEvent["type"]>(type: T): (PathEvent & { type: T })[];
}

async function scene(open: (typeof benches)[string], work: (scene: Scene) => Promise<void>): Promise<void> {
  const clock = manualClock(Date.now()); // created_at is SQLite's own clock
  await using bench = await open(clock);
  const events: PathEvent[] = [];
  const relays: Relay[] = [];
  const sink = scriptedSink();
  try {
    await work({
      clock,
      bench,
      events,
      async relay(name, options) {
        const relay = createRelay({
          ...{
            store: bench.store,
            sink,
            clock,
            random: seededRandom(relays.length + 1),
            relayId: name,
            leaseMs: day,
            pollIntervalMs: hour,
          },
          observe: (event) => void events.push(event),
          ...options,
        });
        relays.push(relay);
        await relay.start();
        return relay;
      },
      async publish(count) {
        const before = sink.log.length;
        await bench.add(...Array.from({ length: count }, (_, n) => draft(`order-${n % 7}`, n)));
        for (let n = 0; sink.log.length < before + count && n < 100; n++) await clock.advance(500);
        await clock.advance(5_000);
        expect(sink.log.length).toBeGreaterThanOrEqual(before + count);
      },
      count: async () => (await bench.operator.list({ limit: 100_000 })).length,
      of: <T extends PathEvent["type"]>(type: T) => events.filter((event): event is PathEvent & { type: T } => event.type === type),
    });
  } finally {
    await Promise.all(relays.map((relay) => relay.stop()));
  }
}

/** Time passes in steps: what a store does takes turns that the clock does not see. */
async function pass(clock: ManualClock, ms: number): Promise<void> {
  for (let left = ms; left > 0; left -= 10 * 60_000) await clock.advance(Math.min(left, 10 * 60_000));
}

const nameOf = (relay: string): string => relay.split(":")[0]!;
const session: Holder = {
  ...{ kind: "session", name: "4711", user: "app", application: "billing", state: "idle in transaction", ageMs: 120_000, transactions: 5 },
};
const calm: Watch = { bytes: 8_192, deadRows: 0, horizon: null, writer: null, unseen: null };

function watching(watch: () => Watch): Housekeeping & { looks: number } {
  const housekeeping = {
    looks: 0,
    async watch() {
      housekeeping.looks++;
      return watch();
    },
  };
  return housekeeping;
}

describe.each(Object.entries(benches))("housekeeping on %s", (_, open) => {
  test("purges what is past its retention, and nothing else, within a minute of the start", () =>
    scene(open, async ({ clock, relay, publish, count, of, bench }) => {
      const options: Partial<RelayOptions> = { housekeeping: { retentionMs: 2 * day } };
      const first = await relay("first", options);
      const delayed = draft("order-9", 1, { availableAt: new Date(clock.now() + 30 * day) });
      await bench.add(delayed);
      await publish(30);
      await first.drain();
      await pass(clock, 3 * day);
      await relay("second", options);
      await publish(5);
      await clock.advance(60_000);
      expect(await count()).toBe(6);
      expect(of("housekeeping.done").at(-1)).toMatchObject({ purged: 30, complete: true, created: [], dropped: [], moved: 0 });
      expect(await bench.stateOf(delayed.id)).toBe("PENDING");
    }));

  test("is done by the relay that holds lane 0, and by the next one when that ends", () =>
    scene(open, async ({ clock, relay, of }) => {
      const relays = { a: await relay("a"), b: await relay("b") };
      await pass(clock, 3 * hour);
      const before = of("housekeeping.done").length;
      await pass(clock, 3 * hour);
      const doing = new Set(
        of("housekeeping.done")
          .slice(before)
          .map((event) => nameOf(event.relay)),
      );
      expect(doing.size).toBe(1);
      const [one] = [...doing] as ["a" | "b"];
      const until = of("housekeeping.done").length;
      await relays[one].drain();
      await pass(clock, 2 * hour);
      const since = of("housekeeping.done").slice(until);
      expect(since.length).toBeGreaterThanOrEqual(1);
      expect(since.every((event) => nameOf(event.relay) !== one)).toBe(true);
    }));

  test("is left out when told so, and by a relay that runs once", () =>
    scene(open, async ({ clock, relay, publish, count, of, bench }) => {
      await relay("idle", { housekeeping: false });
      await publish(3);
      await pass(clock, 8 * day);
      expect([await count(), of("housekeeping.done")]).toEqual([3, []]);
      const once = createRelay({ store: bench.store, sink: scriptedSink(), clock, housekeeping: { everyMs: 1, retentionMs: 1 } });
      const ended = once.runOnce();
      for (let n = 0; n < 50; n++) await clock.advance(10);
      await once.drain();
      await ended;
      expect(await count()).toBe(3);
    }));

  test("gives events to the archive first, and keeps them while that fails", () =>
    scene(open, async ({ clock, relay, publish, count, of }) => {
      const archived: EventRecord[] = [];
      let broken = true;
      await relay("only", {
        housekeeping: {
          retentionMs: hour,
          async archive(events) {
            if (broken) throw new WaybillError("STORE_UNAVAILABLE", "the archive is away");
            archived.push(...events);
          },
        },
      });
      await publish(20);
      await pass(clock, 4 * hour);
      expect(await count()).toBe(20);
      expect(of("relay.trouble")[0]).toMatchObject({ step: "housekeeping", error: "the archive is away", code: "STORE_UNAVAILABLE" });
      expect(of("housekeeping.done").at(-1)).toMatchObject({ purged: 0, complete: false });
      await publish(2);
      broken = false;
      await pass(clock, 1.5 * hour);
      expect(await count()).toBeLessThanOrEqual(2);
      expect(new Set(archived.map(({ id }) => id)).size).toBe(22 - (await count()));
      expect(archived[0]).toMatchObject({ state: "PUBLISHED", type: "Changed", aggregateType: "Order" });
    }));

  test("an archive that hangs is told of in every interval, and a clean stop does not wait for it", () =>
    scene(open, async ({ clock, relay, publish, count, of }) => {
      let asked = 0;
      const options: HousekeepingOptions = {
        retentionMs: 1,
        everyMs: hour,
        archive: () => {
          asked++;
          return new Promise(() => undefined);
        },
      };
      const made = await relay("only", { housekeeping: options });
      await publish(5);
      await pass(clock, 2 * hour);
      expect(asked).toBe(1);
      expect(of("relay.trouble")).toMatchObject([
        { step: "housekeeping", error: expect.stringMatching(/has not ended for 3600 s/) as string },
      ]);
      const drained = made.drain();
      await clock.advance(1);
      await drained;
      expect(await count()).toBe(5);
      expect(of("housekeeping.done").at(-1)).toMatchObject({ purged: 0, complete: false });
    }));
});

describe("housekeeping", () => {
  const open = benches["memory"]!;

  test("keeps events for seven days and goes on every hour, when nothing is said", () =>
    scene(open, async ({ clock, relay, publish, count, of }) => {
      await relay("only");
      await publish(3);
      await pass(clock, 7 * day - hour);
      expect(await count()).toBe(3);
      const runs = of("housekeeping.done").length;
      expect(runs).toBeGreaterThan(24 * 7 * 0.9);
      expect(runs).toBeLessThan(24 * 7 * 1.1);
      await pass(clock, 3 * hour);
      expect(await count()).toBe(0);
      expect(of("housekeeping.done").filter(({ purged }) => purged > 0)).toHaveLength(1);
    }));

  test("that fails neither ends the relay nor keeps it from publishing", () =>
    scene(open, async ({ clock, bench, relay, publish, of }) => {
      const operator = { ...bench.operator, purge: () => Promise.reject(new Error("permission denied")) };
      const housekeeping: Housekeeping = { watch: () => Promise.reject(new Error("no statistics")) };
      await relay("only", { store: { ...bench.store, operator, housekeeping } });
      await pass(clock, 3 * hour);
      await publish(10);
      const troubles = of("relay.trouble").map(({ step, error }) => `${step}: ${error}`);
      expect(new Set(troubles)).toEqual(new Set(["housekeeping: permission denied", "housekeeping: no statistics"]));
      expect(of("housekeeping.done").every(({ complete }) => !complete)).toBe(true);
    }));

  test("creates partitions before it purges, tells what could not be done once, and counts what was dropped", () =>
    scene(open, async ({ clock, bench, relay, of }) => {
      const did: string[] = [];
      const report = { created: [], dropped: [], events: 0, moved: 0, undone: [] };
      const operator: typeof bench.operator = { ...bench.operator, purge: async () => (did.push("purge"), 7) };
      const housekeeping: Housekeeping = {
        watch: async () => calm,
        partitions: {
          create: async () => (did.push("create"), { ...report, created: ["p1"], undone: ["p2 was not made: busy"] }),
          drop: async (_before, who, { emptied }) => {
            did.push(`drop ${emptied ? "emptied" : "all"} as ${nameOf(who)}`);
            return { ...report, dropped: ["p0"], events: 100, moved: 3, undone: ["p9 was not dropped: full"] };
          },
        },
      };
      const store = { ...bench.store, operator, housekeeping };
      const made = await relay("first", { store });
      await clock.advance(60_000);
      expect(did).toEqual(["create", "drop all as relay first", "purge"]);
      expect(of("housekeeping.done")).toMatchObject([{ purged: 107, created: ["p1"], dropped: ["p0"], moved: 3, complete: true }]);
      expect(of("watch.warning").map(({ what, text }) => `${what}: ${text}`)).toEqual([
        "partitions: p2 was not made: busy",
        "partitions: p9 was not dropped: full",
      ]);
      await made.drain();
      did.length = 0;
      await relay("second", { store, housekeeping: { archive: () => Promise.resolve() } });
      await clock.advance(60_000);
      expect(did).toEqual(["create", "purge", "drop emptied as relay second"]);
    }));

  test("looks every minute, and tells of the same holder once in an interval", () =>
    scene(open, async ({ clock, bench, relay, of }) => {
      let watch: Watch = calm;
      const housekeeping = watching(() => watch);
      await relay("only", { store: { ...bench.store, housekeeping } });
      await clock.advance(10 * 60_000);
      expect(housekeeping.looks).toBeGreaterThanOrEqual(9);
      expect(of("watch.warning")).toEqual([]);
      watch = { ...calm, writer: session };
      await clock.advance(5 * 60_000);
      expect(of("watch.warning")).toMatchObject([{ what: "writer", holder: "session 4711" }]);
      watch = { ...calm, writer: { ...session, name: "4712" } };
      await clock.advance(5 * 60_000);
      expect(of("watch.warning").map(({ holder }) => holder)).toEqual(["session 4711", "session 4712"]);
      await pass(clock, hour);
      expect(of("watch.warning").map(({ holder }) => holder)).toEqual(["session 4711", "session 4712", "session 4712"]);
    }));

  test("warns from the thresholds that it is given", () =>
    scene(open, async ({ clock, bench, relay, of }) => {
      const housekeeping = watching(() => ({ ...calm, bytes: 1_000_000, writer: session }));
      await relay("only", { store: { ...bench.store, housekeeping }, housekeeping: { warn: { writerMs: hour, bytes: 999_999 } } });
      await clock.advance(60_000);
      expect(of("watch.warning").map(({ what }) => what)).toEqual(["bytes"]);
    }));

  test("is off where the store has no operator, and cannot be asked for there", () =>
    scene(open, async ({ clock, bench, relay, of }) => {
      const { outbox, leases } = bench.store;
      await relay("only", { store: { outbox, leases } });
      await pass(clock, 2 * hour);
      expect(of("housekeeping.done")).toEqual([]);
      const make = (housekeeping: unknown, store: RelayOptions["store"] = bench.store) =>
        createRelay({ store, sink: scriptedSink(), clock, housekeeping: housekeeping as HousekeepingOptions });
      expect(() => make({}, { outbox, leases })).toThrow(/a store with an operator/);
      expect(() => make({ every: 5 })).toThrow(/housekeeping has no option "every".*everyMs/);
      expect(() => make({ everyMs: 0 })).toThrow(/housekeeping.everyMs must be a number above 0/);
      expect(() => make({ retentionMs: -1 })).toThrow(/housekeeping.retentionMs/);
      expect(() => make({ keyRetentionMs: Number.NaN })).toThrow(/housekeeping.keyRetentionMs/);
      expect(() => make({ archive: "s3://bucket" })).toThrow(/housekeeping.archive must be a function/);
      expect(() => make({ warn: { writer: 5 } })).toThrow(/housekeeping.warn has no option "writer"/);
      expect(() => make({ warn: { writerMs: "5" } })).toThrow(/housekeeping.warn.writerMs/);
      expect(() => make(true)).toThrow(/housekeeping/);
    }));
});
