import type { ClaimRequest, Holding, Window } from "../../src/contracts/outbox-store.ts";
import type { Clock } from "../../src/core/clock.ts";
import { boundsOf, withinBytes } from "../../src/core/within-bytes.ts";
import { bySeq, judge, kind, narrowLimit, openWindow, ownedLanes, toClaim, weightOf, type Allowed } from "../../src/stores/memory/claim.ts";
import { block, releaseChunks } from "../../src/stores/memory/holds.ts";
import { closeWindow, type LaneState, type StoredEvent, type Suspect, type Tables } from "../../src/stores/memory/tables.ts";
import type { Trip } from "./server.ts";

/** What a pass gives each lane at least. */
const leastShare = 2;
const nothing: Window = { id: null, claims: [], suspects: 0, destinations: [], more: false };

/**
 * One claim as a database server makes it: several statements of one transaction, with the way to the client in between, and
 * each sees what has been committed by then. The transaction has its lanes to itself; only writers go on beside it.
 * The window is made last, with the commit: a claim whose link breaks has taken nothing.
 */
export async function claimInPasses(tables: Tables, clock: Clock, holding: Holding, request: ClaimRequest, step: Trip): Promise<Window> {
  const { relay } = holding;
  for (const window of [...tables.windows.values()]) {
    if (window.relay === relay && !request.open.includes(window.id)) closeWindow(tables, window);
  }
  const lanes = ownedLanes(tables, holding);
  if (lanes.length === 0) return nothing;
  for (const { lane } of lanes) releaseChunks(tables, lane);
  const suspects = [...tables.suspects.values()].filter(({ event }) => lanes.includes(tables.lanes[event.lane]!));
  await step();
  const picked = request.narrow
    ? takeNarrow(tables, clock, lanes, suspects, request.limit)
    : await takeNormal({ tables, clock, lanes, allowed: kind(suspects, false), step }, request.limit);
  const taken = withinBytes(picked.taken, boundsOf(request), weightOf);
  const more = picked.more || taken.length < picked.taken.length;
  const waiting = narrowOf(tables, clock, lanes, suspects).length;
  if (taken.length > 0) await step();
  const id = taken.length === 0 ? null : openWindow(tables, relay, taken).id;
  return {
    id,
    claims: taken.map((event) => toClaim(tables, event, request)),
    suspects: request.narrow ? waiting - taken.length : waiting,
    destinations: [...new Set(lanes.flatMap(({ records }) => [...records.keys()]))],
    more: more || lanes.some(({ releasing }) => releasing.size > 0),
  };
}

interface Scan {
  readonly tables: Tables;
  readonly clock: Clock;
  readonly lanes: readonly LaneState[];
  readonly allowed: Allowed;
  readonly step: Trip;
}

interface Taken {
  readonly taken: StoredEvent[];
  readonly more: boolean;
}

/** Failed events whose turn has come, then pending ones in passes: each begins behind the last row of the one before. */
async function takeNormal(scan: Scan, limit: number): Promise<Taken> {
  const { tables, clock, lanes, allowed, step } = scan;
  const dueLimit = Math.ceil(limit / 2);
  const due = lanes.flatMap((lane) => claimable(tables, clock, lane).filter(({ status }) => status === "FAILED"));
  const failed = due
    .filter(allowed)
    .sort((a, b) => a.nextAttemptAt! - b.nextAttemptAt!)
    .slice(0, dueLimit);
  if (due.length > 0) await step();

  const found: StoredEvent[] = [];
  let behind = lanes.map((lane) => ({ lane, after: 0n }));
  let passes = 0;
  while (behind.length > 0 && failed.length + found.length < limit) {
    if (++passes > 1) await step();
    const share = Math.max(leastShare, Math.ceil((limit - failed.length - found.length) / behind.length));
    behind = behind.flatMap(({ lane, after }) => {
      const rows = claimable(tables, clock, lane)
        .filter((event) => event.status === "PENDING" && event.seq > after && allowed(event))
        .slice(0, share);
      found.push(...rows);
      return rows.length === share ? [{ lane, after: rows.at(-1)!.seq }] : [];
    });
  }
  const picked = fair(failed, found, limit);
  const missed = passes > 1 ? await overtaken(scan, picked) : new Map<string, bigint>();
  const taken = picked.filter((event) => event.seq < (missed.get(event.aggregate) ?? event.seq + 1n));
  return { taken, more: behind.length > 0 || failed.length === dueLimit || taken.length < failed.length + found.length };
}

/** The first event of each aggregate that a transaction committed behind the pass before, and that lies before a picked one: both wait for the next claim. */
async function overtaken(
  { tables, clock, lanes, allowed, step }: Scan,
  picked: readonly StoredEvent[],
): Promise<ReadonlyMap<string, bigint>> {
  await step();
  const seqs = new Set(picked.map(({ seq }) => seq));
  const last = new Map(picked.map(({ lane, seq }) => [lane, seq])); // by seq, ascending
  const missed = new Map<string, bigint>();
  for (const event of lanes.flatMap((lane) => claimable(tables, clock, lane)).sort(bySeq)) {
    const before = event.status === "PENDING" && event.seq < (last.get(event.lane) ?? 0n) && !seqs.has(event.seq) && allowed(event);
    if (before && !missed.has(event.aggregate)) missed.set(event.aggregate, event.seq);
  }
  return missed;
}

/** The failed ones, and of each lane the first ones. */
function fair(failed: readonly StoredEvent[], found: readonly StoredEvent[], limit: number): StoredEvent[] {
  const ranks = new Map<number, number>();
  const ranked = found.map((event) => {
    const rank = ranks.get(event.lane) ?? 0;
    ranks.set(event.lane, rank + 1);
    return { event, rank };
  });
  ranked.sort((a, b) => a.rank - b.rank || bySeq(a.event, b.event));
  return [...failed, ...ranked.map(({ event }) => event)].slice(0, limit).sort(bySeq);
}

const narrowOf = (tables: Tables, clock: Clock, lanes: readonly LaneState[], suspects: readonly Suspect[]): StoredEvent[] =>
  suspects.length === 0 ? [] : lanes.flatMap((lane) => claimable(tables, clock, lane).filter(kind(suspects, true))).sort(bySeq);

function takeNarrow(tables: Tables, clock: Clock, lanes: readonly LaneState[], suspects: readonly Suspect[], limit: number): Taken {
  const waiting = narrowOf(tables, clock, lanes, suspects);
  const taken = waiting.slice(0, narrowLimit(suspects, waiting, limit));
  return { taken, more: taken.length < waiting.length };
}

/** A lane's rows that may go now, as one statement sees them, by seq; what it meets of held aggregates leaves the scan. */
function claimable(tables: Tables, clock: Clock, lane: LaneState): StoredEvent[] {
  lane.queue.sort(bySeq);
  lane.sorted = true;
  const now = clock.now();
  const rows: StoredEvent[] = [];
  lane.queue = lane.queue.filter((event) => {
    const verdict = judge(tables, event, now);
    if (verdict === "block") block(tables, event);
    if (verdict === "claimable") rows.push(event);
    event.queued = verdict === "claimable" || verdict === "wait";
    return event.queued;
  });
  return rows;
}
