import { describe, expect, test } from "vitest";
import type { PathEvent } from "../../src/core/path-events.ts";
import { seededRandom } from "../../src/core/random.ts";
import { strategyNames } from "../../src/relay/lanes/strategies.ts";
import { LANES } from "../../src/core/lane.ts";
import { createRelay, type Relay, type RelayOptions } from "../../src/relay/create-relay.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";
import { benches, draft } from "../support/outbox.ts";
import { firstDeliveries, type Script, scriptedSink, type Verdict } from "../support/scripted-sink.ts";

const start = Date.UTC(2030, 0, 1);

interface Entry {
  readonly relay: Relay;
  dead: boolean;
  /** How many copies its death may cost. */
  readonly window: number;
  /** It does not take every lane that is free. */
  readonly picky: boolean;
}

/**
 * Relays come, crash, freeze and go while a broker fails in every way it can; then everything heals.
 * One seed decides all of it. With every other seed, relays of all strategies are mixed.
 */
async function run(seed: number, open: (typeof benches)[string]): Promise<void> {
  const clock = manualClock(start);
  const random = seededRandom(seed);
  const pick = <T>(values: readonly T[]): T => values[Math.floor(random.next() * values.length)]!;
  await using bench = await open(clock);
  const events: PathEvent[] = [];
  const added = new Map<string, number>();
  const mixed = seed % 2 === 0;
  let lostAfter = 0;
  let healed = false;
  let crashing = false;

  const odds = { refused: random.next() * 0.15, down: random.next() * 0.1, lost: random.next() * 0.1 };
  const broken = new Map<string, number>();
  const script: Script = {
    verdict({ topic }): Verdict {
      if (healed) return "stored";
      if ((broken.get(topic) ?? 0) > clock.monotonic()) return pick(["down", "lost-before"]);
      const roll = random.next();
      if (roll < odds.refused) return "refused";
      if (roll < odds.refused + odds.down) {
        broken.set(topic, clock.monotonic() + random.next() * 3_000);
        return "down";
      }
      const verdict = roll < odds.refused + odds.down + odds.lost ? pick(["lost-before", "lost-after"] as const) : "stored";
      if (verdict === "lost-after") lostAfter++;
      return verdict;
    },
    probe(topic) {
      if (!healed && (broken.get(topic) ?? 0) > clock.monotonic()) throw new Error("still broken");
    },
    async before(_batch, signal) {
      if (!healed && random.next() < 0.1) await clock.sleep(random.next() * 1_500, signal);
    },
  };
  const sink = scriptedSink(script);
  const never = new Promise<void>(() => undefined);
  const relays = new Set<Entry>();
  const startRelay = (coordination: RelayOptions["coordination"] = mixed ? pick(strategyNames) : "partitioned"): void => {
    const [batch, batchesInFlight] = [pick([1, 3, 10, 50]), pick([1, 2, 3, 4])];
    const own = Array.from({ length: LANES }, (_, lane) => lane).filter(() => mixed && random.next() < 0.4);
    const entry = { dead: false, window: batch * batchesInFlight, picky: coordination === "static" } as {
      -readonly [K in keyof Entry]: Entry[K];
    };
    const mortal = <T extends object>(part: T): T =>
      new Proxy(part, {
        get: (target, name) => {
          const call = Reflect.get(target, name) as (...values: unknown[]) => Promise<unknown>;
          return (...values: unknown[]) => (entry.dead ? never : call(...values).then((result) => (entry.dead ? never : result)));
        },
      });
    entry.relay = createRelay({
      store: { ...bench.store, outbox: mortal(bench.store.outbox), leases: mortal(bench.store.leases) },
      sink: { ...sink, publish: (batch, signal) => (entry.dead ? never.then(() => []) : sink.publish(batch, signal)) },
      clock,
      random,
      batch,
      batchesInFlight,
      coordination,
      ...(coordination === "static" ? { own } : {}),
      pollIntervalMs: pick([20, 100]),
      leaseMs: 2_000,
      retry: { delaysMs: [100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600] },
      probeMs: { first: 50, last: 500 },
      observe: (event) => void events.push(event),
      failpoints: {
        // A dead relay stops where it stands: nothing it waits for ever comes.
        hit: () => {
          if (!entry.dead && crashing && random.next() < 0.2) entry.dead = true;
          return entry.dead ? never : undefined;
        },
      },
    });
    relays.add(entry);
    void entry.relay.start().catch(() => undefined);
  };
  const alive = (): Entry[] => [...relays].filter(({ dead }) => !dead);

  startRelay();
  for (let step = 0; step < 60; step++) {
    const drafts = Array.from({ length: Math.floor(random.next() * 6) }, () => {
      const aggregate = `o-${Math.floor(random.next() ** 2 * 12)}`;
      const n = (added.get(aggregate) ?? 0) + 1;
      added.set(aggregate, n);
      return draft(aggregate, n, { aggregateType: aggregate.endsWith("1") ? "Slow" : "Order" });
    });
    if (drafts.length > 0) await bench.add(...drafts);
    crashing = random.next() < 0.15;
    await clock.advance(random.next() * 400);
    crashing = false;
    const roll = random.next();
    if (roll < 0.1 && relays.size < 12) startRelay();
    else if (roll < 0.15 && alive().length > 1) await stop(pick(alive()));
  }
  async function stop(entry: Entry): Promise<void> {
    relays.delete(entry);
    const drained = entry.relay.drain();
    await clock.advance(3_000);
    await drained;
  }

  healed = true;
  if (alive().every(({ picky }) => picky)) startRelay(pick(["partitioned", "leader", "competing"]));
  const total = [...added.values()].reduce((sum, n) => sum + n, 0);
  for (let waited = 0; waited < 120_000; waited += 1_000) {
    const { states, holds } = await bench.operator.status();
    if (states.PUBLISHED === total && holds.aggregates === 0) break;
    await clock.advance(1_000);
  }
  const { states, holds, window } = await bench.operator.status();
  expect(states, `seed ${seed}`).toMatchObject({ PUBLISHED: total, PENDING: 0, FAILED: 0, BLOCKED: 0, DEAD: 0 });
  expect(holds.aggregates, `seed ${seed}: holds left`).toBe(0);
  expect(window.suspects, `seed ${seed}: suspects left`).toBe(0);
  const faults = [...relays].filter(({ dead }) => dead).reduce((sum, { window: size }) => sum + size, lostAfter);
  expect(sink.log.length - total, `seed ${seed}: copies`).toBeLessThanOrEqual(faults);
  const orders = firstDeliveries(sink.log);
  for (const [aggregate, count] of added) {
    const key = [...orders.keys()].find((name) => name.endsWith(`\0${aggregate}`));
    expect(orders.get(key ?? ""), `seed ${seed}: order of ${aggregate}`).toEqual(Array.from({ length: count }, (_, i) => i + 1));
  }
  for (const entry of relays) if (!entry.dead) await stop(entry);
}

const seeds = Number(process.env["WAYBILL_SEEDS"] ?? 8);
const first = Number(process.env["WAYBILL_SEED"] ?? 1);

describe.each(Object.keys(benches))("%s: under crashes, hand-overs and a failing broker", (name) => {
  test("no event is lost, each aggregate's first deliveries are in order, nothing stays held", { timeout: 600_000 }, async () => {
    for (let seed = first; seed < first + seeds; seed++) await run(seed, benches[name]!);
  });
});
