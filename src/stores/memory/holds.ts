import type { Destination } from "../../contracts/outbox-store.ts";
import { enqueue, type HoldRow, type StoredEvent, type Tables } from "./tables.ts";

const chunkSize = 1_000;

/** Holds the event's aggregate with the event as its cause. An existing hold gets this cause and stops releasing. */
export function hold(tables: Tables, event: StoredEvent, why: string, destination: string | null, now: number): void {
  const lane = tables.lanes[event.lane]!;
  let held = tables.holds.get(event.aggregate);
  if (held === undefined) {
    const { aggregateType, aggregateId } = event.row;
    held = {
      aggregate: event.aggregate,
      aggregateType,
      aggregateId,
      lane: event.lane,
      causeSeq: event.seq,
      destination,
      why,
      since: now,
      freeTo: null,
      blocked: [],
    };
    tables.holds.set(event.aggregate, held);
  }
  stopWaiting(tables, held);
  lane.releasing.delete(held);
  Object.assign(held, { causeSeq: event.seq, destination, why, since: now, freeTo: null });
  if (destination === null) return;
  let waiting = lane.destinations.get(destination);
  if (waiting === undefined) lane.destinations.set(destination, (waiting = new Set()));
  waiting.add(held);
}

/** Makes the event wait for a topic, or for the earlier cause that already holds its aggregate. */
export function holdFor(tables: Tables, event: StoredEvent, { topic, why, under = topic }: Destination, now: number): void {
  const held = tables.holds.get(event.aggregate);
  const byAnother = held !== undefined && held.freeTo === null && held.causeSeq !== event.seq;
  if (!byAnother) {
    hold(tables, event, why, topic, now);
    const { records } = tables.lanes[event.lane]!;
    records.set(under, { why, since: records.get(under)?.since ?? now });
  }
  block(tables, event);
}

export function block(tables: Tables, event: StoredEvent): void {
  const { blocked } = tables.holds.get(event.aggregate)!;
  if (event.status === "BLOCKED") return;
  event.status = "BLOCKED";
  let at = blocked.length;
  while (at > 0 && blocked[at - 1]!.seq > event.seq) at--;
  blocked.splice(at, 0, event);
}

/** A BLOCKED event that is settled all the same leaves its hold. */
export function unblock(tables: Tables, event: StoredEvent): void {
  const held = tables.holds.get(event.aggregate);
  if (event.status === "BLOCKED" && held !== undefined) held.blocked = held.blocked.filter((other) => other !== event);
}

export function startReleasing(tables: Tables, held: HoldRow): void {
  if (held.freeTo !== null) return;
  stopWaiting(tables, held);
  held.freeTo = 0n;
  tables.lanes[held.lane]!.releasing.add(held);
}

/** Lets the next chunk of each releasing hold go, in seq order; a hold ends only when nothing is BLOCKED behind it. */
export function releaseChunks(tables: Tables, lane: number): void {
  const { releasing } = tables.lanes[lane]!;
  for (const held of [...releasing]) {
    const chunk = held.blocked.splice(0, chunkSize);
    for (const event of chunk) {
      event.status = "PENDING";
      enqueue(tables, event);
    }
    const last = chunk.at(-1);
    if (last !== undefined && last.seq > held.freeTo!) held.freeTo = last.seq;
    if (held.blocked.length > 0) continue;
    releasing.delete(held);
    tables.holds.delete(held.aggregate);
  }
}

function stopWaiting(tables: Tables, held: HoldRow): void {
  if (held.destination === null) return;
  const { destinations, records } = tables.lanes[held.lane]!;
  const waiting = destinations.get(held.destination);
  waiting?.delete(held);
  if (waiting?.size !== 0) return;
  destinations.delete(held.destination);
  records.delete(held.destination);
}
