import type { Claim, ClaimRequest, Holding, Window } from "../../contracts/outbox-store.ts";
import type { Envelope } from "../../core/event.ts";
import { boundsOf, isUnread, type Weight, withinBytes } from "../../core/within-bytes.ts";
import { mayGo, narrowWidth } from "../kit/claim.ts";
import { block, releaseChunks } from "./holds.ts";
import { closeWindow, type LaneState, type OpenWindow, type StoredEvent, type Suspect, type Tables } from "./tables.ts";

export function claim(tables: Tables, holding: Holding, request: ClaimRequest, now: number): Window {
  const { relay } = holding;
  for (const window of [...tables.windows.values()]) {
    if (window.relay === relay && !request.open.includes(window.id)) closeWindow(tables, window);
  }
  const lanes = ownedLanes(tables, holding);
  for (const { lane } of lanes) releaseChunks(tables, lane);

  const suspects = [...tables.suspects.values()].filter(({ event }) => lanes.includes(tables.lanes[event.lane]!));
  const waiting = suspects.length === 0 ? [] : takeAll(tables, lanes, kind(suspects, true), now);
  const narrow = narrowLimit(suspects, waiting, request.limit);
  const fair = request.narrow
    ? { taken: waiting.slice(0, narrow), more: waiting.length > narrow }
    : takeFairly(tables, lanes, kind(suspects, false), request.limit, now);
  const taken = withinBytes(fair.taken, boundsOf(request), weightOf);
  const more = fair.more || taken.length < fair.taken.length;
  const id = taken.length === 0 ? null : openWindow(tables, relay, taken).id;
  return {
    id,
    claims: taken.map((event) => toClaim(tables, event, request)),
    suspects: request.narrow ? waiting.length - taken.length : waiting.length,
    destinations: [...new Set(lanes.flatMap(({ records }) => [...records.keys()]))],
    more: more || lanes.some(({ releasing }) => releasing.size > 0),
  };
}

export function ownedLanes(tables: Tables, { relay, lanes }: Holding): LaneState[] {
  return tables.lanes.filter(({ lane, owner, epoch }) => owner === relay && lanes.get(lane) === epoch);
}

/**
 * Lanes take turns, the lane with the oldest event first. Each gets an equal share, and what some lanes leave over goes to lanes that have
 * more events.
 */
function takeFairly(
  tables: Tables,
  lanes: readonly LaneState[],
  allowed: Allowed,
  limit: number,
  now: number,
): { taken: StoredEvent[]; more: boolean } {
  const scans = lanes.map((lane) => scan(tables, lane, allowed, now)).sort(byHead);
  const taken: StoredEvent[] = [];
  let hungry = scans.filter((each) => each.peek() !== null);
  while (hungry.length > 0 && taken.length < limit) {
    const share = Math.max(1, Math.floor((limit - taken.length) / hungry.length));
    for (const each of hungry) {
      for (let n = 0; n < share && taken.length < limit && each.peek() !== null; n++) taken.push(each.next()!);
    }
    hungry = hungry.filter((each) => each.peek() !== null);
  }
  for (const each of scans) each.end();
  return { taken: taken.sort(bySeq), more: hungry.length > 0 };
}

function takeAll(tables: Tables, lanes: readonly LaneState[], allowed: Allowed, now: number): StoredEvent[] {
  const taken: StoredEvent[] = [];
  for (const lane of lanes) {
    const each = scan(tables, lane, allowed, now);
    while (each.peek() !== null) taken.push(each.next()!);
    each.end();
  }
  return taken.sort(bySeq);
}

export type Allowed = (event: StoredEvent) => boolean;

/** A suspect's predecessors go with it, or it would overtake them; its followers wait until it is settled. */
export function kind(suspects: readonly Suspect[], narrow: boolean): Allowed {
  const lastSuspect = new Map<string, bigint>();
  for (const { event } of suspects) {
    if (event.seq > (lastSuspect.get(event.aggregate) ?? 0n)) lastSuspect.set(event.aggregate, event.seq);
  }
  return ({ aggregate, seq }) => {
    const last = lastSuspect.get(aggregate);
    return narrow ? last !== undefined && seq <= last : last === undefined;
  };
}

export function narrowLimit(suspects: readonly Suspect[], claimable: readonly StoredEvent[], limit: number): number {
  const widths = new Map(suspects.map(({ event, width }) => [event, width]));
  return narrowWidth(
    claimable.map((event) => widths.get(event) ?? Infinity),
    limit,
  );
}

interface Scan {
  peek(): StoredEvent | null;
  next(): StoredEvent | null;
  end(): void;
}

/** Walks a lane's queue in seq order, no further than asked, and drops stale events on the way. */
function scan(tables: Tables, lane: LaneState, allowed: Allowed, now: number): Scan {
  if (!lane.sorted) lane.queue.sort(bySeq);
  lane.sorted = true;
  const { queue } = lane;
  const kept: StoredEvent[] = [];
  let at = 0;
  let ahead: StoredEvent | null = null;
  const peek = (): StoredEvent | null => {
    while (ahead === null && at < queue.length) {
      const event = queue[at++]!;
      const verdict = judge(tables, event, now);
      if (verdict === "block") block(tables, event);
      if (verdict === "block" || verdict === "gone") event.queued = false;
      else kept.push(event);
      if (verdict === "claimable" && allowed(event)) ahead = event;
    }
    return ahead;
  };
  return {
    peek,
    next() {
      const event = peek();
      ahead = null;
      return event;
    },
    end() {
      if (kept.length < at) lane.queue = kept.concat(queue.slice(at));
    },
  };
}

export const bytesOf = ({ row: { payload } }: StoredEvent): number =>
  typeof payload === "string" ? Buffer.byteLength(payload) : payload.byteLength;

export const weightOf = (event: StoredEvent): Weight => ({ payload: bytesOf(event), headers: 0 });

export const bySeq = (a: StoredEvent, b: StoredEvent): number => (a.seq < b.seq ? -1 : 1);

const byHead = (a: Scan, b: Scan): number => {
  const [x, y] = [a.peek(), b.peek()];
  if (x === null || y === null) return x === y ? 0 : x === null ? 1 : -1;
  return x.seq < y.seq ? -1 : 1;
};

export function judge(tables: Tables, event: StoredEvent, now: number): "claimable" | "wait" | "block" | "gone" {
  if (event.status !== "PENDING" && event.status !== "FAILED") return "gone";
  if (event.window !== null) return "wait";
  const due = event.status === "FAILED" ? event.nextAttemptAt : (event.row.availableAt?.getTime() ?? null);
  if (due !== null && due > now) return "wait";
  const held = tables.holds.get(event.aggregate);
  const free = held === undefined || mayGo(event.seq, { cause: held.causeSeq, waits: held.destination !== null, freeTo: held.freeTo });
  if (free) return "claimable";
  return event.status === "PENDING" ? "block" : "wait";
}

/** How many events the relay has in all its windows. An event is alone only if it is the only one of them. */
export function inFlight(tables: Tables, relay: string): number {
  let events = 0;
  for (const window of tables.windows.values()) if (window.relay === relay) for (const lane of window.lanes.values()) events += lane.size;
  return events;
}

export function openWindow(tables: Tables, relay: string, taken: readonly StoredEvent[]): OpenWindow {
  const lanes = new Map<number, Set<StoredEvent>>();
  const window: OpenWindow = { id: String(++tables.lastWindow), relay, width: taken.length + inFlight(tables, relay), lanes };
  for (const event of taken) {
    event.window = window;
    const part = lanes.get(event.lane);
    if (part === undefined) lanes.set(event.lane, new Set([event]));
    else part.add(event);
  }
  tables.windows.set(window.id, window);
  return window;
}

export function toClaim(tables: Tables, event: StoredEvent, request: Pick<ClaimRequest, "bytes" | "largest">): Claim {
  const unread = isUnread(weightOf(event), boundsOf(request));
  return {
    envelope: toEnvelope(event, unread ? new Uint8Array(0) : dataOf(event)),
    lane: event.lane,
    epoch: tables.lanes[event.lane]!.epoch,
    failures: event.retryCount,
    deaths: tables.suspects.get(event.seq)?.deaths ?? 0,
    ...(unread ? { unread: bytesOf(event) } : {}),
  };
}

export const dataOf = ({ row: { payload } }: StoredEvent): Uint8Array =>
  typeof payload === "string" ? Uint8Array.from(Buffer.from(payload, "utf8")) : Uint8Array.from(payload);

function toEnvelope({ seq, row, createdAt }: StoredEvent, data: Uint8Array): Envelope {
  const { payload: _payload, availableAt: _availableAt, ...rest } = row;
  return { ...rest, seq, data, headers: { ...row.headers }, createdAt: new Date(createdAt) };
}
