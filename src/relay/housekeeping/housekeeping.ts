import type { Coordinator } from "../../contracts/coordinator.ts";
import type { Archive } from "../../contracts/operator.ts";
import type { Clock } from "../../core/clock.ts";
import { type Observe, relayTroubles, type WatchWarning } from "../../core/path-events.ts";
import type { Random } from "../../core/random.ts";
import { follow } from "../../core/time.ts";
import { type Kept, pauses, purgeStore, type Purged } from "./purge.ts";
import { type Thresholds, warningsOf } from "./warnings.ts";

export interface HousekeepingParts {
  readonly store: Kept;
  readonly coordinator: Pick<Coordinator, "holding" | "trustedForMs">;
  readonly everyMs: number;
  readonly retentionMs: number;
  readonly keyRetentionMs: number;
  readonly archive: Archive | undefined;
  readonly thresholds: Thresholds;
  readonly clock: Clock;
  readonly random: Random;
  readonly observe: Observe;
}

const watchEveryMs = 60_000;
/** How soon a relay that wins lane 0 notices that something is overdue. */
const lookMs = 1_000;

/**
 * What the relay that owns lane 0 does besides publishing, until the signal aborts. No failure of it ends the relay, and publishing never
 * waits for it. A relay that starts does not wait for the whole interval: otherwise one that restarts often would never get to it.
 */
export function createHousekeeping(parts: HousekeepingParts): (ending: AbortSignal) => Promise<void> {
  const { store, coordinator, everyMs, clock, random, observe } = parts;
  const { relay } = coordinator.holding;
  const inCharge = (): boolean => coordinator.holding.lanes.has(0) && coordinator.trustedForMs() > 0;
  const troubles = relayTroubles(observe, relay, clock);
  const trouble = (cause: unknown): void => void troubles.met("housekeeping", cause);
  const told = new Map<string, number>();
  /** Reports a lasting condition once per interval. */
  const warn = (warnings: readonly WatchWarning[]): void => {
    const now = clock.monotonic();
    for (const warning of warnings) {
      const key = `${warning.what} ${warning.what === "partitions" || warning.what === "archive" ? warning.text : warning.holder}`;
      if (now - (told.get(key) ?? -Infinity) < everyMs) continue;
      told.set(key, now);
      observe({ type: "watch.warning", relay, ...warning });
    }
    for (const [key, at] of told) if (now - at >= everyMs) told.delete(key);
  };

  /** Reports work that does not end: nothing is purged while an archive hangs. */
  const watched = async (ending: AbortSignal, work: Promise<void>): Promise<void> => {
    const began = clock.monotonic();
    const done = follow(ending);
    const tell = async (): Promise<void> => {
      for (;;) {
        await clock.sleep(everyMs, done.signal);
        if (done.signal.aborted) return;
        const seconds = Math.round((clock.monotonic() - began) / 1_000);
        trouble(new Error(`housekeeping has not ended for ${seconds} s: if the archive or the store does not answer, nothing is purged`));
      }
    };
    void tell();
    await work.catch(trouble);
    done.abort();
    done.release();
  };

  /** Repeats the job while this relay is in charge. */
  const repeat = async (ending: AbortSignal, firstMs: number, nextMs: () => number, job: () => Promise<void>): Promise<void> => {
    for (let at = clock.monotonic() + firstMs; !ending.aborted;) {
      const wait = at - clock.monotonic();
      if (wait > 0) await clock.sleep(wait, ending);
      else if (!inCharge()) await clock.sleep(lookMs, ending);
      else {
        at = clock.monotonic() + nextMs();
        await watched(ending, job());
      }
    }
  };

  return async (ending) => {
    const { housekeeping } = store;
    const tidying = repeat(
      ending,
      (random.next() * everyMs) / 60,
      () => everyMs * (0.9 + 0.2 * random.next()),
      async () => warn(await tidy(parts, ending, trouble)),
    );
    const watching =
      housekeeping === undefined
        ? undefined
        : repeat(
            ending,
            random.next() * watchEveryMs,
            () => watchEveryMs,
            async () => warn(warningsOf(await housekeeping.watch(), parts.thresholds)),
          );
    await Promise.all([tidying, watching]);
  };
}

/** One run: creates the next partitions, then purges everything past its retention. Returns what could not be done. */
async function tidy(parts: HousekeepingParts, signal: AbortSignal, trouble: (cause: unknown) => void): Promise<readonly WatchWarning[]> {
  const { store, clock, observe, archive, keyRetentionMs } = parts;
  const { relay } = parts.coordinator.holding;
  const started = clock.monotonic();
  let complete = true;
  const failed = (cause: unknown): undefined => {
    complete = false;
    trouble(cause);
  };
  const made = await (async () => store.housekeeping?.partitions?.create())().catch(failed);
  const before = new Date(clock.now() - parts.retentionMs);
  const options = { keyRetentionMs, signal, pause: pauses(clock, signal), ...(archive === undefined ? {} : { archive }) };
  const purged = await purgeStore(store, before, { who: `relay ${relay}`, dryRun: false }, options).catch(failed);
  const { events, dropped, moved, undone, kept }: Purged = purged ?? { events: 0, dropped: [], moved: 0, undone: [], kept: [] };
  observe({
    type: "housekeeping.done",
    relay,
    purged: events,
    created: made?.created ?? [],
    dropped,
    moved,
    complete: complete && !signal.aborted,
    ms: clock.monotonic() - started,
  });
  return [
    ...[...(made?.undone ?? []), ...undone].map((text) => ({ what: "partitions" as const, holder: null, text })),
    ...kept.map((text) => ({ what: "archive" as const, holder: null, text })),
  ];
}
