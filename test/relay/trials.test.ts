import { describe, expect, test } from "vitest";
import type { Claim } from "../../src/contracts/outbox-store.ts";
import { noFailpoints } from "../../src/core/failpoints.ts";
import { seededRandom } from "../../src/core/random.ts";
import { retrySchedule } from "../../src/core/retry.ts";
import { createWake } from "../../src/core/wake.ts";
import { createBreaker } from "../../src/relay/breaker.ts";
import type { FedWindow, Part } from "../../src/relay/feed.ts";
import { createPublisher } from "../../src/relay/publisher.ts";
import { createProgress } from "../../src/core/progress.ts";
import { createStops } from "../../src/relay/stops.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";
import { scriptedSink } from "../support/scripted-sink.ts";

const never = new AbortController().signal;
const none = { draining: never, stopping: never };
const clock = manualClock(Date.UTC(2030, 0, 1));

test("a topic that is on trial with an event from elsewhere stays so, though nothing waits for it in the store", () => {
  const told: string[] = [];
  const breaker = createBreaker({
    ...{ clock, random: seededRandom(1), firstProbeMs: 1, lastProbeMs: 1, changed: createWake() },
    observe: ({ type }) => void told.push(type),
  });
  breaker.failed("late", "e1", new Error("away"), false);
  expect(breaker.probed("late")).toBe(true);
  expect(breaker.admit("late", "e2"), "its trial").toBe(true);
  breaker.released("late");
  expect(breaker.admit("late", "e3")).toBe(false);
  expect(told).toEqual(["destination.opened"]);
});

/** A publisher whose topic `late` was away, and is on trial. An event's type is its topic; what goes to `bad` is refused. */
function onTrial() {
  const sink = scriptedSink({ verdict: ({ topic }) => (topic === "bad" ? "refused" : "stored") });
  const random = seededRandom(1);
  const stops = createStops();
  const trust = { ms: 10_000 };
  const breaker = createBreaker({
    clock,
    random,
    observe: () => undefined,
    firstProbeMs: 1,
    lastProbeMs: 1,
    changed: createWake(),
  });
  const publisher = createPublisher({
    outbox: { payload: () => Promise.reject(new Error("nothing is unread")) },
    sink,
    breaker,
    stops,
    clock,
    failpoints: noFailpoints,
    steps: createProgress(clock),
    source: "/",
    route: ({ type }) => type,
    publishTimeoutMs: 1_000,
    readTimeoutMs: 1_000,
    policy: { retry: retrySchedule({}, random), skips: () => false },
    coordinator: { holding: { relay: "r", lanes: new Map([[0, 1n]]) }, trustedForMs: () => trust.ms } as never,
  });
  const publish = async (...claims: readonly Claim[]): Promise<readonly string[]> => {
    const part: Part = { window: { claims } as unknown as FedWindow, claims, claimedAt: stops.tick() };
    const { outcomes } = await publisher.publish(part, none);
    stops.settled(part);
    return outcomes.map(({ as }) => as);
  };
  breaker.failed("late", "before", new Error("away"), false);
  breaker.probed("late");
  return { sink, trust, publish };
}

function claim(aggregateId: string, n: number, topic: string): Claim {
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
      type: topic,
      eventVersion: 1,
      data: Buffer.from(JSON.stringify({ n })),
      contentType: "application/json",
      headers: {},
      idempotencyKey: null,
      createdAt: new Date(0),
    },
  };
}

describe("a trial whose event was not sent is the next event's", () => {
  test("when the event before it was refused, on another topic", async () => {
    const { sink, publish } = onTrial();
    expect(await publish(claim("a", 1, "bad"), claim("a", 2, "late"))).toEqual(["retry", "returned"]);
    expect(await publish(claim("b", 3, "late"))).toEqual(["published"]);
    expect(sink.sent).toEqual(["a1", "b3"]);
  });

  test("when the lease could not be trusted any more", async () => {
    const { sink, trust, publish } = onTrial();
    trust.ms = 0;
    expect(await publish(claim("a", 1, "late"))).toEqual(["returned"]);
    trust.ms = 10_000;
    expect(await publish(claim("b", 2, "late"))).toEqual(["published"]);
    expect(sink.sent).toEqual(["b2"]);
  });
});
