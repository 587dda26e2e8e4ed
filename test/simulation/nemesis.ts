import type { Failpoint } from "../../src/core/failpoints.ts";
import { consumerName, type Crew, type Slot } from "./crew.ts";
import type { Process } from "./scheduler.ts";
import { picker, type Fault } from "./plan.ts";
import type { RelayLife } from "./relays.ts";
import type { Server } from "./server.ts";
import { topicsOf, type SubscriberLife } from "./subscribers.ts";
import { startWriter } from "./writers.ts";
import type { World } from "./world.ts";

interface Nemesis {
  /** Ends whatever goes on. */
  heal(): void;
}

/** Plays the schedule. Every fault is written down when it begins and when it has ended, with what it may cost. */
export function startNemesis(world: World, crew: Crew): Nemesis {
  const { plan, scheduler, store, inbox, broker } = world;
  const { leaseMs } = plan.knobs;
  const ending = new Set<() => void>();
  let healed = false;

  /** Until `ms` have passed, or all heals. */
  const during = (ms: number, end: () => void): void => {
    const once = (): void => {
      if (ending.delete(once)) end();
    };
    ending.add(once);
    scheduler.after(ms, once);
  };
  const of = <Life>(slots: readonly Slot<Life>[], target: number): Slot<Life> => slots[target % slots.length]!;
  /** What keeps relays from the store for long may cost each of them its lanes. */
  const fromStore = (ms: number): number => (ms > leaseMs / 4 ? crew.windows() : 0);

  const crash = (slot: Slot<{ readonly process: Process }>, window: number, ms: number): void => {
    const { life } = slot;
    if (life === null) return;
    const end = world.fault("crash", life.process.name, window, "all");
    life.process.crash();
    slot.life = null;
    during(ms, () => {
      slot.start();
      end();
    });
  };
  const crashAt = (slot: Slot<RelayLife> | Slot<SubscriberLife>, at: Failpoint, window: number, ms: number): void => {
    const { life } = slot;
    if (life === null || life.crashAt !== null) return;
    life.crashAt = at;
    life.process.onCrash(() => {
      if (slot.life !== life) return;
      slot.life = null;
      const end = world.fault(`crash-${at}`, life.process.name, window, "all");
      during(healed ? 0 : ms, () => {
        slot.start();
        end();
      });
    });
  };
  const pause = (process: Process, copies: number, ms: number): void => {
    if (healed) return;
    const end = world.fault("pause", process.name, copies, "all");
    process.pause(ms);
    during(ms, () => {
      process.resume();
      end();
    });
  };
  const leave = (slot: Slot<{ readonly process: Process }>, drain: () => Promise<void>, ms: number): void => {
    const { life } = slot;
    const end = world.fault("leave", life?.process.name ?? "nobody", 0, "all");
    slot.life = null;
    void drain();
    during(ms, () => {
      slot.start();
      end();
    });
  };
  const clockJumps = (process: Process | undefined, ms: number, target: number): void => {
    world.fault("clock-jump", process?.name ?? "nobody", 0, { topics: [] })();
    process?.jump((target % 2 === 0 ? 1 : -1) * ms * 60);
  };
  const condition = (
    name: string,
    target: string,
    server: Server,
    copies: number,
    ms: number,
    change: Partial<Server["conditions"]>,
  ): void => {
    const end = world.fault(name, target, copies, "all");
    const { conditions } = server;
    conditions.down += change.down ?? 0;
    Object.assign(conditions, { ...change, down: conditions.down });
    if (change.down !== undefined) server.cut();
    during(ms, () => {
      conditions.down -= change.down ?? 0;
      for (const key of ["slowMs", "loseRequest", "loseAnswer"] as const) if (change[key] !== undefined) conditions[key] = 0;
      end();
    });
  };
  const restart = (target: string, database: typeof store, copies: number): void => {
    world.fault("restart", target, copies, "all")();
    database.server.cut();
    database.database.restart();
  };
  const mood = (name: string, key: "nack" | "cut", odds: number, ms: number): void => {
    const end = world.fault(name, "broker", 0, "all");
    broker.moods[key] = odds;
    during(ms, () => {
      broker.moods[key] = 0;
      end();
    });
  };

  const strike = ([, fault, target, ms]: Fault): void => {
    const relay = of(crew.relays, target);
    const subscriber = of(crew.subscribers, target);
    const window = relay.life?.window ?? 0;
    const odds = 0.1 + (target / 8) * 0.5;
    switch (fault) {
      case "relay-crash":
        return crash(relay, window, ms);
      case "relay-pause":
        if (relay.life !== null) pause(relay.life.process, ms > leaseMs / 4 ? window : 0, ms);
        return;
      case "relay-leave":
        if (relay.life !== null) leave(relay, relay.life.relay.drain, ms);
        return;
      case "relay-join":
        if (crew.relays.length < 6) crew.joinRelay();
        return;
      case "relay-hang":
        if (relay.life === null) return;
        // It never comes back: whatever it holds must go to others, and somebody else must be there.
        world.fault("hang", relay.life.process.name, window, "all")();
        store.server.hanging.add(relay.life.process);
        if (crew.relays.length < 6) crew.joinRelay();
        return;
      case "relay-clock":
        return clockJumps(relay.life?.process, ms, target);
      case "subscriber-crash":
        return crash(subscriber, 0, ms);
      case "subscriber-pause":
        if (subscriber.life !== null) pause(subscriber.life.process, 0, ms);
        return;
      case "subscriber-leave":
        if (subscriber.life !== null) leave(subscriber, subscriber.life.service.drain, ms);
        return;
      case "subscriber-join":
        if (crew.subscribers.length < 6) crew.joinSubscriber(target % plan.knobs.subscribers.length);
        return;
      case "subscriber-clock":
        return clockJumps(subscriber.life?.process, ms, target);
      case "writer-crash": {
        const index = target % crew.writers.length;
        world.fault("crash", crew.writers[index]!.process.name, 0, { topics: [] })();
        crew.writers[index]!.process.crash();
        crew.writers[index] = startWriter(world, `writer-${index}.${Math.round(scheduler.now)}`);
        return;
      }
      case "store-down":
        store.database.restart();
        return condition(fault, "store", store.server, fromStore(ms), ms, { down: 1 });
      case "store-lossy":
        return condition(fault, "store", store.server, fromStore(ms), ms, target % 2 === 0 ? { loseAnswer: odds } : { loseRequest: odds });
      case "store-slow":
        return condition(fault, "store", store.server, crew.windows(), ms, { slowMs: 50 + target * 100 });
      case "store-restart":
        return restart("store", store, 0);
      case "store-failover":
        return failOver(ms);
      case "inbox-down":
        inbox.database.restart();
        return condition(fault, "inbox", inbox.server, 0, ms, { down: 1 });
      case "inbox-lossy":
        return condition(fault, "inbox", inbox.server, 0, ms, target % 2 === 0 ? { loseAnswer: odds } : { loseRequest: odds });
      case "inbox-restart":
        return restart("inbox", inbox, 0);
      case "broker-down":
        return condition(fault, "broker", broker.server, 0, ms, { down: 1 });
      case "broker-lossy":
        return condition(fault, "broker", broker.server, 0, ms, target % 2 === 0 ? { loseAnswer: odds } : { loseRequest: odds });
      case "broker-slow":
        return condition(fault, "broker", broker.server, 0, ms, { slowMs: 50 + target * 200 });
      case "broker-nacks":
        return mood(fault, "nack", odds, ms);
      case "broker-cuts":
        return mood(fault, "cut", odds, ms);
      case "broker-redelivers":
        world.fault(fault, "broker", 0, { topics: [] })();
        for (let consumer = 0; consumer < plan.knobs.subscribers.length; consumer++)
          broker.redeliver(`consumer-${consumer}`, () => world.random(`redelivery at ${scheduler.now}`).next());
        return;
      case "topic-refused": {
        const topics = topicsOf(world);
        const topic = topics[target % topics.length]!;
        const end = world.fault(fault, topic, 0, { topics: [topic] });
        const { refused } = broker.moods;
        refused.set(topic, (refused.get(topic) ?? 0) + 1);
        return during(ms, () => {
          refused.set(topic, refused.get(topic)! - 1);
          end();
        });
      }
      case "redrive":
      case "discard":
        void operate(fault, target);
        return;
      case "redrive-letters":
        void redriveLetters(consumerName(target % plan.knobs.subscribers.length), target);
        return;
      case "purge":
        void operator.purge(new Date(by.clock.now() - ms), { who: "nemesis", dryRun: false }).catch(() => undefined);
        return;
      case "crash-before-handle":
      case "crash-before-commit":
      case "crash-after-effect":
      case "crash-after-ack":
        return crashAt(subscriber, fault.slice("crash-".length) as Failpoint, 0, ms);
      case "pause-after-claim":
      case "pause-before-publish":
      case "pause-after-publish":
      case "pause-before-settle": {
        const { life } = relay;
        if (life === null) return;
        // Past its lease, with somebody there to take over.
        const past = ms + leaseMs * 1.2;
        life.pauseAt = { at: fault.slice("pause-".length) as Failpoint, pause: () => pause(life.process, window, past) };
        if (crew.relays.length < 2) crew.joinRelay();
        return;
      }
      case "crash-after-claim":
      case "crash-before-publish":
      case "crash-after-publish":
      case "crash-before-settle":
      case "crash-after-settle":
      case "crash-before-renew":
        return crashAt(relay, fault.slice("crash-".length) as Failpoint, window, ms);
    }
  };

  const by = scheduler.process("operator");
  const heard = {
    operated: (action: "redrive" | "discard", ids: readonly string[], consumer?: string) =>
      world.record(by, "ok", { op: "operate", action, ids, ...(consumer !== undefined && { consumer }) }),
  };
  const { operator } = store.open(by, heard);
  const { letters } = inbox.open(by, heard);
  /** One of the dead, or all. */
  const operate = async (action: "redrive" | "discard", target: number): Promise<void> => {
    const dead = await operator.list({ state: "DEAD", limit: 10 }).catch(() => []);
    const filter = target % 2 === 0 || dead.length === 0 ? {} : { ids: [picker(world.random(`operator at ${target}`))(dead).id] };
    await operator[action](filter, { who: "nemesis", dryRun: false }).catch(() => undefined);
  };

  /** One of a consumer's letters, or all. */
  const redriveLetters = async (consumer: string, target: number): Promise<void> => {
    const kept = await letters.list({ consumer, limit: 10 }).catch(() => []);
    const ids = target % 4 < 2 || kept.length === 0 ? {} : { ids: [picker(world.random(`letters at ${scheduler.now}`))(kept).id] };
    await letters.redrive({ consumer, ...ids }, { who: "nemesis", dryRun: false }).catch(() => undefined);
  };

  /** From now on the replica gets nothing more; after `ms` it takes over, and what it has not got is gone. */
  const failOver = (ms: number): void => {
    const replica = store.database.copy();
    const lagMs = Math.min(ms, 1_500);
    scheduler.after(lagMs, () => {
      if (healed) return;
      const { events } = store.database.image.tables;
      let forgotten = 0;
      for (const [seq, { status }] of replica.tables.events)
        if (status !== "PUBLISHED" && events.get(seq)?.status === "PUBLISHED") forgotten++;
      for (const [seq, { status }] of replica.tables.events) if (status === "PUBLISHED" && !events.has(seq)) forgotten++;
      world.fault("failover", "store", forgotten + crew.windows(), "all")();
      store.server.cut();
      store.failOver(replica);
    });
  };

  for (const fault of plan.faults) scheduler.after(fault[0], () => strike(fault));
  return {
    heal() {
      healed = true;
      for (const end of [...ending]) end();
      broker.moods.forgiving = true;
      for (const slot of [...crew.relays, ...crew.subscribers]) if (slot.life === null) slot.start();
      // Whoever hangs may be all there is.
      crew.joinRelay();
      world.fault("heal", "everything", 0, "all");
    },
  };
}
