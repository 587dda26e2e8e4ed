import type { BreakerStatus, DeadGroup, HoldStatus, RelayStatus, Status } from "../../contracts/operator.ts";
import type { Clock } from "../../core/clock.ts";
import type { State } from "../../core/event.ts";
import { LANES } from "../../core/lane.ts";
import { breakersOf, noEvents, oldestOf, shown, type Wait } from "../kit/status.ts";
import { isLive, type RelayLease, type StoredEvent, type Tables } from "./tables.ts";
import { told } from "../../core/reason.ts";

/** PENDING and FAILED events that a live relay has in hand show as PUBLISHING. */
export function stateOf(tables: Tables, event: StoredEvent, clock: Clock): State {
  const claimable = event.status === "PENDING" || event.status === "FAILED";
  return claimable && event.window !== null && isLive(tables, event.window.relay, clock) ? "PUBLISHING" : event.status;
}

export function statusOf(tables: Tables, clock: Clock): Status {
  const now = clock.now();
  const counts = noEvents();
  const waiting = new Map<string, { readonly wait: Wait; readonly aggregateType: string; ageMs: number }>();
  for (const event of tables.events.values()) {
    counts[stateOf(tables, event, clock)]++;
    const wait = waitOf(event, now);
    if (wait === null) continue;
    const { aggregateType } = event.row;
    // A delayed event is late only from the moment it is due.
    const ageMs = now - Math.max(event.createdAt, event.row.availableAt?.getTime() ?? 0);
    const group = waiting.get(`${wait} ${aggregateType}`);
    if (group === undefined) waiting.set(`${wait} ${aggregateType}`, { wait, aggregateType, ageMs });
    else group.ageMs = Math.max(group.ageMs, ageMs);
  }
  const owned = tables.lanes.filter(({ owner }) => owner !== null && isLive(tables, owner, clock)).length;
  return {
    states: counts,
    estimated: [],
    ...oldestOf([...waiting.values()]),
    relays: [...tables.relays].map(([relay, lease]) => relayStatus(tables, relay, lease, clock)),
    lanes: { total: LANES, owned, free: LANES - owned },
    holds: { aggregates: tables.holds.size, blocked: counts.BLOCKED, list: holdList(tables) },
    breakers: breakers(tables),
    window: { events: inWindows(tables), suspects: tables.suspects.size },
    dead: deadGroups(tables),
    schemaVersion: 1,
  };
}

function waitOf({ status, nextAttemptAt, row }: StoredEvent, now: number): Wait | null {
  if (status === "PENDING") return (row.availableAt?.getTime() ?? 0) <= now ? "claimable" : "later";
  if (status === "FAILED") return (nextAttemptAt ?? 0) <= now ? "claimable" : "later";
  return status === "BLOCKED" ? "blocked" : status === "DEAD" ? "dead" : null;
}

function inWindows(tables: Tables, relay?: string): number {
  let events = 0;
  for (const window of tables.windows.values()) {
    if (relay !== undefined && window.relay !== relay) continue;
    for (const part of window.lanes.values()) events += part.size;
  }
  return events;
}

function relayStatus(tables: Tables, relay: string, lease: RelayLease, clock: Clock): RelayStatus {
  return {
    relay,
    live: isLive(tables, relay, clock),
    expiresAt: new Date(clock.now() + lease.endsAt - clock.monotonic()),
    lanes: tables.lanes.filter(({ owner }) => owner === relay).map(({ lane }) => lane),
    window: inWindows(tables, relay),
    windowLimit: lease.window,
  };
}

function holdList(tables: Tables): HoldStatus[] {
  const oldest = [...tables.holds.values()].sort((a, b) => a.since - b.since).slice(0, shown);
  return oldest.map(({ aggregateType, aggregateId, why, destination, causeSeq, since, freeTo }) => ({
    aggregateType,
    aggregateId,
    why,
    destination,
    causeId: tables.events.get(causeSeq)?.row.id ?? null,
    since: new Date(since),
    releasing: freeTo !== null,
  }));
}

function breakers(tables: Tables): readonly BreakerStatus[] {
  const found = new Map<string, { why: string; since: number; aggregates: number }>();
  let all = 0;
  for (const { destinations, records } of tables.lanes) {
    for (const waiting of destinations.values()) all += waiting.size;
    for (const [destination, { why, since }] of records) {
      const sum = found.get(destination);
      found.set(destination, {
        why: sum !== undefined && sum.since <= since ? sum.why : why,
        since: Math.min(since, sum?.since ?? Infinity),
        aggregates: (destinations.get(destination)?.size ?? 0) + (sum?.aggregates ?? 0),
      });
    }
  }
  const own = [...found].map(([destination, { why, since, aggregates }]) => ({ destination, why, since: new Date(since), aggregates }));
  return breakersOf(own, all);
}

function deadGroups(tables: Tables): DeadGroup[] {
  const groups = new Map<string, { events: number; oldest: number; example: string }>();
  for (const { status, failure, createdAt, row } of tables.events.values()) {
    if (status !== "DEAD") continue;
    const error = failure === null ? "" : told(failure);
    const { events = 0, oldest = Infinity, example = row.id } = groups.get(error) ?? {};
    groups.set(error, { events: events + 1, oldest: Math.min(createdAt, oldest), example });
  }
  return [...groups]
    .map(([error, { oldest, ...group }]) => ({ error, ...group, oldest: new Date(oldest) }))
    .sort((a, b) => b.events - a.events);
}
