import { expect, test } from "vitest";
import type { Coordinator } from "../../src/contracts/coordinator.ts";
import type { Claim, Holding, OutboxStore, Window } from "../../src/contracts/outbox-store.ts";
import type { Sink } from "../../src/contracts/sink.ts";
import { systemClock, turn } from "../../src/core/clock.ts";
import { noFailpoints } from "../../src/core/failpoints.ts";
import { createWake } from "../../src/core/wake.ts";
import type { FeedParts } from "../../src/relay/parts.ts";
import { createPollFeed } from "../../src/relay/poll-feed.ts";
import { createProgress } from "../../src/core/progress.ts";

const window = (lane: number): Window => ({
  id: "w",
  claims: [{ envelope: { id: "e", data: new Uint8Array() }, lane, epoch: 1n, failures: 0, deaths: 0 } as unknown as Claim],
  suspects: 0,
  destinations: [],
  more: false,
});

test("a lane is not given away while it is not known what a claim has taken from it", async () => {
  const lanes = new Map([
    [1, 1n],
    [2, 1n],
  ]);
  const asked: Holding[] = [];
  let answer: (window: Window) => void = () => undefined;
  const outbox = {
    claim: (holding: Holding) => {
      asked.push(holding);
      return new Promise<Window>((resolve) => (answer = resolve));
    },
  } as unknown as OutboxStore;
  const coordinator = { holding: { relay: "r", lanes }, trustedForMs: () => 1_000, lost: () => undefined } as unknown as Coordinator;
  const { signal } = new AbortController();
  const feed = createPollFeed({
    ...({} as FeedParts),
    outbox,
    coordinator,
    wake: createWake(),
    clock: systemClock,
    failpoints: noFailpoints,
    steps: createProgress(systemClock),
    batch: 10,
    batchesInFlight: 1,
    windowBytes: 1_000,
    sink: { can: { maxBytes: 1_000 } } as Sink,
    pollIntervalMs: 1,
    leaseMs: 1_000,
    observe: () => undefined,
    draining: signal,
    stopping: signal,
    recall: () => undefined,
    onRead: () => undefined,
    onTrouble: () => undefined,
  });
  const next = feed.windows()[Symbol.asyncIterator]().next();
  await turn();
  lanes.delete(2); // the coordinator means to give it away
  expect([...feed.lanesInUse()]).toEqual([1, 2]);
  expect([...asked[0]!.lanes.keys()], "the claim goes on with what it began with").toEqual([1, 2]);
  answer(window(2));
  await next;
  expect([...feed.lanesInUse()], "only what was claimed is in use now").toEqual([2]);
});
