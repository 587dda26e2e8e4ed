import type { LogTailer } from "../../contracts/log-tailer.ts";
import { asError } from "../../core/errors.ts";
import { LogUnreadable } from "../../core/log-unreadable.ts";
import type { FeedParts } from "../parts.ts";
import type { TailFeed } from "./tail-feed.ts";

const lookMs = 10_000;
/** A warning is repeated after this long. */
const warnMs = 600_000;
/** A slot that nobody has read for so long is given up: a relay that may read again makes a new one. */
const unreadMs = 300_000;

interface Guard {
  run(): void;
  /** This feed reads the log. */
  reads(feed: TailFeed): void;
  /** Why it ended, and whether the place where it ended is of no use. */
  ended(failure: Error | null): { readonly why: string | null; readonly lost: boolean };
}

/**
 * Keeps the database's disk from filling with a log that is not read: the server keeps it for as long as the slot is there. Giving the slot up
 * loses nothing, since the relay polls on.
 */
export function createGuard({ clock, coordinator, draining, observe, logBytes }: FeedParts, tailer: LogTailer): Guard {
  let feed: TailFeed | null = null;
  let gaveUp: string | null = null;
  let warnedAt = -Infinity;
  let unreadSince: number | null = null;

  const giveUp = async (why: string): Promise<void> => {
    gaveUp = why;
    feed?.end();
    await tailer.drop();
    unreadSince = null;
  };
  const look = async (): Promise<void> => {
    const { state, retainedBytes } = await tailer.look();
    if (state !== "unread") unreadSince = null;
    else unreadSince ??= clock.monotonic();
    const kept = `the database keeps ${retainedBytes} bytes of its log for the relay`;
    if (retainedBytes > logBytes) return giveUp(`${kept}, more than logBytes ${logBytes}: the slot was given up`);
    if (unreadSince !== null && clock.monotonic() - unreadSince > unreadMs)
      return giveUp(`nobody has read the log for ${unreadMs / 60_000} minutes: the slot was given up`);
    if (retainedBytes > logBytes / 2 && clock.monotonic() - warnedAt > warnMs) {
      warnedAt = clock.monotonic();
      observe({
        type: "watch.warning",
        relay: coordinator.holding.relay,
        what: "log",
        holder: null,
        text: `${kept}; the slot goes at ${logBytes}`,
      });
    }
  };
  const watch = async (): Promise<void> => {
    while (!draining.aborted) {
      await clock.sleep(lookMs, draining);
      if (draining.aborted || coordinator.holding.lanes.size === 0) continue;
      await look().catch(() => undefined); // the next look comes soon
    }
  };

  return {
    run: () => void watch(),
    reads(next) {
      feed = next;
      gaveUp = null;
    },
    ended(failure) {
      feed = null;
      if (gaveUp !== null) return { why: gaveUp, lost: true };
      if (failure === null) return { why: null, lost: false };
      return { why: asError(failure).message, lost: !(failure instanceof LogUnreadable && failure.retryable) };
    },
  };
}
