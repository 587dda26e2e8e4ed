import type { Parcel } from "./parcel.ts";

/**
 * Keeps promise O in a relay, and nothing else does: no event is sent before its aggregate's earlier event is stored, or behind one that
 * was not.
 *
 * Windows are claimed ahead. Until an event that was not published is settled, claims take its followers as if nothing had happened. So a
 * window whose claim began before that settle ended may hold some, and they go back. Events before the stop may go: two windows that wait
 * for each other's end would never finish.
 */
export interface Order {
  /** One number for every claim and every finished settle, ascending. */
  tick(): number;
  /** "wait": it comes back from `published` or `stopped` of an earlier event. "back": it must not be sent. */
  admit(parcel: Parcel): "go" | "wait" | "back";
  /** The next event of the aggregate, if one waits. */
  published(parcel: Parcel): Parcel | null;
  /** The event was not published. Its followers go back, and an earlier event that waits may be next. */
  stopped(parcel: Parcel): { readonly next: Parcel | null; readonly back: readonly Parcel[] };
  /** The outcomes of these stopped events are durable. */
  settled(parcels: readonly Parcel[]): void;
  /** No window is open: every settle that ended did so before all claims to come. */
  forget(): void;
}

interface Stop {
  readonly parcel: Parcel;
  settledAt: number;
}

export function createOrder(): Order {
  let now = 0;
  /** By aggregate, the last parcel that is on its way; `next` leads from the first to it. */
  const last = new Map<string, Parcel>();
  const stops = new Map<string, Stop[]>();

  const note = (parcel: Parcel): void => {
    const known = stops.get(parcel.aggregate);
    const stop = { parcel, settledAt: Infinity };
    if (known === undefined) stops.set(parcel.aggregate, [stop]);
    else known.push(stop);
  };
  const isStopped = ({ aggregate, envelope, window }: Parcel): boolean => {
    const known = stops.get(aggregate);
    if (known === undefined) return false;
    const still = known.filter(({ settledAt }) => settledAt >= window.claimedAt);
    if (still.length === 0) stops.delete(aggregate);
    else stops.set(aggregate, still);
    return still.some(({ parcel }) => parcel.envelope.seq < envelope.seq);
  };
  /** Takes the first of an aggregate's parcels out. */
  const leave = (parcel: Parcel): Parcel | null => {
    const { aggregate, next } = parcel;
    if (next === null) last.delete(aggregate);
    parcel.next = null;
    return next;
  };

  return {
    tick: () => ++now,
    admit(parcel) {
      if (stops.size > 0 && isStopped(parcel)) {
        note(parcel);
        return "back";
      }
      const before = last.get(parcel.aggregate);
      last.set(parcel.aggregate, parcel);
      if (before === undefined) return "go";
      before.next = parcel;
      return "wait";
    },
    published: leave,
    stopped(parcel) {
      note(parcel);
      const back: Parcel[] = [];
      let first: Parcel | null = null;
      let end: Parcel | null = null;
      for (let each = leave(parcel); each !== null;) {
        const { next }: Parcel = each;
        each.next = null;
        // What is at the broker has a result of its own.
        if (each.sent || each.envelope.seq < parcel.envelope.seq) {
          if (end === null) first = each;
          else end.next = each;
          end = each;
        } else {
          note(each);
          back.push(each);
        }
        each = next;
      }
      if (end === null) last.delete(parcel.aggregate);
      else last.set(parcel.aggregate, end);
      return { next: first, back };
    },
    settled(parcels) {
      now++;
      const done = new Set(parcels);
      for (const aggregate of new Set(parcels.map((parcel) => parcel.aggregate)))
        for (const stop of stops.get(aggregate) ?? []) if (done.has(stop.parcel)) stop.settledAt = now;
    },
    forget() {
      for (const [aggregate, of] of stops) if (of.every(({ settledAt }) => settledAt !== Infinity)) stops.delete(aggregate);
    },
  };
}
