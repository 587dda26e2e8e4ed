import { describe, expect, test } from "vitest";
import type { Claim } from "../../src/contracts/outbox-store.ts";
import { seededRandom } from "../../src/core/random.ts";
import { createWake } from "../../src/core/wake.ts";
import { createBreaker } from "../../src/relay/breaker.ts";
import { createCrowd } from "../../src/relay/crowd.ts";
import type { Observe } from "../../src/core/path-events.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";
import { scriptedSink } from "../support/scripted-sink.ts";
import { claim, publishing } from "./publishing.ts";

const clock = manualClock(Date.UTC(2030, 0, 1));

test("a topic that is on trial with an event from elsewhere stays so, though nothing waits for it in the store", () => {
  const told: string[] = [];
  const observe: Observe = ({ type }) => void told.push(type);
  const breaker = createBreaker({
    ...{ clock, random: seededRandom(1), probeMs: { first: 1, last: 1 }, changed: createWake() },
    ...{ observe, topics: null, topicRecords: 32, crowd: createCrowd(clock, observe) },
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
  const { breaker, trust, claimed, publish, settled } = publishing({ sink, clock, route: ({ type }) => type });
  breaker.failed("late", "before", new Error("away"), false);
  breaker.probed("late");
  return {
    sink,
    trust,
    publish: async (...claims: readonly Claim[]) => {
      const window = claimed(...claims);
      const outcomes = await publish(window);
      settled(window);
      return outcomes;
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
