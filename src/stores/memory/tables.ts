import type { Schema } from "../../contracts/store.ts";
import type { Clock } from "../../core/clock.ts";
import type { Row, State } from "../../core/event.ts";
import { LANES } from "../../core/lane.ts";
import type { LetterRow } from "../../core/letter.ts";
import type { Reason } from "../../core/reason.ts";

/** The stored states. PUBLISHING is derived from windows. */
type Status = Exclude<State, "PUBLISHING">;

export interface StoredEvent {
  readonly seq: bigint;
  readonly row: Row;
  readonly aggregate: string;
  readonly lane: number;
  readonly createdAt: number;
  status: Status;
  retryCount: number;
  nextAttemptAt: number | null;
  failure: Reason | null;
  publishedAt: number | null;
  /** The unsettled window that has claimed it. */
  window: OpenWindow | null;
  /** Whether the event is in its lane's queue. An event that is no longer pending leaves the queue only when a scan meets it. */
  queued: boolean;
}

export interface KeptLetter {
  readonly seq: bigint;
  row: LetterRow;
  readonly parkedAt: number;
  redrivenAt: number | null;
}

export interface LaneState {
  readonly lane: number;
  owner: string | null;
  epoch: bigint;
  /** PENDING and FAILED events by seq, among stale ones. */
  queue: StoredEvent[];
  sorted: boolean;
  readonly releasing: Set<HoldRow>;
  /** By topic, what waits for it. */
  readonly destinations: Map<string, Set<HoldRow>>;
  /** What events wait under: a topic's own record, or that of all others. */
  readonly records: Map<string, DestinationRecord>;
}

export interface HoldRow {
  readonly aggregate: string;
  readonly aggregateType: string;
  readonly aggregateId: string;
  readonly lane: number;
  causeSeq: bigint;
  destination: string | null;
  why: string;
  since: number;
  /** Null while held; otherwise events up to this seq may go. */
  freeTo: bigint | null;
  /** By seq. Every BLOCKED event of the aggregate is here, and no event is BLOCKED without a hold. */
  blocked: StoredEvent[];
}

interface DestinationRecord {
  readonly why: string;
  readonly since: number;
}

export interface OpenWindow {
  readonly id: string;
  readonly relay: string;
  readonly width: number;
  readonly lanes: Map<number, Set<StoredEvent>>;
}

export interface Suspect {
  readonly event: StoredEvent;
  readonly width: number;
  readonly deaths: number;
}

export interface AuditRecord {
  readonly at: Date;
  readonly who: string;
  readonly action: "redrive" | "discard" | "purge";
  readonly events: number;
  readonly ids: readonly string[];
}

export interface RelayLease {
  /** By the monotonic clock: all of this store is in one process, and a wall clock may step. */
  readonly endsAt: number;
  readonly window: number;
  readonly strategy: string | undefined;
}

export interface Tables {
  lastSeq: bigint;
  lastWindow: number;
  readonly events: Map<bigint, StoredEvent>;
  readonly byId: Map<string, StoredEvent>;
  readonly keys: Map<string, { readonly id: string; readonly usedAt: number }>;
  readonly lanes: readonly LaneState[];
  /** By aggregate. */
  readonly holds: Map<string, HoldRow>;
  readonly windows: Map<string, OpenWindow>;
  /** By seq. */
  readonly suspects: Map<bigint, Suspect>;
  readonly relays: Map<string, RelayLease>;
  readonly audit: AuditRecord[];
  /** By number, which is the order in which they were parked. */
  readonly letters: Map<bigint, KeptLetter>;
  lastLetter: bigint;
}

/** Nothing outlives the process, so there is never anything to upgrade. */
export const schema: Schema = { migrate: async () => [], print: () => "", grants: () => "", check: async () => undefined };

export function createTables(): Tables {
  return {
    lastSeq: 0n,
    lastWindow: 0,
    events: new Map(),
    byId: new Map(),
    keys: new Map(),
    lanes: Array.from({ length: LANES }, (_, lane) => ({
      lane,
      owner: null,
      epoch: 0n,
      queue: [],
      sorted: true,
      releasing: new Set(),
      destinations: new Map(),
      records: new Map(),
    })),
    holds: new Map(),
    windows: new Map(),
    suspects: new Map(),
    relays: new Map(),
    audit: [],
    letters: new Map(),
    lastLetter: 0n,
  };
}

export const isFinal = (event: StoredEvent): boolean =>
  event.status === "PUBLISHED" || event.status === "DEAD" || event.status === "DISCARDED";

export const isLive = (tables: Tables, relay: string, clock: Clock): boolean =>
  (tables.relays.get(relay)?.endsAt ?? -Infinity) > clock.monotonic();

/** Makes an event claimable again, in its place by seq. */
export function enqueue(tables: Tables, event: StoredEvent): void {
  if (event.queued) return;
  const lane = tables.lanes[event.lane]!;
  const last = lane.queue.at(-1);
  if (last !== undefined && last.seq > event.seq) lane.sorted = false;
  lane.queue.push(event);
  event.queued = true;
}

/** Forgets one lane's part of a window. */
export function closeLane(tables: Tables, window: OpenWindow, lane: number): void {
  for (const event of window.lanes.get(lane) ?? []) {
    if (event.window === window) event.window = null;
  }
  window.lanes.delete(lane);
  if (window.lanes.size === 0) tables.windows.delete(window.id);
}

/** Removes a settled event from its window. The window goes with its last event. */
export function leaveWindow(tables: Tables, window: OpenWindow, event: StoredEvent): void {
  const part = window.lanes.get(event.lane);
  event.window = null;
  part?.delete(event);
  if (part?.size === 0) closeLane(tables, window, event.lane);
}

export function closeWindow(tables: Tables, window: OpenWindow): void {
  for (const lane of [...window.lanes.keys()]) closeLane(tables, window, lane);
}
