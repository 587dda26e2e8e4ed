import type { Coordinator } from "../contracts/coordinator.ts";
import type { OutboxStore } from "../contracts/outbox-store.ts";
import type { Clock } from "../core/clock.ts";
import type { Failpoints } from "../core/failpoints.ts";
import type { Wake } from "../core/wake.ts";
import type { FedWindow, Feed } from "./feed.ts";
import { type Steps, untilDone } from "./steps.ts";
import type { Stops } from "./stops.ts";

export interface PollFeedOptions {
  readonly outbox: OutboxStore;
  readonly wake: Wake;
  readonly coordinator: Coordinator;
  readonly clock: Clock;
  readonly failpoints: Failpoints;
  readonly steps: Steps;
  readonly stops: Stops;
  readonly batch: number;
  readonly batchesInFlight: number;
  readonly pollIntervalMs: number;
  /** A store call that takes longer is no progress. */
  readonly storeTimeoutMs: number;
  onClaimed(window: FedWindow, narrow: boolean): void;
  /** Events of these lanes wait for these topics. */
  onHeld(destinations: readonly string[]): void;
  onTrouble(step: "claim" | "settle", error: Error): void;
}

/** Nobody can see another library's commit: after a hint, polls come quickly for a moment. */
const burstMs = [1, 2, 5, 10, 20, 40];

/**
 * Polls without a wait while there is more, every `pollIntervalMs` otherwise. Events that were in a dead relay's window
 * are claimed apart: nothing else is in flight with them, and every other window is an ordinary one, so that an event
 * which ends the process can be told from its neighbours, and they go on meanwhile.
 */
export function createPollFeed(options: PollFeedOptions): Feed {
  const { outbox, coordinator, clock, steps, stops } = options;
  const open = new Map<string, FedWindow>();
  let found = true;
  let fruitless = false;
  let settledOne: () => void = () => undefined;

  const atMostOpen = async (count: number, signal: AbortSignal): Promise<void> => {
    while (open.size > count && !signal.aborted) {
      await new Promise<void>((resolve) => {
        settledOne = resolve;
      });
    }
  };

  async function* windows(signal: AbortSignal): AsyncIterableIterator<FedWindow> {
    signal.addEventListener("abort", () => settledOne());
    let suspects = 0;
    let narrow = false;
    let burst = burstMs.length;
    const pause = async (): Promise<void> => {
      if (await options.wake.wait(clock, burstMs[burst++] ?? options.pollIntervalMs, signal)) burst = 0;
    };
    for (;;) {
      narrow = suspects > 0 && !narrow;
      await atMostOpen(suspects > 0 ? 0 : options.batchesInFlight - 1, signal);
      if (signal.aborted) return;
      if (coordinator.trustedForMs() <= 0 || coordinator.holding.lanes.size === 0) {
        await pause();
        continue;
      }
      if (fruitless) await pause();
      fruitless = false;
      const claimedAt = stops.tick();
      const request = { limit: options.batch, open: [...open.keys()], narrow };
      const window = await untilDone(
        clock,
        signal,
        () => steps.run(options.storeTimeoutMs, () => outbox.claim(coordinator.holding, request)),
        (error) => options.onTrouble("claim", error),
      );
      if (window === undefined) return;
      options.onHeld(window.destinations);
      const tryNarrow = window.suspects > 0 && !narrow && window.id === null;
      suspects = window.suspects;
      found = window.id !== null || window.more || tryNarrow;
      if (window.id !== null) {
        const fed: FedWindow = { ...window, id: window.id, claimedAt };
        open.set(fed.id, fed);
        burst = burstMs.length;
        options.onClaimed(fed, narrow);
        await options.failpoints.hit("after-claim", idsOf(fed));
        yield fed;
      } else if (!found) {
        await pause();
      }
    }
  }

  return {
    windows,
    async settle(window, outcomes, stopping) {
      await options.failpoints.hit("before-settle", idsOf(window));
      const report = await untilDone(
        clock,
        stopping,
        () => steps.run(options.storeTimeoutMs, () => outbox.settle(coordinator.holding.relay, window.id, outcomes)),
        (error) => options.onTrouble("settle", error),
      );
      if (report !== undefined) {
        if (report.lost.length > 0) coordinator.lost(report.lost);
        await options.failpoints.hit("after-settle", idsOf(window));
      }
      // A window that moved nothing must not be claimed again in a tight circle.
      fruitless = outcomes.every((outcome) => outcome.as === "returned" && outcome.destination === undefined);
      found = true; // what was given back, or held, is for the next claim to see
      open.delete(window.id);
      settledOne();
    },
    lanesInUse: () => new Set([...open.values()].flatMap(({ claims }) => claims.map(({ lane }) => lane))),
    empty: () => !found && open.size === 0,
  };
}

const idsOf = (window: FedWindow): readonly string[] => window.claims.map(({ envelope }) => envelope.id);
