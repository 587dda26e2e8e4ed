import type { Claim } from "../../src/contracts/outbox-store.ts";
import type { Sink } from "../../src/contracts/sink.ts";
import { type Clock, turn } from "../../src/core/clock.ts";
import { noFailpoints } from "../../src/core/failpoints.ts";
import { createProgress } from "../../src/core/progress.ts";
import { seededRandom } from "../../src/core/random.ts";
import { retrySchedule } from "../../src/core/retry.ts";
import { never } from "../../src/core/time.ts";
import { createWake } from "../../src/core/wake.ts";
import { createBreaker } from "../../src/relay/breaker.ts";
import type { FedWindow } from "../../src/relay/feed.ts";
import { createCrowd } from "../../src/relay/crowd.ts";
import { createOrder } from "../../src/relay/order.ts";
import type { Concluded } from "../../src/relay/parcel.ts";
import { createPublisher } from "../../src/relay/publish.ts";
import type { LifeParts } from "../../src/relay/parts.ts";
import type { Route } from "../../src/relay/route.ts";

export function claim(aggregateId: string, n: number, type = "T"): Claim {
  return {
    lane: 0,
    epoch: 1n,
    failures: 0,
    deaths: 0,
    envelope: {
      id: `${aggregateId}${n}`,
      seq: BigInt(n),
      aggregateType: "X",
      aggregateId,
      type,
      eventVersion: 1,
      data: Buffer.from(JSON.stringify({ n })),
      contentType: "application/json",
      headers: {},
      idempotencyKey: null,
      createdAt: new Date(0),
    },
  };
}

/** The publishing part of a relay. The test says when a window was claimed, and when what is known of it is durable. */
export function publishing({ sink, clock, route }: { readonly sink: Sink; readonly clock: Clock; readonly route: Route }) {
  const random = seededRandom(1);
  const order = createOrder();
  const trust = { ms: 10_000 };
  const changed = createWake();
  const observe = (): void => undefined;
  const breaker = createBreaker({
    clock,
    random,
    observe,
    probeMs: { first: 1, last: 1 },
    changed,
    topics: null,
    topicRecords: 32,
    crowd: createCrowd(clock, observe),
  });
  const known = new Map<FedWindow, Concluded[]>();
  const { take } = createPublisher({
    ...({} as LifeParts),
    feed: { payload: () => Promise.reject(new Error("nothing is unread")) },
    ...{
      sink,
      breaker,
      order,
      clock,
      route,
      topics: null,
      batch: 100,
      failpoints: noFailpoints,
      steps: createProgress(clock),
      source: "/",
    },
    ...{ publishTimeoutMs: 1_000, leaseMs: 1_000, observe, draining: never, stopping: never },
    policy: { retry: retrySchedule({}, random), skips: () => false },
    coordinator: { holding: { relay: "r", lanes: new Map([[0, 1n]]) }, trustedForMs: () => trust.ms } as never,
    track: (work) => void work,
    settle: async (window, concluded) => void known.get(window)!.push(...concluded),
  });
  let moment = 0;
  const claimed = (...claims: readonly Claim[]): FedWindow => {
    const window = { claims, asOf: ++moment };
    known.set(window, []);
    return window;
  };
  return {
    ...{ breaker, order, trust, claimed },
    /** What is known of each event once nothing is under way. */
    async publish(window: FedWindow): Promise<readonly string[]> {
      take(window);
      for (let turns = 0; turns < 20; turns++) await turn();
      const outcomes = new Map(known.get(window)!.map(({ parcel, outcome }) => [parcel.envelope.id, outcome.as]));
      return window.claims.map(({ envelope }) => outcomes.get(envelope.id) ?? "under way");
    },
    settled: (window: FedWindow) =>
      order.settled(
        known.get(window)!.flatMap(({ parcel, outcome }) => (outcome.as === "published" ? [] : [parcel])),
        ++moment,
      ),
  };
}
