import { setTimeout as sleep } from "node:timers/promises";
import type { Broker } from "./broker.ts";
import type { Crew, Relay } from "./crew.ts";
import type { Ground } from "./ground.ts";
import type { Step } from "./plan.ts";
import type { Troubles } from "./troubles.ts";

export interface NemesisParts {
  readonly ground: Ground;
  readonly broker: Broker;
  readonly crew: Crew;
  readonly troubles: Troubles;
  readonly topics: readonly string[];
  readonly window: number;
  readonly leaseMs: number;
  /** How many relays may have events in flight at once: all, or the leader. */
  readonly isLed: boolean;
}

export interface Nemesis {
  play(step: Step): Promise<void>;
  /** Resolves when everything that was begun is over, and all is well. */
  heal(): Promise<void>;
  /** A clean end; an alarm where it is not. */
  drain(relay: Relay): Promise<void>;
}

const mostRelays = 3;
const drainMs = 30_000;

export function createNemesis(parts: NemesisParts): Nemesis {
  const { ground, broker, crew, troubles, topics, window, leaseMs, isLed } = parts;
  const background = new Set<Promise<unknown>>();
  const meanwhile = (work: Promise<unknown>): void => {
    const tracked = work.catch((error: unknown) => troubles.alarm(String(error))).finally(() => background.delete(tracked));
    background.add(tracked);
  };
  const running = (): readonly Relay[] => crew.relays.filter(({ told, isFrozen }) => !told && !isFrozen);
  const chosen = (step: Step): Relay | undefined => running()[Math.floor(step.size * running().length)];
  const start = ({ mode }: Step): Relay => {
    const relay = crew.start(mode);
    troubles.note(`start ${relay.name}`);
    return relay;
  };
  const flying = (): number => window * (isLed ? 1 : Math.max(1, crew.relays.length));
  /** A SIGTERM before its handlers are there just ends a process. */
  const untilReady = async (relay: Relay): Promise<void> => {
    while (!relay.isReady && relay.ending === null) await sleep(20);
  };
  const drain = async (relay: Relay): Promise<void> => {
    await untilReady(relay);
    troubles.note(`drain ${relay.name}`);
    const kill = setTimeout(() => {
      troubles.alarm(`${relay.name} did not drain within ${drainMs} ms`);
      void relay.kill();
    }, drainMs);
    const ending = await relay.drain();
    clearTimeout(kill);
    troubles.note(`${relay.name} ended with ${ending}`);
  };
  const acts: Readonly<Record<Step["name"], (step: Step) => Promise<void>>> = {
    async switch(step) {
      const old = chosen(step);
      if (old !== undefined) await drain(old);
      start(step);
    },
    async roll(step) {
      const old = chosen(step);
      await untilReady(start(step));
      if (old !== undefined) await drain(old);
    },
    async join(step) {
      if (running().length < mostRelays) start(step);
    },
    async leave(step) {
      const old = chosen(step);
      if (old !== undefined && running().length > 1) await drain(old);
    },
    async kill(step) {
      const old = chosen(step);
      if (old !== undefined) {
        troubles.note(`kill ${old.name}`);
        const over = troubles.begin({ kind: "kill", relays: [old.name], copies: window }, 1_000);
        await old.kill();
        over();
      }
      await sleep(step.size * 1_000);
      start(step);
    },
    async freeze(step) {
      const old = chosen(step);
      if (old === undefined) return;
      await untilReady(old);
      if (running().length < 2) start(step);
      troubles.note(`freeze ${old.name}`);
      const over = troubles.begin({ kind: "freeze", relays: [old.name], copies: window }, leaseMs + 2_000);
      old.freeze();
      meanwhile(
        sleep(leaseMs * (1.2 + 1.5 * step.size)).then(() => {
          troubles.note(`thaw ${old.name}`);
          old.thaw();
          over();
        }),
      );
    },
    async crash() {
      troubles.note("the database crashes");
      const over = troubles.begin({ kind: "crash", relays: "all", copies: flying() }, 2 * leaseMs);
      await ground.server.restart("immediate");
      troubles.note("the database is back");
      over();
    },
    walsender: () => onSlots("walsender", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'walsender'"),
    slot: () =>
      onSlots(
        "slot",
        "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active",
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots",
      ),
    async outage({ illness, size }) {
      const topic = topics[Math.floor(size * topics.length)]!;
      troubles.note(`${topic} is ${illness}`);
      broker.set(topic, illness);
      meanwhile(
        sleep(500 + size * 3_500).then(() => {
          troubles.note(`${topic} is well`);
          broker.set(topic, null);
        }),
      );
    },
    async cut() {
      troubles.note("the broker breaks its connections");
      const over = troubles.begin({ kind: "cut", relays: "all", copies: flying() }, 1_000);
      broker.cut();
      over();
    },
  };

  /** Another reader of the slot may come between: then this time it stays. Where there is none, nothing happens. */
  const onSlots = async (kind: string, ...statements: readonly string[]): Promise<void> => {
    const slots = await ground.sql("SELECT 1 FROM pg_replication_slots").catch(() => []);
    if (slots.length === 0) return troubles.note(`${kind}: there is no slot`);
    const over = troubles.begin({ kind, relays: "all", copies: flying() }, 2 * leaseMs);
    let done = 0;
    for (const text of statements)
      done = await ground.sql(text).then(
        ({ length }) => length,
        () => 0,
      );
    troubles.note(`${kind}: ${done} ended`);
    over();
  };

  return {
    drain,
    play: (step) => acts[step.name](step),
    async heal() {
      while (background.size > 0) await Promise.all(background);
      for (const topic of topics) broker.set(topic, null);
    },
  };
}
