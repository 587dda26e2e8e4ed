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
import { inBatches } from "../kit/batches.ts";
import { archiveBounds, archiveEvents, listedBytes } from "../kit/records.ts";
import type { Clock } from "../../core/clock.ts";
import { WaybillError } from "../../core/errors.ts";
import { finished } from "../../core/signal.ts";
import { withinBytes } from "../../core/within-bytes.ts";
import { bytesOf, weightOf } from "./claim.ts";
import { startReleasing } from "./holds.ts";
import { stateOf, statusOf } from "./status.ts";
import { enqueue, type StoredEvent, type Tables } from "./tables.ts";

const purgeBatch = 10_000;
const keyRetentionMs = 7 * 24 * 60 * 60 * 1_000;

export function createOperator(tables: Tables, clock: Clock): Operator {
  const act = (action: "redrive" | "discard", filter: DeadFilter, by: Action, change: (event: StoredEvent) => void): ActionReport => {
    refuseOthers(tables, filter);
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

/** Named ids must exist and be dead: silence would look like success. */
function refuseOthers(tables: Tables, filter: DeadFilter): void {
  for (const id of filter.ids ?? []) {
    const event = tables.byId.get(id);
    if (event === undefined) throw new WaybillError("NOT_FOUND", `there is no event ${JSON.stringify(id)}`);
    if (event.status !== "DEAD")
      throw new WaybillError("WRONG_STATE", `event ${id} is ${event.status}, and only DEAD events can be redriven or discarded`);
  }
}

async function purge(tables: Tables, clock: Clock, before: Date, by: Action, options: PurgeOptions = {}): Promise<number> {
  const { archive, signal } = options;
  const old = [...tables.events.values()].filter((event) => (endedAt(event) ?? Infinity) < before.getTime());
  if (by.dryRun) return old.length;
  const next = (): readonly StoredEvent[] =>
    archive === undefined ? old.slice(0, purgeBatch) : withinBytes(old.slice(0, archiveEvents), archiveBounds, weightOf);
  let purged = 0;
  try {
    await inBatches(options, async () => {
      const batch = old.splice(0, next().length).filter(({ seq }) => tables.events.has(seq));
      if (archive !== undefined) {
        const records = batch.map((event) => toRecord(tables, event, clock));
        if (records.length > 0 && !(await finished(() => archive(records), signal))) return false;
      }
      for (const { seq, row } of batch) {
        if (!tables.events.delete(seq)) continue;
        tables.byId.delete(row.id);
        purged++;
      }
      return old.length > 0;
    });
  } finally {
    if (purged > 0) tables.audit.push({ at: new Date(clock.now()), who: by.who, action: "purge", events: purged, ids: [] });
  }
  const oldest = clock.now() - (options.keyRetentionMs ?? keyRetentionMs);
  for (const [key, { usedAt }] of tables.keys) if (usedAt < oldest) tables.keys.delete(key);
  return purged;
}

function endedAt(event: StoredEvent): number | null {
  if (event.status === "PUBLISHED") return event.publishedAt;
  return event.status === "DISCARDED" ? event.createdAt : null;
}

function matches({ row, lastError }: StoredEvent, { ids, aggregateType, aggregateId, type, error }: DeadFilter): boolean {
  return (
    (ids === undefined || ids.includes(row.id)) &&
    (aggregateType === undefined || aggregateType === row.aggregateType) &&
    (aggregateId === undefined || aggregateId === row.aggregateId) &&
    (type === undefined || type === row.type) &&
    (error === undefined || error === lastError)
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

function listed(tables: Tables, event: StoredEvent, filter: EventFilter, clock: Clock): boolean {
  const { row, seq } = event;
  return (
    (filter.beforeSeq === undefined || seq < filter.beforeSeq) &&
    (filter.aggregateType === undefined || filter.aggregateType === row.aggregateType) &&
    (filter.aggregateId === undefined || filter.aggregateId === row.aggregateId) &&
    (filter.type === undefined || filter.type === row.type) &&
    (filter.state === undefined || filter.state === stateOf(tables, event, clock))
  );
}

const withoutLarge = (event: WholeEvent): EventRecord => (event.payloadBytes > listedBytes ? { ...event, payload: null } : event);

function toRecord(tables: Tables, event: StoredEvent, clock: Clock): WholeEvent {
  const { row, seq, lane, createdAt, retryCount, nextAttemptAt, lastError, publishedAt } = event;
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
    lastError,
    publishedAt: publishedAt === null ? null : new Date(publishedAt),
    owner: state === "PUBLISHING" ? event.window!.relay : null,
    hold: isHeld ? held.why : null,
  };
}
