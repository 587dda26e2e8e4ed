import type { Parcel, Stop } from "./parcel.ts";

/**
 * Keeps promise O in a relay, and nothing else does: no event is sent before its aggregate's earlier event is stored, or behind one that
 * was not.
 *
 * Windows are read ahead. Until an event that was not published is settled, reads take its followers as if nothing had happened. So a
 * window whose read began before that settle ended may hold some, and they go back. Events before the stop may go: two windows that wait
 * for each other's end would never finish.
 */
export interface Order {
  /** "wait": it comes back from `published` or `stopped` of an earlier event. "back": it must not be sent. */
  admit(parcel: Parcel): "go" | "wait" | "back";
  /** The next event of the aggregate, if one waits. */
  published(parcel: Parcel): Parcel | null;
  /** The event was not published. Its followers go back, and an earlier event that waits may be next. */
  stopped(parcel: Parcel): { readonly next: Parcel | null; readonly back: readonly Parcel[] };
  /** The outcomes of these stopped events are durable at this moment. */
  settled(parcels: readonly Parcel[], at: number): void;
}

export function createOrder(): Order {
  /** By aggregate, the last parcel that is on its way; `next` leads from the first to it. */
  const last = new Map<string, Parcel>();
  /** By aggregate, what was not published, until a window comes whose read began after it was settled. */
  const stops = new Map<string, Set<Stop>>();
  const settled: { readonly at: number; readonly stops: readonly Stop[] }[] = [];

  const note = (parcel: Parcel): void => {
    const { aggregate, envelope } = parcel;
    const stop = (parcel.stop = { seq: envelope.seq, aggregate });
    const known = stops.get(aggregate);
    if (known === undefined) stops.set(aggregate, new Set([stop]));
    else known.add(stop);
  };
  /** What was settled before a window's read began stops no event of that window, nor of a later one. */
  const forgetBefore = (asOf: number): void => {
    for (; settled.length > 0 && settled[0]!.at < asOf; settled.shift()) {
      for (const stop of settled[0]!.stops) {
        const known = stops.get(stop.aggregate);
        known?.delete(stop);
        if (known?.size === 0) stops.delete(stop.aggregate);
      }
    }
  };
  const isStopped = ({ aggregate, envelope }: Parcel): boolean => {
    for (const { seq } of stops.get(aggregate) ?? []) if (seq < envelope.seq) return true;
    return false;
  };
  /** Takes the first of an aggregate's parcels out. */
  const leave = (parcel: Parcel): Parcel | null => {
    const { aggregate, next } = parcel;
    if (next === null) last.delete(aggregate);
    parcel.next = null;
    return next;
  };

  return {
    admit(parcel) {
      if (settled.length > 0) forgetBefore(parcel.window.asOf);
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
    settled: (parcels, at) => void settled.push({ at, stops: parcels.flatMap(({ stop }) => stop ?? []) }),
  };
}
