import { asError, WaybillError } from "../core/errors.ts";
import { follow, withDeadline } from "../core/time.ts";
import type { Wake } from "../core/wake.ts";
import type { Breaker, BreakerWork } from "./breaker.ts";
import type { Crowd } from "./crowd.ts";
import type { Feed } from "./feed.ts";
import type { LifeParts } from "./parts.ts";

interface DestinationsOptions extends LifeParts {
  readonly breaker: Breaker;
  readonly crowd: Crowd;
  readonly feed: Pick<Feed, "release">;
  /** Notified by the breaker. */
  readonly changed: Wake;
  onTrouble(error: Error): void;
}

const longestWaitMs = 60_000;
/** How many topics are probed or released at once: thousands of missing ones must not overload the broker and the store. */
const atOnce = 32;
const releasePerStep = 1_000;
const troubleMs = 500;

/**
 * Finds out when broken destinations work again, beside the relay's loop, so that they never slow the others. It probes the metadata first,
 * then releases one waiting aggregate after the other until one is stored, then all that wait.
 */
export async function watchDestinations(options: DestinationsOptions): Promise<void> {
  const { breaker, feed, coordinator, clock } = options;
  const { signal, release: unfollow } = follow(options.draining);

  /** Why the topic is not well; null when it is. */
  const faultOf = async (topic: string): Promise<Error | null> => {
    try {
      await withDeadline(clock, options.publishTimeoutMs, signal, (late) => options.sink.probe(topic, late), tooLate);
      return null;
    } catch (error) {
      return asError(error);
    }
  };
  const probe = async (topic: string): Promise<void> => {
    const fault = await faultOf(topic);
    if (fault !== null) {
      if (!signal.aborted) breaker.probeFailed(topic, fault);
      return;
    }
    if (!breaker.probed(topic)) return;
    if ((await feed.release(topic, 1)) === 0) breaker.released(topic);
  };

  const visit = async (topic: string): Promise<boolean> => {
    // The relay parks these events as soon as it has them.
    if (options.topics?.has(topic) === false) return (await feed.release(topic, releasePerStep)) > 0;
    if ((await faultOf(topic)) !== null || signal.aborted || breaker.has(topic)) return false;
    const over = breaker.invite(topic);
    if ((await feed.release(topic, 1)) > 0) return over;
    breaker.released(topic);
    return false;
  };

  const release = async (topic: string): Promise<void> => {
    if ((await feed.release(topic, releasePerStep)) < releasePerStep) breaker.released(topic);
  };

  // Each topic is a step of its own, the one that has been due for longest first: a slow probe keeps no other topic waiting.
  let running = 0;
  const step = async ({ topic, as }: BreakerWork): Promise<void> => {
    running += 1;
    try {
      await (as === "probe" ? probe(topic) : release(topic));
    } catch (error) {
      options.onTrouble(asError(error));
      await clock.sleep(troubleMs, signal);
    } finally {
      running -= 1;
      breaker.done(topic);
      options.changed.notify();
    }
  };
  const crowd = options.crowd.watch({ ...options, visit, isKnown: (topic) => breaker.has(topic) }, signal);
  while (!signal.aborted) {
    if (coordinator.trustedForMs() <= 0) {
      await clock.sleep(troubleMs, signal);
      continue;
    }
    for (let work; running < atOnce && (work = breaker.next()) !== null;) void step(work);
    // The end of a step is a change too.
    await options.changed.wait(clock, running === atOnce ? longestWaitMs : Math.min(breaker.dueInMs(), longestWaitMs), signal);
  }
  await crowd;
  unfollow();
}

function tooLate(): never {
  throw new WaybillError("DESTINATION_UNAVAILABLE", "the probe was not answered in time");
}
