/**
 * Where a window could not send all of an aggregate. Windows are claimed ahead: one that was claimed before that was
 * settled may hold followers which the table would not give out any more, and they must not be sent. Events before
 * the stop may go: two windows that wait for each other's end would never finish.
 */
export interface Stops {
  /** One number for every claim and every finished settle, ascending. */
  tick(): number;
  /** The window sends nothing of this aggregate from this event on. */
  stop(window: string, aggregate: string, seq: bigint): void;
  settled(window: string): void;
  /** Must this event wait, in a window whose claim began at `claimedAt`? */
  waits(aggregate: string, seq: bigint, claimedAt: number): boolean;
}

interface Stop {
  readonly window: string;
  readonly seq: bigint;
  settledAt: number;
}

export function createStops(): Stops {
  let now = 0;
  const stops = new Map<string, Stop[]>();
  return {
    tick: () => ++now,
    stop(window, aggregate, seq) {
      stops.set(aggregate, [...(stops.get(aggregate) ?? []), { window, seq, settledAt: Infinity }]);
    },
    settled(window) {
      now++;
      for (const of of stops.values()) for (const stop of of) if (stop.window === window) stop.settledAt = now;
    },
    waits(aggregate, seq, claimedAt) {
      const still = (stops.get(aggregate) ?? []).filter((stop) => stop.settledAt >= claimedAt);
      if (still.length === 0) stops.delete(aggregate);
      else stops.set(aggregate, still);
      return still.some((stop) => stop.seq < seq);
    },
  };
}
