import { aggregateKey } from "../core/event.ts";
import type { Part } from "./feed.ts";

/**
 * Where a part of a window could not send all of an aggregate. Windows are claimed ahead: one that was claimed before
 * that was settled may hold followers which the table would not give out any more, and they must not be sent. Events
 * before the stop may go: two windows that wait for each other's end would never finish.
 */
export interface Stops {
  /** One number for every claim and every finished settle, ascending. */
  tick(): number;
  /** The part sends nothing of this aggregate from this event on. */
  stop(part: Part, aggregate: string, seq: bigint): void;
  settled(part: Part): void;
  /** No window is open: whatever is settled was settled before every claim to come. */
  forget(): void;
  /** Must this event wait, in a window whose claim began at `claimedAt`? */
  waits(aggregate: string, seq: bigint, claimedAt: number): boolean;
}

interface Stop {
  readonly part: Part;
  seq: bigint;
  settledAt: number;
}

export function createStops(): Stops {
  let now = 0;
  const stops = new Map<string, Stop[]>();
  return {
    tick: () => ++now,
    stop(part, aggregate, seq) {
      const known = stops.get(aggregate)?.find((stop) => stop.part === part);
      if (known !== undefined) {
        if (seq < known.seq) known.seq = seq;
        return;
      }
      stops.set(aggregate, [...(stops.get(aggregate) ?? []), { part, seq, settledAt: Infinity }]);
    },
    settled(part) {
      now++;
      for (const aggregate of new Set(part.claims.map(({ envelope }) => aggregateKey(envelope)))) {
        for (const stop of stops.get(aggregate) ?? []) if (stop.part === part) stop.settledAt = now;
      }
    },
    forget() {
      for (const [aggregate, of] of stops) if (of.every(({ settledAt }) => settledAt !== Infinity)) stops.delete(aggregate);
    },
    waits(aggregate, seq, claimedAt) {
      const still = (stops.get(aggregate) ?? []).filter((stop) => stop.settledAt >= claimedAt);
      if (still.length === 0) stops.delete(aggregate);
      else stops.set(aggregate, still);
      return still.some((stop) => stop.seq < seq);
    },
  };
}
