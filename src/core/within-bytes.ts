import { WaybillError } from "./errors.ts";

/** Of a window's bytes, and of each event's payload. */
export interface ByteBounds {
  readonly bytes: number;
  readonly largest: number;
}

/** In bytes. */
export interface Weight {
  readonly payload: number;
  readonly headers: number;
}

/** A process of Node may not be able to hold the payload of a row above this at all. */
const mostReadable = 256 * 1024 * 1024;

export const boundsOf = ({ bytes = Infinity, largest = Infinity }: Partial<ByteBounds>): ByteBounds => ({
  bytes,
  largest: Math.min(largest, mostReadable),
});

/** Whether nobody will ever read this payload: the sink does not take it, or a process cannot hold it. */
export const isRefused = (payload: number, { largest }: Pick<ByteBounds, "largest">): boolean => payload > largest;

/** How many bytes of a window the event takes. A refused one brings its headers only. */
export const costOf = ({ payload, headers }: Weight, bounds: ByteBounds): number => headers + (isRefused(payload, bounds) ? 0 : payload);

/** Whether its payload is not read with it. */
export const isUnread = (weight: Weight, bounds: ByteBounds): boolean =>
  isRefused(weight.payload, bounds) || weight.payload + weight.headers > bounds.bytes;

/** The longest run from the first on that stays within the bounds; an event that is to be read and alone has more goes alone. */
export function withinBytes<Item>(items: readonly Item[], bounds: ByteBounds, weigh: (item: Item) => Weight): readonly Item[] {
  let sum = 0;
  for (const [at, item] of items.entries()) {
    sum += costOf(weigh(item), bounds);
    if (sum > bounds.bytes) return items.slice(0, Math.max(1, at));
  }
  return items;
}

export const deletedUnread = (): WaybillError => new WaybillError("ROW_UNREADABLE", "the row was deleted before its payload was read");

/** Why the payload of such a row is not even read; null: it may be. */
export const tooLargeToRead = (bytes: number): string | null =>
  bytes > mostReadable ? `the payload takes ${bytes} bytes, more than the ${mostReadable} that can be read` : null;
