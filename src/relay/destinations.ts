import type { Coordinator } from "../contracts/coordinator.ts";
import type { OutboxStore } from "../contracts/outbox-store.ts";
import type { Sink } from "../contracts/sink.ts";
import { type Clock, withDeadline } from "../core/clock.ts";
import { asError } from "../core/errors.ts";
import type { Wake } from "../core/wake.ts";
import type { Breaker } from "./breaker.ts";

export interface DestinationsOptions {
  readonly breaker: Breaker;
  readonly outbox: OutboxStore;
  readonly sink: Sink;
  readonly coordinator: Coordinator;
  readonly clock: Clock;
  /** Tells the feed that there may be something to claim. */
  readonly wake: Wake;
  /** Told by the breaker. */
  readonly changed: Wake;
  readonly probeTimeoutMs: number;
  onTrouble(error: Error): void;
}

const longestWaitMs = 60_000;
const releasePerStep = 1_000;
const troubleMs = 500;

/**
 * Finds broken destinations healthy again, beside the relay's loop so that they never slow the others: metadata first,
 * then one waiting aggregate after the other until one is stored, then all that wait.
 */
export async function watchDestinations(options: DestinationsOptions, signal: AbortSignal): Promise<void> {
  const { breaker, outbox, coordinator, clock } = options;

  const probe = async (topic: string): Promise<void> => {
    try {
      await withDeadline(clock, options.probeTimeoutMs, signal, (late) => options.sink.probe(topic, late));
    } catch (error) {
      if (!signal.aborted) breaker.probeFailed(topic, asError(error));
      return;
    }
    if (!breaker.probed(topic)) return;
    if ((await outbox.release(coordinator.holding, topic, 1)) === 0) breaker.released(topic);
    options.wake.notify();
  };

  const release = async (topic: string): Promise<void> => {
    if ((await outbox.release(coordinator.holding, topic, releasePerStep)) < releasePerStep) breaker.released(topic);
    options.wake.notify();
  };

  while (!signal.aborted) {
    if (coordinator.trustedForMs() <= 0) {
      await clock.sleep(troubleMs, signal);
      continue;
    }
    const steps = [...breaker.due().map(probe), ...breaker.releasing().map(release)];
    for (const step of await Promise.allSettled(steps)) {
      if (step.status === "fulfilled") continue;
      options.onTrouble(asError(step.reason));
      await clock.sleep(troubleMs, signal);
    }
    await options.changed.wait(clock, Math.min(breaker.dueInMs(), longestWaitMs), signal);
  }
}
