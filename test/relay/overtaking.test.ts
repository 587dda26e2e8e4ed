import { expect, test } from "vitest";
import type { Claim } from "../../src/contracts/outbox-store.ts";
import { systemClock } from "../../src/core/clock.ts";
import { noFailpoints } from "../../src/core/failpoints.ts";
import { seededRandom } from "../../src/core/random.ts";
import { retrySchedule } from "../../src/core/retry.ts";
import { createWake } from "../../src/core/wake.ts";
import { createBreaker } from "../../src/relay/breaker.ts";
import { createPublisher } from "../../src/relay/publisher.ts";
import { createProgress } from "../../src/core/progress.ts";
import { createStops } from "../../src/relay/stops.ts";
import type { FedWindow, Part } from "../../src/relay/feed.ts";

test("followers of an event that failed in a part whose later event had to wait are not sent", async () => {
  const sent: number[] = [];
  let refused = 2;
  const sink = {
    name: "s",
    can: { maxBytes: 1e6 },
    connect: async () => undefined,
    probe: async () => undefined,
    [Symbol.asyncDispose]: async () => undefined,
    publish: async (batch: readonly { envelope: { seq: bigint } }[]) => {
      let stop = false;
      return batch.map(({ envelope: { seq } }) => {
        if (stop) return { status: "skipped" as const };
        sent.push(Number(seq));
        if (Number(seq) === refused) {
          stop = true;
          return { status: "refused" as const, blame: "event" as const, retryable: true, error: new Error("not now") };
        }
        return { status: "stored" as const };
      });
    },
  };
  const random = seededRandom(1);
  const stops = createStops();
  const breaker = createBreaker({
    clock: systemClock,
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
    clock: systemClock,
    failpoints: noFailpoints,
    steps: createProgress(systemClock),
    source: "/",
    route: () => "t",
    publishTimeoutMs: 1_000,
    readTimeoutMs: 1_000,
    policy: { retry: retrySchedule({}, random), skips: () => false },
    coordinator: { holding: { relay: "r", lanes: new Map([[0, 1n]]) }, trustedForMs: () => 10_000 } as never,
  });
  const claim = (n: number): Claim => ({
    lane: 0,
    epoch: 1n,
    failures: 0,
    deaths: 0,
    envelope: {
      id: `e${n}`,
      seq: BigInt(n),
      aggregateType: "X",
      aggregateId: "x",
      type: "T",
      eventVersion: 1,
      data: Buffer.from("{}"),
      contentType: "application/json",
      headers: {},
      idempotencyKey: null,
      createdAt: new Date(),
    },
  });
  const part = (id: string, ...ns: number[]): Part => {
    const claimedAt = stops.tick();
    const claims = ns.map(claim);
    return { window: { id, claims, claimedAt } as unknown as FedWindow, claims, claimedAt };
  };
  const never = new AbortController().signal;
  const none = { draining: never, stopping: never };

  refused = 1;
  const a = part("a", 1, 2, 3),
    b = part("b", 4, 5, 6);
  await publisher.publish(a, none); // 1 is refused, 2 and 3 go back
  await publisher.publish(b, none); // claimed ahead: goes back
  stops.settled(a); // and 1, by now, may go again
  refused = 2;
  const c = part("c", 1, 2, 7); // b is not settled yet: 4, 5 and 6 are in it
  await publisher.publish(c, none); // 7 has to wait, 1 is stored, 2 is refused
  stops.settled(b);
  const d = part("d", 4, 5, 6); // c is not settled yet
  const { outcomes } = await publisher.publish(d, none);
  expect({ sent, d: outcomes.map(({ as }) => as) }).toEqual({ sent: [1, 1, 2], d: ["returned", "returned", "returned"] });
});
