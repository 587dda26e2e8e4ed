import type {
  Action,
  ActionReport,
  DeadFilter,
  EventFilter,
  EventRecord,
  Operator,
  PurgeOptions,
  WholeEvent,
} from "../../contracts/operator.ts";
import { archiveBounds, archiveEvents, purgeWith } from "../kit/purge.ts";
import { listedBytes } from "../kit/records.ts";
import type { Clock } from "../../core/clock.ts";
import { refuseOthers } from "../kit/operator.ts";
import { withinBytes } from "../../core/within-bytes.ts";
import { bytesOf, weightOf } from "./claim.ts";
import { startReleasing } from "./holds.ts";
import { stateOf, statusOf } from "./status.ts";
import { enqueue, type StoredEvent, type Tables } from "./tables.ts";
import { told } from "../../core/reason.ts";

const purgeBatch = 10_000;

export function createOperator(tables: Tables, clock: Clock): Operator {
  const act = (action: "redrive" | "discard", filter: DeadFilter, by: Action, change: (event: StoredEvent) => void): ActionReport => {
    refuseOthers(filter.ids ?? [], (id) => tables.byId.get(id)?.status);
    const dead = [...tables.events.values()].filter((event) => event.status === "DEAD" && matches(event, filter));
    const ids = dead.map(({ row }) => row.id);
    const report = { events: dead.length, followers: followersOf(tables, dead), ids };
    if (by.dryRun || dead.length === 0) return report;
    for (const event of dead) change(event);
    tables.audit.push({ at: new Date(clock.now()), who: by.who, action, events: dead.length, ids });
    return report;
  };

  return {
    status: async () => statusOf(tables, clock),
    list: async (filter) => {
      const found: EventRecord[] = [];
      for (const event of [...tables.events.values()].reverse()) {
        if (found.length >= filter.limit) break;
        if (listed(tables, event, filter, clock)) found.push(withoutLarge(toRecord(tables, event, clock)));
      }
      return found;
    },
    show: async (id) => {
      const event = tables.byId.get(id);
      return event === undefined ? null : toRecord(tables, event, clock);
    },
    redrive: async (filter, by) =>
      act("redrive", filter, by, (event) => {
        Object.assign(event, { status: "PENDING", retryCount: 0, nextAttemptAt: null });
        enqueue(tables, event);
      }),
    discard: async (filter, by) =>
      act("discard", filter, by, (event) => {
        event.status = "DISCARDED";
        const held = tables.holds.get(event.aggregate);
        if (held?.causeSeq === event.seq) startReleasing(tables, held);
      }),
    purge: (before, by, options) => purge(tables, clock, before, by, options),
  };
}

function purge(tables: Tables, clock: Clock, before: Date, by: Action, options?: PurgeOptions): Promise<number> {
  const old = [...tables.events.values()].filter((event) => (endedAt(event) ?? Infinity) < before.getTime());
  const remove = (events: Iterable<{ readonly seq: bigint }>): number => {
    let removed = 0;
    for (const { seq } of events) {
      const event = tables.events.get(seq);
      if (event === undefined) continue;
      tables.events.delete(seq);
      tables.byId.delete(event.row.id);
      removed++;
    }
    return removed;
  };
  const batch = (from: number, taken: number): { mark: number; more: boolean } => ({ mark: from + taken, more: from + taken < old.length });
  return purgeWith<"all", number>(
    {
      kinds: ["all"],
      begin: 0,
      count: async () => old.length,
      purge: async (_, from) => ({ purged: remove(old.slice(from, from + purgeBatch)), ...batch(from, purgeBatch) }),
      next: async (_, from) => {
        const some = withinBytes(old.slice(from, from + archiveEvents), archiveBounds, weightOf);
        const there = some.filter(({ seq }) => tables.events.has(seq));
        return { stored: there.map((event) => ({ record: toRecord(tables, event, clock), isText: false })), ...batch(from, some.length) };
      },
      read: async () => new Uint8Array(0),
      remove: async (_, events) => remove(events),
      audit: async (events) => void tables.audit.push({ at: new Date(clock.now()), who: by.who, action: "purge", events, ids: [] }),
      forgetKeys: async (retentionMs, from) => {
        for (const [key, { usedAt }] of tables.keys) if (usedAt < clock.now() - retentionMs) tables.keys.delete(key);
        return { mark: from, more: false };
      },
    },
    by,
    options,
  );
}

function endedAt(event: StoredEvent): number | null {
  if (event.status === "PUBLISHED") return event.publishedAt;
  return event.status === "DISCARDED" ? event.createdAt : null;
}

function matches({ row, failure }: StoredEvent, { ids, aggregateType, aggregateId, type, error }: DeadFilter): boolean {
  return (
    (ids === undefined || ids.includes(row.id)) &&
    (aggregateType === undefined || aggregateType === row.aggregateType) &&
    (aggregateId === undefined || aggregateId === row.aggregateId) &&
    (type === undefined || type === row.type) &&
    (error === undefined || (failure !== null && told(failure).startsWith(error)))
  );
}

function followersOf(tables: Tables, dead: readonly StoredEvent[]): number {
  let followers = 0;
  for (const { aggregate, seq } of dead) {
    const held = tables.holds.get(aggregate);
    if (held?.causeSeq === seq) followers += held.blocked.length;
  }
  return followers;
}

const listed = (tables: Tables, event: StoredEvent, filter: EventFilter, clock: Clock): boolean =>
  (filter.beforeSeq === undefined || event.seq < filter.beforeSeq) &&
  (filter.state === undefined || filter.state === stateOf(tables, event, clock)) &&
  matches(event, filter);

const withoutLarge = (event: WholeEvent): EventRecord => (event.payloadBytes > listedBytes ? { ...event, payload: null } : event);

function toRecord(tables: Tables, event: StoredEvent, clock: Clock): WholeEvent {
  const { row, seq, lane, createdAt, retryCount, nextAttemptAt, failure, publishedAt } = event;
  const state = stateOf(tables, event, clock);
  const held = tables.holds.get(event.aggregate);
  const isHeld = held !== undefined && ["PENDING", "FAILED", "BLOCKED", "DEAD"].includes(event.status);
  return {
    ...row,
    payload: typeof row.payload === "string" ? row.payload : Uint8Array.from(row.payload),
    payloadBytes: bytesOf(event),
    headers: { ...row.headers },
    seq,
    lane,
    createdAt: new Date(createdAt),
    availableAt: row.availableAt === null ? null : new Date(row.availableAt),
    state,
    retryCount,
    nextAttemptAt: nextAttemptAt === null ? null : new Date(nextAttemptAt),
    lastError: failure?.error ?? null,
    errorCode: textOrNull(failure?.code),
    errorDetail: textOrNull(failure?.detail),
    publishedAt: publishedAt === null ? null : new Date(publishedAt),
    owner: state === "PUBLISHING" ? event.window!.relay : null,
    hold: isHeld ? held.why : null,
  };
}

const textOrNull = (text: string | undefined): string | null => (text === undefined || text === "" ? null : text);
