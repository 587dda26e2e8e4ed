import type { State } from "../core/event.ts";
import type { Watch } from "./housekeeping.ts";

/** What an operator may look at and do; apart from the data path. */
export interface Operator {
  status(): Promise<Status>;
  /** Newest first, a page at a time. A payload above 64 KiB is left out: one large event must not keep others from being listed. */
  list(filter: EventFilter): Promise<readonly EventRecord[]>;
  /** With its payload, unless that cannot be read at all. */
  show(id: string): Promise<EventRecord | null>;
  /** DEAD events go again, attempts starting anew, each before its blocked followers. */
  redrive(filter: DeadFilter, by: Action): Promise<ActionReport>;
  /** DEAD events are given up and kept as DISCARDED; their followers are released in order. */
  discard(filter: DeadFilter, by: Action): Promise<ActionReport>;
  /** Deletes published and discarded events older than this, in small batches; never any other. Says how many. */
  purge(before: Date, by: Action, options?: PurgeOptions): Promise<number>;
}

export interface PurgeOptions {
  /** Is given every batch before it is deleted. When it fails, the batch stays, and purge rejects with the failure. */
  readonly archive?: Archive;
  /**
   * Is told each event that stays because its payload could not be read for the archive, and why. The next purge tries it again.
   * Without it, purge rejects with ROW_UNREADABLE when everything else is done.
   */
  kept?(event: EventRecord, why: string): void;
  /** For how long an idempotency key is known; the keys that are older go too. @default 7 days */
  readonly keyRetentionMs?: number;
  /** Awaited between two batches, so that others get their turn. */
  pause?(): Promise<void>;
  /** Ends it before the next batch, and does not wait for an archive: the batch that it has stays. */
  readonly signal?: AbortSignal;
}

/**
 * Keeps events elsewhere. It is given up to 500 events with 8 MiB of payloads at once, or one event whose payload alone takes more. It may
 * be given an event again, when what followed failed.
 */
export type Archive = (events: readonly WholeEvent[]) => Promise<void>;

export interface EventFilter {
  readonly state?: State;
  readonly aggregateType?: string;
  readonly aggregateId?: string;
  readonly type?: string;
  /** Only events with a lower seq: the last one of the page before. */
  readonly beforeSeq?: bigint;
  readonly limit: number;
}

/** Ids, or every dead event that matches; an empty filter means all of them. */
export interface DeadFilter {
  readonly ids?: readonly string[];
  readonly aggregateType?: string;
  readonly aggregateId?: string;
  readonly type?: string;
  readonly error?: string;
}

export interface Action {
  /** Who does it, for the audit. */
  readonly who: string;
  /** Only says what would be done. */
  readonly dryRun: boolean;
}

export interface ActionReport {
  readonly events: number;
  /** Events BLOCKED behind them. */
  readonly followers: number;
  readonly ids: readonly string[];
}

export interface EventRecord {
  readonly seq: bigint;
  readonly id: string;
  readonly aggregateType: string;
  readonly aggregateId: string;
  readonly type: string;
  readonly eventVersion: number;
  /** Null where it was not read: in a list above 64 KiB, elsewhere where it is too large to be read at all. */
  readonly payload: string | Uint8Array | null;
  readonly payloadBytes: number;
  readonly contentType: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly idempotencyKey: string | null;
  readonly lane: number | null;
  readonly createdAt: Date;
  readonly availableAt: Date | null;
  readonly state: State;
  readonly retryCount: number;
  readonly nextAttemptAt: Date | null;
  readonly lastError: string | null;
  readonly publishedAt: Date | null;
  /** The relay that is publishing it. */
  readonly owner: string | null;
  /** Why it waits. */
  readonly hold: string | null;
}

/** An event with its payload. */
export interface WholeEvent extends EventRecord {
  readonly payload: string | Uint8Array;
}

export interface Status {
  readonly states: Readonly<Record<State, number>>;
  /** The states whose count is an estimate: beyond 100,000, rows are not counted one by one. */
  readonly estimated: readonly State[];
  /** Age of the oldest event that is not published, dead or discarded; null when there is none. */
  readonly oldestUnpublishedMs: number | null;
  readonly relays: readonly RelayStatus[];
  readonly lanes: { readonly total: number; readonly owned: number; readonly free: number };
  readonly holds: { readonly aggregates: number; readonly blocked: number; readonly list: readonly HoldStatus[] };
  /** Destinations that events wait for. */
  readonly breakers: readonly BreakerStatus[];
  /** Claimed and not settled, over all relays. */
  readonly window: { readonly events: number; readonly suspects: number };
  readonly dead: readonly DeadGroup[];
  readonly schemaVersion: number;
  /** Of stores that have something to watch. */
  readonly watch?: Watch;
}

export interface RelayStatus {
  readonly relay: string;
  readonly live: boolean;
  readonly expiresAt: Date;
  readonly lanes: readonly number[];
  /** Claimed and not settled now. */
  readonly window: number;
  /** The most it may have claimed and not settled at once: as many duplicates one fault may cause. */
  readonly windowLimit: number;
}

export interface HoldStatus {
  readonly aggregateType: string;
  readonly aggregateId: string;
  readonly why: string;
  readonly causeId: string | null;
  readonly since: Date;
  readonly releasing: boolean;
}

export interface BreakerStatus {
  readonly destination: string;
  readonly why: string;
  readonly since: Date;
  readonly aggregates: number;
}

export interface DeadGroup {
  readonly error: string;
  readonly events: number;
  readonly oldest: Date;
}
