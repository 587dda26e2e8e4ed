import { expect } from "vitest";
import type { Status } from "../../../src/contracts/operator.ts";
import { systemClock } from "../../../src/core/clock.ts";
import type { PathEvent } from "../../../src/core/path-events.ts";
import { createRelay } from "../../../src/relay/create-relay.ts";
import { memory } from "../../../src/stores/memory/index.ts";
import { createSubscriber } from "../../../src/subscriber/subscriber.ts";
import { type Bench, benches, draft } from "../../support/outbox.ts";
import { byAggregate, changeOf, firsts, pause, type Change } from "./changes.ts";
import { freshType, type Broker, type Reach, type Subject } from "./subject.ts";

export interface Scene extends AsyncDisposable {
  readonly topic: string;
  readonly bench: Bench;
  readonly sink: Broker;
  readonly events: readonly PathEvent[];
  add(aggregate: string, more?: object): Promise<void>;
  /** Adds until it is ended, which resolves when the last is committed. It waits while it is `ahead` events ahead of the effects. */
  load(): { end(): Promise<void> };
  readonly added: readonly Change[];
  effects(): readonly Change[];
  stored(): Promise<readonly Change[]>;
  status(): Promise<Status>;
  /** Until so many effects are there, all at work. */
  warm(effects: number, withinMs?: number): Promise<void>;
  /** Until the outage is to be seen; nothing may have been spent on it. Resolves with the moment, by the monotonic clock. */
  seen(why?: RegExp): Promise<number>;
  /** Until no breaker is open. */
  healed(): Promise<void>;
  /** Until everything is published and has had its effect. */
  done(): Promise<void>;
  /**
   * In the topic as a raw client reads it, and in the effects: all that was added, each aggregate in order, and not more copies than so
   * many faults allow, each of something whose fate the relay was not told. A broker that is slow by itself is a fault too: the relay tells.
   */
  judge(faults: number): Promise<void>;
}

/** More than is on its way at any time. A backlog without a bound would grow with the time that a server takes to start. */
const ahead = 1_500;
/** On a busy machine a server takes half a minute to start. What comes true is seen at once. */
const patienceMs = 60_000;
const batch = 40;
const batchesInFlight = 2;
const orders = Array.from({ length: 15 }, (_, i) => `order-${i}`);

/** SQLite → relay → broker → subscriber, with short waits. */
export async function openScene(
  subject: Subject,
  reach: Reach,
  { aggregateType, topic }: ReturnType<typeof freshType> = freshType(),
): Promise<Scene> {
  await subject.provision(reach.url, [topic, `${topic}.dead`], ["shop"]);
  const bench = await benches["sqlite"]!(systemClock);
  const inbox = memory();
  const events: PathEvent[] = [];
  const observe = (event: PathEvent): void => void events.push(event);
  const [sink, source] = [reach.open(), reach.open()];
  let unheard = 0;
  const counted = Object.assign(Object.create(sink) as Broker, {
    async publish(...[messages, signal]: Parameters<Broker["publish"]>) {
      const results = await sink.publish(messages, signal);
      unheard += signal.aborted ? messages.length : results.filter(({ status }) => status === "unknown").length;
      return results;
    },
  });
  const relay = createRelay({
    ...{ store: bench.store, sink: counted, batch, batchesInFlight, pollIntervalMs: 10, leaseMs: 4_000, publishTimeoutMs: 1_500 },
    ...{ probeMs: { first: 100, last: 500 }, housekeeping: false as const, observe },
  });
  const subscriber = createSubscriber({
    ...{ consumer: "shop", source, inbox, topics: [topic], prefetch: 64, observe },
    handlers: {
      Changed(event, tx) {
        const effects = tx.table<number, Change>("effects");
        effects.set(effects.size, { aggregate: event.aggregateId, n: (event.payload as Change).n });
      },
    },
  });
  await relay.start();
  await subscriber.start();

  const added: Change[] = [];
  const counts = new Map<string, number>();
  const add = async (aggregate: string, more: object = {}): Promise<void> => {
    const n = (counts.get(aggregate) ?? 0) + 1;
    await bench.add(draft(aggregate, n, { aggregateType, payload: { n, ...more } }));
    counts.set(aggregate, n);
    added.push({ aggregate, n });
  };
  let on = false;
  let working = Promise.resolve();
  const end = async (): Promise<void> => {
    on = false;
    await working;
  };
  const effects = (): readonly Change[] => [...inbox.db.table<number, Change>("effects").values()];
  const stored = async (): Promise<readonly Change[]> => (await subject.stored(reach.url, topic)).map(changeOf);
  const status = (): Promise<Status> => bench.operator.status();

  return {
    ...{ topic, bench, sink, events, add, added, effects, stored, status },
    load() {
      on = true;
      working = (async () => {
        while (on) {
          if (added.length - inbox.db.table("effects").size < ahead) for (const aggregate of orders) await add(aggregate);
          await pause(20);
        }
      })();
      return { end };
    },
    warm: (count, timeout = patienceMs) => expect.poll(() => effects().length, { timeout, interval: 50 }).toBeGreaterThanOrEqual(count),
    async seen(why = /./) {
      const waiting = async (): Promise<string> => {
        const { breakers } = await status();
        return breakers.find(({ destination }) => destination === topic)?.why ?? "";
      };
      await expect.poll(waiting, { timeout: patienceMs, interval: 50 }).toMatch(why);
      const moment = performance.now();
      for (const { retryCount } of await bench.operator.list({ limit: 10_000 })) expect(retryCount).toBe(0);
      return moment;
    },
    healed: () => expect.poll(async () => (await status()).breakers, { timeout: patienceMs, interval: 50 }).toEqual([]),
    async done() {
      const left = async (): Promise<number> => added.length - Math.min((await status()).states.PUBLISHED, effects().length);
      await expect.poll(left, { timeout: 2 * patienceMs, interval: 100 }).toBe(0);
    },
    async judge(faults) {
      const log = await stored();
      expect(byAggregate(firsts(log))).toEqual(byAggregate(added));
      const copies = log.length - added.length;
      expect(copies).toBeLessThanOrEqual(subject.dedupes ? 0 : unheard);
      const openings = events.filter(({ type }) => type === "destination.opened").length;
      expect(copies).toBeLessThanOrEqual(Math.max(faults, openings) * batch * batchesInFlight);
      expect(byAggregate(effects())).toEqual(byAggregate(added));
      const { states, holds, breakers } = await status();
      expect(states).toMatchObject({ PUBLISHED: added.length, PENDING: 0, FAILED: 0, BLOCKED: 0, DEAD: 0 });
      expect({ aggregates: holds.aggregates, breakers }).toEqual({ aggregates: 0, breakers: [] });
      const broken = ["relay.failed", "relay.died", "subscriber.failed", "subscriber.died"];
      expect(events.filter(({ type }) => broken.includes(type))).toEqual([]);
    },
    async [Symbol.asyncDispose]() {
      await end();
      await Promise.all([relay.stop(), subscriber.stop()]);
      await Promise.all([sink[Symbol.asyncDispose](), source[Symbol.asyncDispose]()]);
      await bench[Symbol.asyncDispose]();
    },
  };
}
