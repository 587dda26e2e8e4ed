import type { Envelope, State } from "../core/event.ts";
import type { Watch } from "./housekeeping.ts";

/** What an operator may look at and do. The data path does not use it. */
export interface Operator {
  status(): Promise<Status>;
  /** Newest first, one page at a time. Payloads above 64 KiB are left out, so that a large event does not keep others from being listed. */
  list(filter: EventFilter): Promise<readonly EventRecord[]>;
  /** The event with its payload, unless the payload cannot be read at all. */
  show(id: string): Promise<EventRecord | null>;
  /** Publishes DEAD events again, each before its blocked followers, with attempts counted from zero. */
  redrive(filter: DeadFilter, by: Action): Promise<ActionReport>;
  /** Gives DEAD events up. They stay as DISCARDED, and their followers are released in order. */
  discard(filter: DeadFilter, by: Action): Promise<ActionReport>;
  /** Deletes published and discarded events that are older than this, in small batches, and no other events. Answers how many. */
  purge(before: Date, by: Action, options?: PurgeOptions): Promise<number>;
}

export interface PurgeOptions {
  /** Receives every batch before purge deletes it. When it fails, the batch stays, and purge rejects with the failure. */
  readonly archive?: Archive;
  /**
   * Called for each event that stays because its payload could not be read for the archive, with the reason. The next purge tries it
   * again. Without this function, purge rejects with ROW_UNREADABLE when everything else is done.
   */
  kept?(event: EventRecord, why: string): void;
  /** How long an idempotency key is kept. Purge deletes older keys too. @default 7 days */
  readonly keyRetentionMs?: number;
  /** Awaited between two batches, so that other work gets its turn. */
  pause?(): Promise<void>;
  /** When it aborts, purge ends before the next batch. It does not wait for a running archive call, whose batch stays. */
  readonly signal?: AbortSignal;
}

/**
 * Keeps events elsewhere. Each call receives up to 500 events with up to 8 MiB of payloads, or one event whose payload alone takes more.
 * It may receive an event again when the deletion failed.
 */
export type Archive = (events: readonly WholeEvent[]) => Promise<void>;

export interface EventFilter {
  readonly state?: State;
  readonly aggregateType?: string;
  readonly aggregateId?: string;
  readonly type?: string;
  /** Events whose error begins with this, as in DeadFilter. */
  readonly error?: string;
  /** Only events with a lower seq. For the next page, pass the last seq of this one. */
  readonly beforeSeq?: bigint;
  readonly limit: number;
}

/** Ids, or every dead event that matches. An empty filter matches all of them. */
export interface DeadFilter {
  readonly ids?: readonly string[];
  readonly aggregateType?: string;
  readonly aggregateId?: string;
  readonly type?: string;
  /** Events whose error, as DeadGroup shows it, begins with this: a code, the first words of an error, or all of it. */
  readonly error?: string;
}

export interface Action {
  /** The name that the audit records. */
  readonly who: string;
  /** Reports what would be done, and changes nothing. */
  readonly dryRun: boolean;
}

export interface ActionReport {
  readonly events: number;
  /** Events that are BLOCKED behind them. */
  readonly followers: number;
  readonly ids: readonly string[];
}

/** A stored event as an operator sees it. */
export interface EventRecord extends Omit<Envelope, "data"> {
  /** Null where it was not read: above 64 KiB in a list, and otherwise when it is too large for any process to read. */
  readonly payload: string | Uint8Array | null;
  readonly payloadBytes: number;
  readonly lane: number | null;
  readonly availableAt: Date | null;
  readonly state: State;
  readonly retryCount: number;
  readonly nextAttemptAt: Date | null;
  /** The last attempt's error, without ids. Null where no attempt failed. Plain SQL may have written it without a code. */
  readonly lastError: string | null;
  /** Such as MESSAGE_TOO_LARGE. Null where there is none. */
  readonly errorCode: string | null;
  /** The whole message. Null where `lastError` leaves nothing out. */
  readonly errorDetail: string | null;
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
  /** The states whose count is an estimate. Beyond 100,000, rows are not counted one by one. */
  readonly estimated: readonly State[];
  /** Age of the oldest event that is not published, dead or discarded. Null when there is none. */
  readonly oldestUnpublishedMs: number | null;
  readonly oldest: OldestStatus;
  readonly relays: readonly RelayStatus[];
  readonly lanes: { readonly total: number; readonly owned: number; readonly free: number };
  readonly holds: { readonly aggregates: number; readonly blocked: number; readonly list: readonly HoldStatus[] };
  /** Topics that events wait for. */
  readonly breakers: readonly BreakerStatus[];
  /** Claimed and not settled, over all relays. */
  readonly window: { readonly events: number; readonly suspects: number };
  readonly dead: readonly DeadGroup[];
  readonly schemaVersion: number;
  /** Present for stores whose log a relay can read. */
  readonly tail?: TailStatus;
  /** Present for stores that have something to watch. */
  readonly watch?: Watch;
}

/** What the tables know of a relay that reads the database's log. */
export interface TailStatus {
  /** The relay that reads the log. Null: relays poll. */
  readonly relay: string | null;
  /** Of the events that the log brought, those up to this number are published, although their rows still say PENDING. 0: the log was never read. */
  readonly floor: bigint;
  /** Where the last relay stopped in order, and the next one may begin to read. */
  readonly position: string | null;
}

/** How long the oldest events have been waiting, by what they wait for. Null when there is none. */
export interface OldestAges {
  /** Due, and a relay may publish it now or has it in its window. A delayed event counts from the moment when it is due. */
  readonly claimableMs: number | null;
  /** BLOCKED: it waits for an event of its aggregate, or for its topic. */
  readonly blockedMs: number | null;
  readonly deadMs: number | null;
}

export interface OldestStatus extends OldestAges {
  /** The same for each aggregate type, the longest wait first. At most 100 types, and only types among the events that status looks at. */
  readonly types: readonly ({ readonly aggregateType: string } & OldestAges)[];
}

export interface RelayStatus {
  readonly relay: string;
  readonly live: boolean;
  readonly expiresAt: Date;
  readonly lanes: readonly number[];
  /** Claimed and not settled now. */
  readonly window: number;
  /** The most it may have claimed and not settled at once. One fault causes at most that many duplicates. */
  readonly windowLimit: number;
}

export interface HoldStatus {
  readonly aggregateType: string;
  readonly aggregateId: string;
  readonly why: string;
  /** The topic that the aggregate waits for. Null when it waits for its cause. */
  readonly destination: string | null;
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

/** Dead events of one cause. */
export interface DeadGroup {
  /** Code and text: "MESSAGE_TOO_LARGE: …". A filter's `error` takes it. */
  readonly error: string;
  /** The id of one of them. */
  readonly example: string;
  readonly events: number;
  readonly oldest: Date;
}
