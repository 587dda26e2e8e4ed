import { asError, isWaybillError } from "../core/errors.ts";
import { persist, withDeadline } from "../core/time.ts";
import type { Composed } from "./compose.ts";

/** Runs until it is drained: window after window, with its lanes, its destinations and its chores beside. */
export async function run(relay: Composed): Promise<void> {
  const { ending, feed, publisher } = relay;
  const lanes = keepLanes(relay);
  lanes.catch(ending.drain); // `await lanes` below throws the failure itself
  const beside = [relay.watch(), relay.once ? drainWhenIdle(relay) : relay.chores(ending.draining)];
  try {
    await connect(relay);
    for await (const window of feed.windows()) publisher.take(window);
    await ending.finished();
  } finally {
    ending.drain();
    ending.leave();
    await Promise.all(beside);
    await lanes;
  }
}

/**
 * Begins once the store can be reached and has its tables. A store that is away is waited for, as it is later: the relay counts as running
 * meanwhile. What no wait can mend, such as a wrong password, ends the relay. So does any failure of `runOnce`.
 */
async function keepLanes({ clock, coordinator, work, troubles, ending, once, ...relay }: Composed): Promise<void> {
  let begun = false;
  const begin = (): void => {
    begun = true;
    troubles.over("renew");
    relay.ready();
  };
  const attempt = async (): Promise<void> => {
    if (ending.draining.aborted) return;
    await relay.check();
    await coordinator.run(work, ending, begin);
  };
  await persist(attempt, (cause, tried) => {
    const error = asError(cause);
    if (begun || once || !isWaybillError(error) || !error.retryable) return null;
    troubles.met("renew", error);
    relay.ready();
    return clock.sleep(Math.min(500 * tried, 5_000), ending.draining);
  });
}

/** A broker that cannot be reached is an outage. The breaker handles it once there is something to publish. */
async function connect({ clock, publishTimeoutMs, sink, draining, troubles }: Composed): Promise<void> {
  try {
    await withDeadline(
      clock,
      publishTimeoutMs,
      draining,
      (signal) => sink.connect(signal),
      () => undefined,
    );
  } catch (error) {
    troubles.met("publish", error);
  }
}

async function drainWhenIdle({ clock, coordinator, leaseMs, ending, idle }: Composed): Promise<void> {
  const patience = clock.monotonic() + leaseMs * 1.5; // a dead relay's lanes come free within its lease
  while (!ending.draining.aborted) {
    const started = coordinator.settledIn() || clock.monotonic() > patience;
    if (started && (idle() || coordinator.holding.lanes.size === 0)) return ending.drain();
    await clock.sleep(5, ending.draining);
  }
}
