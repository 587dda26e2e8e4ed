import type { Action, ActionReport, DeadFilter, EventFilter, EventRecord, Operator } from "../../contracts/operator.ts";
import type { Clock } from "../../core/clock.ts";
import { WaybillError } from "../../core/errors.ts";
import { startReleasing } from "./holds.ts";
import { stateOf, statusOf } from "./status.ts";
import { enqueue, type StoredEvent, type Tables } from "./tables.ts";

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
    status: async () => statusOf(tables, clock.now()),
    list: async (filter) => {
      const now = clock.now();
      const found: EventRecord[] = [];
      for (const event of [...tables.events.values()].reverse()) {
        if (found.length >= filter.limit) break;
        if (listed(tables, event, filter, now)) found.push(toRecord(tables, event, now));
      }
      return found;
    },
    show: async (id) => {
      const event = tables.byId.get(id);
      return event === undefined ? null : toRecord(tables, event, clock.now());
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
    purge: async (before, by) => {
      const old = [...tables.events.values()].filter((event) => (endedAt(event) ?? Infinity) < before.getTime());
      if (by.dryRun) return old.length;
      for (const { seq, row } of old) {
        tables.events.delete(seq);
        tables.byId.delete(row.id);
      }
      const now = clock.now();
      for (const [key, { usedAt }] of tables.keys) if (usedAt < now - keyRetentionMs) tables.keys.delete(key);
      if (old.length > 0) tables.audit.push({ at: new Date(now), who: by.who, action: "purge", events: old.length, ids: [] });
      return old.length;
    },
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

function listed(tables: Tables, event: StoredEvent, filter: EventFilter, now: number): boolean {
  const { row, seq } = event;
  return (
    (filter.beforeSeq === undefined || seq < filter.beforeSeq) &&
    (filter.aggregateType === undefined || filter.aggregateType === row.aggregateType) &&
    (filter.aggregateId === undefined || filter.aggregateId === row.aggregateId) &&
    (filter.type === undefined || filter.type === row.type) &&
    (filter.state === undefined || filter.state === stateOf(tables, event, now))
  );
}

function toRecord(tables: Tables, event: StoredEvent, now: number): EventRecord {
  const { row, seq, lane, createdAt, retryCount, nextAttemptAt, lastError, publishedAt } = event;
  const state = stateOf(tables, event, now);
  const held = tables.holds.get(event.aggregate);
  const waits = state === "BLOCKED" || held?.causeSeq === seq;
  return {
    ...row,
    payload: typeof row.payload === "string" ? row.payload : Uint8Array.from(row.payload),
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
    hold: held !== undefined && waits && state !== "PUBLISHED" && state !== "DISCARDED" ? held.why : null,
  };
}
