import type { Clock } from "../core/clock.ts";
import { asError } from "../core/errors.ts";
import { otherTopics } from "../core/other-topics.ts";
import type { Observe } from "../core/path-events.ts";
import { stepping } from "../core/progress.ts";
import { orAborted } from "../core/time.ts";
import { createWake } from "../core/wake.ts";
import type { Feed } from "./feed.ts";
import type { LifeParts } from "./parts.ts";

/**
 * The topics in trouble that have no record of their own: a writer may invent any number of them. This process keeps nothing for each, the
 * store has one record for all, and their names are read from the holds, a page at a time. The topics of a page are probed once, and those
 * that are well are let go. Then comes the next page, at once where some were well. So a topic of a large crowd comes back later than one
 * with a record of its own, and no event is given up.
 */
export interface Crowd {
  /** An event waits under the record of all such topics. */
  join(why: string): void;
  /** Such events were found in the store. */
  adopt(): void;
  /** For a relay that runs once: there is no crowd, every page of it was looked at, or that takes long. */
  quiet(): boolean;
  /** Looks through the crowd, until the signal aborts. */
  watch(options: CrowdOptions, ending: AbortSignal): Promise<void>;
}

interface CrowdOptions extends LifeParts {
  readonly feed: Pick<Feed, "release">;
  /** Whether a topic has a record of its own. */
  isKnown(topic: string): boolean;
  /** Probes a topic, and lets go what waits for it where it is well. True when events waited in this relay's lanes and were let go. */
  visit(topic: string): Promise<boolean>;
  onTrouble(error: Error): void;
}

/** How many topics are probed at once. */
const pageSize = 32;
const troubleMs = 500;
const longestWaitMs = 60_000;
/** A relay that runs once looks through the crowd for no longer. */
const onceMs = 10_000;

export function createCrowd(clock: Clock, observe: Observe): Crowd {
  const changed = createWake();
  /** Whether there is a crowd, and whether events came to it since the last look began. */
  let [present, came] = [false, false];
  let looks = 0;
  let since = 0;

  const join = (why: string): void => {
    if (!present) {
      observe({ type: "destination.opened", topic: otherTopics, error: why, probeInMs: 0 });
      since = clock.monotonic();
      changed.notify();
    }
    [present, came] = [true, true];
  };

  /** Looks at every page once. Was any topic met, and was any well? */
  const look = async ({ outbox, probeMs, ...options }: CrowdOptions, ending: AbortSignal) => {
    const seen = { met: false, well: false };
    for (let after: string | undefined = ""; after !== undefined && !ending.aborted;) {
      const from: string = after;
      const page = await stepping(options.steps, options.leaseMs, () => outbox.waitingFor(from, pageSize));
      const topics = page.filter((topic) => !options.isKnown(topic));
      const visits = await orAborted(Promise.all(topics.map((topic) => options.visit(topic))), ending, () => []);
      const well = visits.includes(true);
      if (topics.length > 0) seen.met = true;
      if (well) seen.well = true;
      after = page.length < pageSize ? undefined : page.at(-1);
      if (after !== undefined && topics.length > 0 && !well && !options.once) await clock.sleep(probeMs.first, ending);
    }
    return seen;
  };

  return {
    join,
    adopt() {
      if (!present) join("events wait for topics beyond the bound");
    },
    quiet: () => !present || looks > 0 || clock.monotonic() - since > onceMs,
    async watch(options, ending) {
      const { coordinator, feed, probeMs, once } = options;
      let waitMs = probeMs.first;
      while (!ending.aborted) {
        if (!present) {
          await changed.wait(clock, longestWaitMs, ending);
          continue;
        }
        if (!once || looks > 0) await clock.sleep(waitMs, ending);
        if (coordinator.trustedForMs() <= 0) {
          await clock.sleep(troubleMs, ending);
          continue;
        }
        came = false;
        try {
          const { met, well } = await look(options, ending);
          looks += 1;
          waitMs = well ? probeMs.first : Math.min(2 * waitMs, probeMs.last);
          if (met || came || ending.aborted) continue;
          // The record stays in lanes where something waits for a topic without a record after all: the next claim tells of it.
          await feed.release(otherTopics, 1);
          if (came) continue;
          [present, waitMs] = [false, probeMs.first];
          observe({ type: "destination.closed", topic: otherTopics });
        } catch (error) {
          options.onTrouble(asError(error));
          await clock.sleep(troubleMs, ending);
        }
      }
    },
  };
}
