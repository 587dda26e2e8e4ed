import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { Store } from "../../src/contracts/store.ts";
import type { Clock } from "../../src/core/clock.ts";
import { LANES } from "../../src/core/lane.ts";
import type { PathEvent } from "../../src/core/path-events.ts";
import { createRelay } from "../../src/relay/create-relay.ts";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { defaultDriver } from "../../src/drivers/sqlite/driver.ts";
import { memory } from "../../src/stores/memory/index.ts";
import { sqlite } from "../../src/stores/sqlite/index.ts";
import { manualClock, type ManualClock } from "../../src/testing/manual-clock.ts";
import { draft } from "../support/outbox.ts";
import { firstDeliveries, scriptedSink, type ScriptedSink } from "../support/scripted-sink.ts";

const hour = 3_600_000;
const leaseMs = 1_000;
const never = new Promise<never>(() => undefined);

interface Scene {
  readonly clock: ManualClock;
  readonly sink: ScriptedSink;
  readonly events: PathEvent[];
  /** Sets the wall clock forward, or back. */
  step(ms: number): void;
  /** Each is what one process would have. */
  open(): Store<never>;
  /** Started, with its file open: that takes real time. */
  relay(name: string): Promise<{ die(): void }>;
  add(count: number): Promise<void>;
  /** Lanes of the relay of this name. */
  owned(name: string): Promise<number>;
}

type Opened = { open(): Store<never>; add: (drafts: readonly ReturnType<typeof draft>[]) => Promise<unknown>; close(): Promise<void> };

const stores: Readonly<Record<string, (clock: Clock) => Promise<Opened>>> = {
  memory: async (clock) => {
    const store = memory({ clock });
    const outbox = createOutbox({ store, clock });
    return {
      open: () => store as unknown as Store<never>,
      add: (drafts) => outbox.transaction(store.db, (tx) => outbox.add(tx, drafts)),
      close: async () => store[Symbol.asyncDispose](),
    };
  },
  sqlite: async (clock) => {
    const folder = mkdtempSync(join(existsSync("/dev/shm") ? "/dev/shm" : tmpdir(), "waybill-"));
    const path = join(folder, "app.db");
    const opened = [sqlite({ path, clock })];
    await opened[0]!.schema.migrate();
    const db = (await defaultDriver())(path);
    const outbox = createOutbox({ store: opened[0]!, clock });
    return {
      open: () => {
        const store = sqlite({ path, clock });
        opened.push(store);
        return store as unknown as Store<never>;
      },
      add: (drafts) => outbox.transaction(db, (tx) => outbox.add(tx, drafts)),
      close: async () => {
        for (const store of opened) await store[Symbol.asyncDispose]();
        db.close();
        rmSync(folder, { recursive: true });
      },
    };
  },
};

async function scene(create: (clock: Clock) => Promise<Opened>, work: (scene: Scene) => Promise<void>): Promise<void> {
  const manual = manualClock(Date.UTC(2030, 0, 1));
  let shift = 0;
  const clock: Clock = {
    now: () => manual.now() + shift,
    monotonic: () => manual.monotonic(),
    sleep: (ms, signal) => manual.sleep(ms, signal),
  };
  const opened = await create(clock);
  const sink = scriptedSink();
  const events: PathEvent[] = [];
  const stops: (() => Promise<void>)[] = [];
  let added = 0;
  const watcher = opened.open();
  await work({
    clock: manual,
    sink,
    events,
    step: (ms) => void (shift += ms),
    open: () => opened.open(),
    async relay(name) {
      const store = opened.open();
      let dead = false;
      const mortal = <P extends object>(part: P): P =>
        new Proxy(part, {
          get: (target, key) => {
            const call = Reflect.get(target, key) as (...values: unknown[]) => Promise<unknown>;
            return (...values: unknown[]) => (dead ? never : call(...values));
          },
        });
      const relay = createRelay({
        store: { ...store, leases: mortal(store.leases), outbox: mortal(store.outbox) },
        sink,
        clock,
        relayId: name,
        leaseMs,
        pollIntervalMs: 20,
        observe: (event) => void events.push(event),
      });
      await relay.start();
      stops.push(() => relay.stop());
      return { die: () => void (dead = true) };
    },
    async add(count) {
      await opened.add(Array.from({ length: count }, () => draft(`o-${added % 100}`, Math.floor(added++ / 100) + 1)));
    },
    owned: async (name) => (await watcher.leases.look()).lanes.filter(({ owner }) => owner?.startsWith(`${name}:`)).length,
  });
  const stopped = Promise.all(stops.map((stop) => stop()));
  await manual.advance(2_000);
  await stopped;
  await opened.close();
}

describe.each(Object.entries(stores))("%s: a wall clock", (name, create) => {
  test("that steps back an hour keeps no dead relay's lanes, from those who knew it", () =>
    scene(create, async ({ clock, relay, step, owned }) => {
      const doomed = await relay("doomed");
      await relay("heir");
      await clock.advance(1_000);
      expect(await owned("doomed")).toBe(32);
      doomed.die();
      step(-hour);
      await clock.advance(2 * leaseMs);
      expect(await owned("heir")).toBe(LANES);
    }));

  test("that stepped back an hour keeps no dead relay's lanes from one that starts later", () =>
    scene(create, async ({ clock, relay, step, owned, open }) => {
      const died = await relay("dead");
      await clock.advance(1_000);
      expect(await owned("dead")).toBe(LANES);
      died.die();
      await clock.advance(100);
      step(-hour);
      const { relays } = await open().operator.status();
      if (name === "sqlite")
        expect(
          relays.map(({ live }) => live),
          "status does not call it live",
        ).toEqual([false]);
      await relay("heir");
      await clock.advance(1.2 * leaseMs);
      expect(await owned("heir")).toBe(LANES);
    }));

  test.each([-hour, hour, -400, 400, -1_500, 1_500])("that steps by %d ms takes no lane from a live relay, again and again", (ms) =>
    scene(create, async ({ clock, relay, step, owned, events, sink, add }) => {
      await relay("a");
      await clock.advance(150);
      await relay("b");
      await clock.advance(1_000);
      let sent = 0;
      for (let steps = 0; steps < 6; steps++) {
        await add(100);
        await clock.advance(40); // seen by all since the last renewal, as nearly all are
        step(ms);
        await clock.advance(470);
        sent += 100;
      }
      await clock.advance(1_000);
      const lost = events.filter(({ type }) => type === "lanes.lost");
      expect(await owned("a")).toBe(32);
      expect(await owned("b")).toBe(32);
      for (const [aggregate, order] of firstDeliveries(sink.log)) expect(order, aggregate).toEqual([1, 2, 3, 4, 5, 6]);
      expect(lost).toEqual([]);
      expect(sink.log).toHaveLength(sent);
    }),
  );

  test("that steps forward just after a renewal that nobody has seen takes no lane from the one that lives", () =>
    scene(create, async ({ clock, relay, step, owned, events, sink, add }) => {
      await relay("a");
      await clock.advance(1_000);
      await add(300);
      await clock.advance(5);
      step(hour);
      await relay("b"); // has seen nothing before the step
      await clock.advance(2_000);
      expect([await owned("a"), await owned("b")]).toEqual([32, 32]);
      await add(100);
      await clock.advance(1_000);
      for (const [aggregate, order] of firstDeliveries(sink.log)) expect(order, aggregate).toEqual([1, 2, 3, 4]);
      expect(sink.log).toHaveLength(400);
      expect(events.filter(({ type }) => type === "lanes.lost")).toEqual([]);
    }));

  test("that stepped forward takes no seat from a live subscriber, and keeps a dead one's for no more than half its time", () =>
    scene(create, async ({ clock, step, open }) => {
      const [one, two] = [open().inbox, open().inbox];
      const seat = { consumer: "billing", topic: "order.events" };
      expect(await one.sit({ ...seat, owner: "p1" }, 900)).toBe(true);
      step(hour);
      expect(await two.sit({ ...seat, owner: "p2" }, 900), "it has seen nothing before the step").toBe(false);
      await clock.advance(300);
      expect(await one.sit({ ...seat, owner: "p1" }, 900)).toBe(true);
      step(hour);
      expect(await two.sit({ ...seat, owner: "p2" }, 900)).toBe(false);
      await clock.advance(900);
      expect(await two.sit({ ...seat, owner: "p2" }, 900)).toBe(true);
    }));

  test("that steps back keeps no dead subscriber's seat, and takes none from a live one", () =>
    scene(create, async ({ clock, step, open }) => {
      const [one, two] = [open().inbox, open().inbox];
      const seat = { consumer: "billing", topic: "order.events" };
      expect(await one.sit({ ...seat, owner: "p1" }, 900)).toBe(true);
      expect(await two.sit({ ...seat, owner: "p2" }, 900)).toBe(false);
      step(-hour);
      for (let renewals = 0; renewals < 6; renewals++) {
        await clock.advance(300);
        expect(await one.sit({ ...seat, owner: "p1" }, 900)).toBe(true);
        expect(await two.sit({ ...seat, owner: "p2" }, 900)).toBe(false);
      }
      step(-hour);
      await clock.advance(300);
      expect(await two.sit({ ...seat, owner: "p2" }, 900)).toBe(false);
      await clock.advance(900);
      expect(await two.sit({ ...seat, owner: "p2" }, 900)).toBe(true);
      expect(await one.sit({ ...seat, owner: "p1" }, 900)).toBe(false);
    }));
});
