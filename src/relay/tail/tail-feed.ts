import type { LogBatch, LoggedEvent, LoggedTransaction, LogReading, OtherRow } from "../../contracts/log-tailer.ts";
import type { Claim, Outcome } from "../../contracts/outbox-store.ts";
import type { Tail, Tailing } from "../../contracts/tail-ledger.ts";
import { asError } from "../../core/errors.ts";
import { aggregateKey } from "../../core/event.ts";
import { LANES } from "../../core/lane.ts";
import { idsFor } from "../../core/path-events.ts";
import { alarm, follow, onAbort, orAborted } from "../../core/time.ts";
import { createWake } from "../../core/wake.ts";
import type { FedWindow, Feed } from "../feed.ts";
import type { FeedParts } from "../parts.ts";
import { createPollFeed } from "../poll-feed.ts";
import { type Checkpoints, createCheckpoints, type HandedOver } from "./checkpoints.ts";
import { createDetours } from "./detours.ts";
import { createPrefix, type Span } from "./prefix.ts";

/** While something is under way, events of the log wait so long for others to go with them: a flight of one costs as much as one of many. */
const lullMs = 3;
/** How often the relay asks which aggregates may leave their detour, and which are about to need one. */
const detoursMs = 1_000;
/** An aggregate with a delayed event takes the detour from so long before the event is due. */
const aheadMs = 3 * detoursMs;

/** The part of the relay's window that events of the table may take. */
const partByTable = 4;

interface TailClaim extends Claim {
  readonly span: Span;
  readonly xid: string;
}

interface OpenWindow extends FedWindow {
  readonly claims: readonly TailClaim[];
  unsettled: number;
}

export interface TailFeed extends Feed {
  /** Reads no more. `windows` then ends, when what is under way is settled. */
  end(): void;
  /** Why it ended by itself. */
  failure(): Error | null;
}

/**
 * Windows from the database's log, and beside them, by polling, windows of what the table has: events that failed, were delayed or were
 * redriven, and everything of their aggregates.
 *
 * Events that the log brought and that were published are settled in memory, and durable with a checkpoint. Whatever else becomes of them
 * is written into the table before the position passes them.
 */
export function createTailFeed(parts: FeedParts, { tailer, ledger }: Tail, tailing: Tailing): TailFeed {
  const { coordinator, clock, draining, stopping, observe } = parts;
  // What both ways have sent and not made durable is one window: so many copies may one fault cause.
  const whole = parts.batch * parts.batchesInFlight;
  const byTable = Math.max(1, Math.floor(whole / partByTable));
  const most = Math.max(1, whole - byTable);
  const worthwhile = Math.max(1, Math.min(Math.ceil(parts.batch / 4), Math.floor(most / 4)));
  const ending = follow(draining);
  const prefix = createPrefix(tailing.from.position);
  const detours = createDetours();
  const wake = createWake();
  const open = new Map<FedWindow, OpenWindow>();
  /** Windows that wait for the relay to take them. */
  const given: FedWindow[] = [];
  let ready: TailClaim[] = [];
  let readyBytes = 0;
  let unsettled = 0;
  /** How many of the log's events have left `ready`. */
  let taken = 0;
  let reading: LogReading | null = null;
  let failure: Error | null = null;
  let doubtful = true;
  let stir: () => void = () => undefined;
  let lull: (() => void) | null = null;
  /** When the claim under way began, whose window has not been given yet. */
  let claimBegan: number | null = null;
  /** Windows of the table of which some events went back at once: what is left of each, and the other way round. */
  const partsOf = new WeakMap<FedWindow, FedWindow>();
  const wholes = new WeakMap<FedWindow, FedWindow>();
  let over = false;
  const epoch = coordinator.holding.lanes.get(0) ?? -1n;

  const detour = createPollFeed({
    ...parts,
    wake,
    batch: Math.min(parts.batch, byTable),
    batchesInFlight: Math.max(1, Math.floor(byTable / parts.batch)),
    draining: ending.signal,
    recall: (windows) => parts.recall(windows.map((window) => partsOf.get(window) ?? window)),
    outbox: {
      ...parts.outbox,
      async claim(holding, request) {
        claimBegan = clock.monotonic();
        try {
          const window = await parts.outbox.claim(holding, { ...request, detour: true });
          if (window.id === null) claimBegan = null;
          return window;
        } catch (error) {
          claimBegan = null;
          throw error;
        }
      },
    },
  });

  const checkpoints: Checkpoints = createCheckpoints(parts, ledger, tailing, {
    prefix,
    most,
    confirm: (position) => reading?.confirm(position),
    settled({ claim }) {
      (claim as TailClaim).span.left -= 1;
      const now = clock.monotonic();
      detours.entered(claim.envelope, now, claimBegan ?? now);
      wake.notify();
      stir();
    },
    moved: () => stir(),
    lost: () => ending.abort(),
  });

  const enter = (trouble: HandedOver): void => {
    detours.enters(trouble.claim.envelope);
    checkpoints.enter(trouble);
  };
  /** How many more may be given to the relay. */
  const room = (): number => most - unsettled - checkpoints.held();
  const isFull = (): boolean => ready.length >= room() || (readyBytes >= parts.windowBytes && open.size > 0);

  const claimOf = ({ envelope, failures, unreadable }: LoggedEvent, { xid }: LoggedTransaction, span: Span): TailClaim => {
    const claim = { envelope, lane: 0, epoch, failures, deaths: 0, span, xid };
    return unreadable === undefined ? claim : { ...claim, unreadable };
  };
  const take = async ({ transactions, end }: LogBatch): Promise<void> => {
    const still = doubtful && transactions.length > 0 ? await asked(transactions) : null;
    if (ending.signal.aborted) return;
    for (const transaction of transactions) {
      const span = prefix.add(transaction.end);
      for (const other of transaction.others) if (isNear(other)) detours.add(other, transaction.xid);
      for (const event of transaction.events) {
        // At or below the floor it is settled: a row that moves to another partition is inserted again.
        if (still?.has(event.envelope.seq) === false || event.envelope.seq <= checkpoints.floor()) continue;
        span.left += 1;
        if (event.large === true) detours.add(event.envelope, transaction.xid);
        // Also where its aggregate takes the detour: earlier events of it may still be here.
        ready.push(claimOf(event, transaction, span));
        readyBytes += event.envelope.data.byteLength;
      }
    }
    prefix.passed(end);
    stir();
  };
  /** Another look finds those that are due later. */
  const isNear = ({ dueAt }: OtherRow): boolean => {
    const now = coordinator.storeNow();
    return dueAt === null || now === null || dueAt.getTime() <= now + aheadMs;
  };
  const asked = async (transactions: readonly LoggedTransaction[]): Promise<ReadonlySet<bigint> | null> => {
    for (let wait = 50; !ending.signal.aborted; wait = Math.min(wait * 2, 2_000)) {
      try {
        const still = await ledger.unsettled(tailing, transactions);
        if (still === null) doubtful = false;
        return still;
      } catch (error) {
        parts.onTrouble("claim", asError(error));
        await clock.sleep(wait, ending.signal);
      }
    }
    return null;
  };
  const read = async (): Promise<void> => {
    reading = await tailer.read(tailing.from, ending.signal);
    for await (const batch of reading) {
      await take(batch);
      while (isFull() && !ending.signal.aborted) await untilRoom();
      if (ending.signal.aborted) return;
    }
  };
  const waiting = new Set<() => void>();
  /** Until something was settled. */
  const untilRoom = (): Promise<void> => new Promise<void>((resolve) => waiting.add(resolve));

  const cut = (): void => {
    if (ready.length === 0 || room() <= 0 || ending.signal.aborted) return;
    if (open.size > 0 && ready.length < parts.batch && readyBytes < parts.windowBytes) {
      lull ??= alarm(clock, lullMs, () => {
        lull = null;
        give();
        stir();
      });
      return;
    }
    lull?.();
    lull = null;
    give();
  };
  /** False where there was no room, or nothing. */
  const give = (): boolean => {
    const width = Math.min(parts.batch, room());
    // A checkpoint makes room for many: flights of a few would cost as much.
    if (ready.length === 0 || width < Math.min(ready.length, worthwhile) || ending.signal.aborted) return false;
    const some = ready.length <= width ? ready : ready.slice(0, width);
    ready = some === ready ? [] : ready.slice(some.length);
    for (const { envelope } of some) readyBytes -= envelope.data.byteLength;
    // Since they were read, some of their aggregates may have taken the detour.
    const claims = detours.size === 0 ? some : some.filter((claim) => !detoured(claim));
    taken += some.length;
    if (claims.length === 0) return true;
    const window = { claims, asOf: claimBegan ?? clock.monotonic(), unsettled: claims.length };
    open.set(window, window);
    unsettled += claims.length;
    const { relay } = coordinator.holding;
    observe({
      type: "relay.claimed",
      relay,
      count: claims.length,
      narrow: false,
      ...idsFor(observe, claims, ({ envelope }) => envelope.id),
    });
    given.push(window);
    return true;
  };
  const detoured = (claim: TailClaim): boolean => {
    if (!detours.has(aggregateKey(claim.envelope))) return false;
    enter({ claim, outcome: null, xid: claim.xid });
    return true;
  };

  /**
   * A delayed event comes from the table although earlier events of its aggregate may still be in the log. Whatever had committed before it
   * was claimed is read first, and given first, or on its way into the table: then it goes back, and comes again behind them.
   */
  const giveDetoured = async (window: FedWindow): Promise<void> => {
    while (reading === null && !ending.signal.aborted) await clock.sleep(lullMs, ending.signal);
    const isRead = (await reading?.upToNow().catch(() => false)) ?? false;
    for (const until = taken + ready.length; taken < until && !ending.signal.aborted;) {
      if (give()) stir();
      else await untilRoom();
    }
    const back =
      !isRead || ending.signal.aborted ? window.claims : window.claims.filter(({ envelope }) => detours.isBehind(envelope, window.asOf));
    const returned = back.map((claim) => ({ claim, as: "returned" as const }));
    // No later event of theirs is claimed before they are back.
    if (back.length > 0) await orAborted(detour.settle(window, returned), stopping, () => undefined);
    if (back.length === window.claims.length) return;
    const some = back.length === 0 ? window : { claims: window.claims.filter((claim) => !back.includes(claim)), asOf: window.asOf };
    if (some !== window) {
      wholes.set(some, window);
      partsOf.set(window, some);
    }
    given.push(some);
  };

  /** Everything that goes on beside the windows. */
  const beside = async (): Promise<void> => {
    const failed = (error: unknown): void => {
      failure ??= asError(error);
      ending.abort();
    };
    const poll = (async () => {
      for await (const window of detour.windows()) {
        await giveDetoured(window);
        claimBegan = null;
        stir();
      }
    })();
    await lookAtDetours();
    await Promise.all([read().then(ending.abort, failed), poll.catch(failed), watch(), checkpoints.run(ending.signal)]);
  };
  const lookAtDetours = async (): Promise<void> => {
    const { aggregates, over } = detours.candidates();
    try {
      const found = await ledger.detours(aggregates, aheadMs);
      for (const aggregate of found.due) detours.add(aggregate);
      over(found.over);
    } catch (error) {
      parts.onTrouble("claim", asError(error));
    }
  };
  const watch = async (): Promise<void> => {
    while (!ending.signal.aborted) {
      await clock.sleep(detoursMs, ending.signal);
      const { lanes } = coordinator.holding;
      if (lanes.size < LANES || lanes.get(0) !== epoch) ending.abort();
      if (!ending.signal.aborted) await lookAtDetours();
    }
  };

  const windows = async function* (): AsyncIterableIterator<FedWindow> {
    for (const aggregate of tailing.detours) detours.add(aggregate);
    onAbort(ending.signal, () => {
      ready = [];
      lull?.();
      parts.recall([...open.keys()]);
      void reading?.close();
      stir();
    });
    const work = beside();
    for (;;) {
      cut();
      const window = given.shift();
      if (window !== undefined) {
        yield window;
        continue;
      }
      for (const go of waiting) go();
      waiting.clear();
      if (ending.signal.aborted && open.size === 0 && detour.lanesInUse().size === 0) break;
      if (stopping.aborted) break;
      const stirred = new Promise<void>((resolve) => (stir = resolve));
      await (ending.signal.aborted ? Promise.race([stirred, clock.sleep(10)]) : stirred);
      stir = () => undefined;
    }
    await orAborted(work, stopping, () => undefined);
    await checkpoints.leave();
    over = true;
    ending.release();
  };

  return {
    windows,
    async settle(window, outcomes) {
      const entry = open.get(window);
      if (entry === undefined) return detour.settle(wholes.get(window) ?? window, outcomes);
      const done: Promise<void>[] = [];
      for (const outcome of outcomes) {
        const claim = outcome.claim as TailClaim;
        if (outcome.as === "published") {
          claim.span.left -= 1;
          checkpoints.published(claim.envelope, claim.xid);
        } else if (outcome.as !== "returned" || outcome.destination !== undefined || !ending.signal.aborted) {
          // An event that comes back while the relay leaves was not sent: it is as if it had not been read.
          done.push(new Promise((resolve) => enter({ claim, outcome: handOver(outcome) ? null : outcome, xid: claim.xid, resolve })));
        }
      }
      entry.unsettled -= outcomes.length;
      unsettled -= outcomes.length;
      if (entry.unsettled === 0) open.delete(window);
      stir();
      if (done.length > 0) await orAborted(Promise.all(done), stopping, () => []);
    },
    payload: detour.payload,
    release: detour.release,
    lanesInUse: () => new Set(over ? [] : Array.from({ length: LANES }, (_, lane) => lane)),
    empty: () => ready.length === 0 && open.size === 0 && given.length === 0 && checkpoints.held() === 0 && detour.empty(),
    end: () => ending.abort(),
    failure: () => failure,
  };
}

const handOver = (outcome: Outcome): boolean => outcome.as === "returned" && outcome.destination === undefined;
