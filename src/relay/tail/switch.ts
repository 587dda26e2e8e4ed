import type { LeaseStore } from "../../contracts/lease-store.ts";
import type { Tail, Tailing } from "../../contracts/tail-ledger.ts";
import { asError } from "../../core/errors.ts";
import { follow, onAbort, orAborted } from "../../core/time.ts";
import type { FedWindow, Feed } from "../feed.ts";
import type { FeedParts } from "../parts.ts";
import { createPollFeed } from "../poll-feed.ts";
import { approach } from "./approach.ts";
import { createGuard } from "./guard.ts";
import { createTailFeed } from "./tail-feed.ts";

/** Between two attempts to read a log that could not be read: the first, doubled up to the last. */
const retryMs = { first: 1_000, last: 30_000 };

/** A feed that is in use. */
interface Part {
  readonly feed: Feed;
  /** Ends it, and resolves when nothing of it is under way. */
  end(): Promise<void>;
}

/**
 * Reads the log whenever this relay owns all lanes and the log can be read, and polls otherwise. It enters the log through polling: events
 * that committed before the place where reading begins are settled first.
 */
export function createSwitchingFeed(parts: FeedParts, tail: Tail, leases: Pick<LeaseStore, "look">): Feed {
  const { clock, coordinator, draining } = parts;
  const given: FedWindow[] = [];
  const feeds = new WeakMap<FedWindow, Feed>();
  let current: Feed = createPollFeed(parts);
  let stir: () => void = () => undefined;
  let over = false;

  /** Gives the feed's windows until it has ended. */
  const pump = async (feed: Feed): Promise<void> => {
    current = feed;
    for await (const window of feed.windows()) {
      feeds.set(window, feed);
      given.push(window);
      stir();
    }
    while (feed.lanesInUse().size > 0 && !parts.stopping.aborted) await clock.sleep(2, parts.stopping);
  };
  const told = { mode: "", why: "" };
  const tell = (mode: "poll" | "tail", why: string): void => {
    if (told.mode === mode && told.why === why) return;
    Object.assign(told, { mode, why });
    parts.observe({ type: "relay.mode", relay: coordinator.holding.relay, mode, why });
  };

  const guard = createGuard(parts, tail.tailer);

  const poll = (): Part => {
    const ended = follow(draining);
    const feed = createPollFeed({ ...parts, draining: ended.signal });
    const done = pump(feed);
    return {
      feed,
      async end() {
        ended.abort();
        await done;
        ended.release();
      },
    };
  };

  const work = async (): Promise<void> => {
    /** How long the relay polls before it tries the log again. */
    let pause = 0;
    let resumes = true;
    while (!draining.aborted) {
      const polling = { part: null as Part | null };
      const pollOn = (why: string | null): void => {
        polling.part ??= poll();
        if (why !== null) tell("poll", why);
      };
      let tailing: Tailing | null = null;
      try {
        if (pause > 0) {
          pollOn(null);
          await clock.sleep(pause, draining);
        }
        const entrance = await approach(parts, tail, leases, resumes, pollOn);
        await polling.part?.end();
        if (entrance !== null && !draining.aborted) tailing = await tail.ledger.enter(coordinator.holding, entrance);
        pause = retryMs.first;
      } catch (error) {
        // A place that an orderly end left may be of no use any more: the next attempt makes a new one.
        resumes = false;
        tell("poll", asError(error).message);
        pause = Math.min(Math.max(pause * 2, retryMs.first), retryMs.last);
      }
      await polling.part?.end();
      if (tailing === null) continue;
      const feed = createTailFeed(parts, tail, tailing);
      guard.reads(feed);
      tell("tail", "");
      await pump(feed);
      const { why, lost } = guard.ended(feed.failure());
      if (why !== null) tell("poll", why);
      resumes = !lost;
      pause = lost ? retryMs.first : 0;
    }
  };

  return {
    async *windows() {
      onAbort(draining, () => stir());
      guard.run();
      const working = work().finally(() => {
        over = true;
        stir();
      });
      for (;;) {
        const window = given.shift();
        if (window !== undefined) yield window;
        else if (over || parts.stopping.aborted) break;
        else await new Promise<void>((resolve) => (stir = resolve));
      }
      await orAborted(working, parts.stopping, () => undefined);
    },
    settle: (window, outcomes) => feeds.get(window)!.settle(window, outcomes),
    payload: (...asked) => parts.outbox.payload(...asked),
    release: (destination, limit) => current.release(destination, limit),
    lanesInUse: () => current.lanesInUse(),
    empty: () => current.empty(),
  };
}
