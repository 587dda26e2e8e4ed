import type { Outcome, OutboxStore, SettleReport } from "../../contracts/outbox-store.ts";
import type { Clock } from "../../core/clock.ts";
import { otherTopics } from "../../core/other-topics.ts";
import { deletedUnread } from "../../core/within-bytes.ts";
import { fenced, seqOf } from "../kit/settle.ts";
import { claim, dataOf, ownedLanes } from "./claim.ts";
import { hold, holdFor, startReleasing, unblock } from "./holds.ts";
import { isFinal, leaveWindow, type HoldRow, type LaneState, type StoredEvent, type Tables } from "./tables.ts";
import { told } from "../../core/reason.ts";

export function createOutboxStore(tables: Tables, clock: Clock): OutboxStore {
  return {
    claim: async (holding, request) => claim(tables, holding, request, clock.now()),
    payload: async ({ envelope: { seq } }) => {
      const event = tables.events.get(seq);
      if (event === undefined) throw deletedUnread();
      return dataOf(event);
    },
    settle: async (relay, window, outcomes) => settle(tables, relay, window, outcomes, clock.now()),
    release: async (holding, destination, limit) => {
      const waiting: HoldRow[] = [];
      const lanes = ownedLanes(tables, holding);
      for (const { destinations } of lanes) {
        const held = destinations.get(destination);
        if (held !== undefined) waiting.push(...[...held].slice(0, limit));
      }
      const released = waiting.sort((a, b) => a.since - b.since).slice(0, limit);
      for (const held of released) startReleasing(tables, held);
      const waits = ({ destinations, records }: LaneState): boolean =>
        destination === otherTopics ? [...destinations.keys()].some((topic) => !records.has(topic)) : destinations.has(destination);
      for (const lane of lanes) if (!waits(lane)) lane.records.delete(destination);
      return released.length;
    },
    waitingFor: async (after, limit) => topicsAfter(tables, after, limit),
  };
}

/** One look at each topic: sorting 100,000 of them for every page of 32 would take most of the relay's time. */
function topicsAfter({ lanes }: Tables, after: string, limit: number): string[] {
  const found: string[] = [];
  for (const { destinations } of lanes) {
    for (const topic of destinations.keys()) {
      if (byBytes(topic, after) <= 0) continue;
      const last = found.at(-1);
      if (last !== undefined && found.length >= limit && byBytes(topic, last) >= 0) continue;
      const at = found.findIndex((other) => byBytes(topic, other) <= 0);
      if (found[at] === topic) continue; // it has aggregates in several lanes
      found.splice(at === -1 ? found.length : at, 0, topic);
      if (found.length > limit) found.pop();
    }
  }
  return found;
}

/** As their UTF-8 bytes compare. In UTF-16, characters beyond U+FFFF stand before those from U+E000 on. */
function byBytes(a: string, b: string): number {
  const shorter = Math.min(a.length, b.length);
  for (let at = 0; at < shorter; at++) {
    const x = a.charCodeAt(at);
    const y = b.charCodeAt(at);
    if (x !== y) return place(x) - place(y);
  }
  return a.length - b.length;
}

const place = (unit: number): number => (unit < 0xd800 ? unit : unit < 0xe000 ? unit + 0x2000 : unit - 0x800);

function settle(tables: Tables, relay: string, id: string, outcomes: readonly Outcome[], now: number): SettleReport {
  const window = tables.windows.get(id);
  const open = window?.relay === relay ? window : undefined;
  const owned = new Map(tables.lanes.filter(({ owner }) => owner === relay).map(({ lane, epoch }) => [lane, epoch]));
  const { mine, lost } = fenced(outcomes, owned, () => open !== undefined);
  let settled = 0;
  for (const outcome of [...mine].sort(bySeq)) {
    const event = tables.events.get(seqOf(outcome));
    if (open === undefined || event?.window !== open) continue;
    leaveWindow(tables, open, event);
    if (isFinal(event)) continue;
    apply(tables, event, outcome, now);
    settled++;
  }
  return { settled, lost };
}

function apply(tables: Tables, event: StoredEvent, outcome: Outcome, now: number): void {
  if (outcome.as !== "returned") {
    unblock(tables, event);
    tables.suspects.delete(event.seq);
  }
  const held = tables.holds.get(event.aggregate);
  switch (outcome.as) {
    case "published":
      Object.assign(event, { status: "PUBLISHED", publishedAt: now, nextAttemptAt: null });
      if (held?.causeSeq === event.seq) startReleasing(tables, held);
      return;
    case "retry":
      Object.assign(event, {
        status: "FAILED",
        retryCount: event.retryCount + 1,
        nextAttemptAt: now + outcome.afterMs,
        failure: outcome,
      });
      hold(tables, event, told(outcome), null, now);
      return;
    case "parked":
      Object.assign(event, { status: "DEAD", retryCount: event.retryCount + 1, nextAttemptAt: null, failure: outcome });
      if (!outcome.release) hold(tables, event, told(outcome), null, now);
      else if (held?.causeSeq === event.seq) startReleasing(tables, held);
      return;
    case "returned":
      if (outcome.destination !== undefined) holdFor(tables, event, outcome.destination, now);
  }
}

const bySeq = (a: Outcome, b: Outcome): number => (seqOf(a) < seqOf(b) ? -1 : 1);
