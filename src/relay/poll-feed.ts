import type { Claim, Holding, Outcome } from "../contracts/outbox-store.ts";
import { type Clock, turn } from "../core/clock.ts";
import { stepping } from "../core/progress.ts";
import { alarm, orAborted } from "../core/time.ts";
import { asError } from "../core/errors.ts";
import { idsFor } from "../core/path-events.ts";
import type { FedWindow, Feed } from "./feed.ts";
import type { FeedParts } from "./parts.ts";

/** While events come steadily, the next claim begins this long after one that took all there were: claiming a few costs as much as one. */
const lullMs = 7;

/** After more windows in a row than this, one claim that finds nothing does not end the row: at random, some intervals have no event. */
const longRun = 8;

/**
 * Where an aggregate's events go one per round trip, a lane with this part of a batch in flight gets no more until some are settled: a slow
 * aggregate must not take the room of all others.
 */
const shareOfBatch = 8;

/** The most events of the first window. After a window that did not take all there is, the next is twice as wide, up to `batch`. */
const firstWidth = 250;

/**
 * While suspects wait, each window waits until the last is settled. After so long, that one gives back what it has not sent: a hot aggregate's
 * events go one per round trip, and would keep all others waiting. Suspects have waited for longest, so their turns are longer.
 */
const turnMs = { narrow: 1_000, ordinary: 250 };

/** How many windows of one event whose payload is still to be read may be open: payloads are read one after the other. */
const mostUnread = 32;

interface OpenWindow extends FedWindow {
  /** The store's name for it. */
  readonly id: string;
  readonly narrow: boolean;
  /** Held in memory until the whole window is settled. */
  readonly bytes: number;
  unsettled: number;
  recalled: boolean;
  /** Outcomes to be settled. */
  readonly known: Outcome[];
  /** The settle that began last, and the one that will begin when it ends. */
  settling: Promise<void>;
  next: Promise<void> | null;
}

/**
 * Polls without a wait while there is more, every `pollIntervalMs` otherwise. Events that were in a dead relay's window are claimed apart,
 * with nothing else in flight, so that an event which ends the process can be told from its neighbours. Every second window is an ordinary
 * one, so that other events go on meanwhile.
 */
export function createPollFeed(options: FeedParts): Feed {
  const { outbox, coordinator, clock, sink, observe, draining, stopping } = options;
  const open = new Map<FedWindow, OpenWindow>();
  const worthwhile = Math.ceil(options.batch / 4);
  let found = true;
  let fruitless = false;
  const none: Holding["lanes"] = new Map();
  let claiming = none;
  let settledSome: () => void = () => undefined;
  /** By lane, how many events are in flight. */
  const inLane = new Map<number, number>();
  const countIn = (lane: number, change: number): void => void inLane.set(lane, (inLane.get(lane) ?? 0) + change);
  const laneShare = sink.can.run === undefined ? Infinity : Math.ceil(options.batch / shareOfBatch);
  const hasRoom = (lane: number): boolean => (inLane.get(lane) ?? 0) < laneShare;
  /** Lanes that the last claim left out. */
  let full: readonly number[] = [];
  const unsettled = (): number => [...open.values()].reduce((sum, window) => sum + window.unsettled, 0);

  /** A call of the store that takes longer is no progress: the lanes must go to a relay whose calls end. */
  const step = <T>(work: () => Promise<T>): Promise<T> => stepping(options.steps, options.leaseMs, work);

  async function* windows(): AsyncIterableIterator<FedWindow> {
    draining.addEventListener("abort", () => settledSome());
    let suspects = 0;
    let narrow = false;
    let lull: number | null = null;
    let width = firstWidth;
    /** How many windows have followed each other since one had more than one event. */
    let run = 0;
    /** Until the next poll, or a hint that there is something. */
    const pause = async (): Promise<void> => void (await options.wake.wait(clock, options.pollIntervalMs, draining));
    /** Suspects are alone in flight: nothing before them, nothing beside them. */
    const isNarrow = (): boolean => [...open.values()].some((entry) => entry.narrow);
    const isApart = (): boolean => suspects > 0 || isNarrow();
    /** How many more may be claimed. */
    const room = (): number => {
      const apart = isApart();
      const lanes = [...coordinator.holding.lanes.keys()];
      const bytes = [...open.values()].reduce((sum, entry) => sum + entry.bytes, 0);
      const heavy = bytes > options.windowBytes * (options.batchesInFlight - 1);
      const unread = [...open.values()].filter(({ claims }) => claims[0]?.unread !== undefined).length;
      if (open.size > 0 && (apart || heavy || unread >= mostUnread || (lanes.length > 0 && !lanes.some(hasRoom)))) return 0;
      return Math.min(width, options.batch, options.batch * options.batchesInFlight - unsettled());
    };
    const recall = (): void => {
      for (const entry of open.values()) entry.recalled = true;
      width = firstWidth; // much of a wide window would only come back
      options.recall([...open.values()]);
    };
    const untilRoom = async (): Promise<void> => {
      const cancel = open.size > 0 && isApart() ? alarm(clock, isNarrow() ? turnMs.narrow : turnMs.ordinary, recall) : null;
      while (room() <= 0 && !draining.aborted) await new Promise<void>((resolve) => (settledSome = resolve));
      cancel?.();
    };
    for (;;) {
      await untilRoom();
      // A claim of few events costs nearly as much as one of many: more may be settled in a moment.
      if (open.size > 0 && room() < Math.min(width, worthwhile)) await clock.sleep(lullMs, draining);
      if (draining.aborted) return;
      if (fruitless) await pause();
      fruitless = false;
      if (coordinator.trustedForMs() <= 0 || coordinator.holding.lanes.size === 0) {
        await pause();
        continue;
      }
      if (lull !== null) await clock.sleep(lull - clock.monotonic(), draining);
      lull = null;
      if (draining.aborted) return;
      const begun = clock.monotonic();
      narrow = suspects > 0 && !narrow;
      const ids = [...open.values()].map(({ id }) => id);
      const request = { limit: room(), bytes: options.windowBytes, largest: sink.can.maxBytes, open: ids, narrow };
      // The holding as it is now. A lane that is to be given away stays in use until the claim has said what it took.
      const holding = (): Holding => {
        const lanes = [...coordinator.holding.lanes];
        claiming = new Map(lanes.filter(([lane]) => hasRoom(lane)));
        full = lanes.flatMap(([lane]) => (hasRoom(lane) ? [] : [lane]));
        return { relay: coordinator.holding.relay, lanes: claiming };
      };
      const window = await untilDone(
        clock,
        { end: draining, now: stopping },
        () => step(() => outbox.claim(holding(), request)),
        (error) => options.onTrouble("claim", error),
      );
      if (window === undefined) {
        claiming = none;
        return;
      }
      options.onRead(window.destinations);
      suspects = window.suspects;
      found = window.id !== null || window.more || (suspects > 0 && !narrow);
      if (window.id !== null) {
        const { id, claims } = window;
        for (const { lane } of claims) countIn(lane, 1);
        const entry: OpenWindow = {
          ...{ id, claims, asOf: begun, narrow, bytes: bytesOf(claims), unsettled: claims.length, recalled: false },
          ...{ known: [], settling: Promise.resolve(), next: null },
        };
        open.set(entry, entry);
        claiming = none;
        width = window.more ? Math.min(width * 2, options.batch) : firstWidth;
        run = claims.length > 1 || run > 0 ? run + 1 : 0;
        if (!window.more && run > 0) lull = begun + lullMs;
        const { relay } = coordinator.holding;
        observe({ type: "relay.claimed", relay, count: claims.length, narrow, ...idsFor(observe, claims, ({ envelope }) => envelope.id) });
        await options.failpoints.hit("after-claim", idsOf(claims));
        yield entry;
        // After a narrow window comes an ordinary one, with the events that waited for it: nothing hints at them.
        if (!window.more && run === 0 && suspects === 0 && !narrow) await pause();
      } else {
        claiming = none;
        run = run > longRun ? 1 : 0;
        if (run > 0) lull = begun + lullMs;
        else if (!found) await pause();
      }
    }
  }

  const settleWindow = async (entry: OpenWindow, outcomes: readonly Outcome[]): Promise<void> => {
    const claims = outcomes.map(({ claim }) => claim);
    await options.failpoints.hit("before-settle", idsOf(claims));
    const report = await untilDone(
      clock,
      { end: stopping, now: stopping },
      () => step(() => outbox.settle(coordinator.holding.relay, entry.id, outcomes)),
      (error) => options.onTrouble("settle", error),
    );
    if (report !== undefined) {
      // A lane may have been won again since, under another epoch.
      const lost = report.lost.filter((lane) =>
        claims.some((claim) => claim.lane === lane && coordinator.holding.lanes.get(lane) === claim.epoch),
      );
      if (lost.length > 0) coordinator.lost(lost);
      await options.failpoints.hit("after-settle", idsOf(claims));
    }
    // Events that were only returned must not be claimed again in a tight loop.
    fruitless = !entry.recalled && outcomes.every((outcome) => outcome.as === "returned" && outcome.destination === undefined);
    found = true; // the next claim has to look at what was given back or held
    for (const { lane } of claims) countIn(lane, -1);
    if (full.some(hasRoom)) options.wake.notify();
    entry.unsettled -= outcomes.length;
    if (entry.unsettled === 0) open.delete(entry);
    settledSome();
  };

  return {
    windows,
    async settle(window, outcomes) {
      const entry = open.get(window);
      if (entry === undefined) return;
      for (const outcome of outcomes) entry.known.push(outcome);
      // Settles of one window run one after the other. Outcomes that come meanwhile go together with the next.
      const before = entry.settling;
      entry.next ??= (async () => {
        await before;
        await turn();
        // A settle of few events costs nearly as much as one of many: more of the window may be concluded in a moment.
        if (entry.known.length < entry.unsettled) await clock.sleep(lullMs, stopping);
        entry.next = null;
        await settleWindow(entry, entry.known.splice(0));
      })();
      await (entry.settling = entry.next);
    },
    payload: (...asked) => outbox.payload(...asked),
    async release(destination, limit) {
      const released = await step(() => outbox.release(coordinator.holding, destination, limit));
      if (released > 0) options.wake.notify();
      return released;
    },
    lanesInUse: () => new Set([...claiming.keys(), ...[...open.values()].flatMap(({ claims }) => claims.map(({ lane }) => lane))]),
    empty: () => !found && open.size === 0,
  };
}

const bytesOf = (claims: readonly Claim[]): number => claims.reduce((sum, { envelope }) => sum + envelope.data.byteLength, 0);

const idsOf = (claims: readonly Claim[]): readonly string[] => claims.map(({ envelope }) => envelope.id);

/** Retries with backoff until it succeeds, or `end` aborts. Answers undefined then, or at once when `now` aborts. */
async function untilDone<T>(
  clock: Clock,
  { end, now }: { readonly end: AbortSignal; readonly now: AbortSignal },
  work: () => Promise<T>,
  failed: (error: Error) => void,
): Promise<T | undefined> {
  for (let wait = 50; !end.aborted && !now.aborted; wait = Math.min(wait * 2, 2_000)) {
    try {
      return await orAborted<T | undefined>(work(), now, () => undefined);
    } catch (error) {
      failed(asError(error));
      await clock.sleep(wait, end);
    }
  }
  return undefined;
}
