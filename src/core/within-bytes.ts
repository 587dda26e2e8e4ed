import { WaybillError } from "./errors.ts";

/** Bounds for a window's bytes, and for each event's payload. */
export interface ByteBounds {
  readonly bytes: number;
  readonly largest: number;
}

/** In bytes. */
export interface Weight {
  readonly payload: number;
  readonly headers: number;
}

/** A Node process may be unable to hold a payload above this at all. */
const mostReadable = 256 * 1024 * 1024;

export const boundsOf = ({ bytes = Infinity, largest = Infinity }: Partial<ByteBounds>): ByteBounds => ({
  bytes,
  largest: Math.min(largest, mostReadable),
});

/** Whether this payload is never read: the sink does not take it, or a process cannot hold it. */
export const isRefused = (payload: number, { largest }: Pick<ByteBounds, "largest">): boolean => payload > largest;

/** How many bytes of a window the event takes. Of a refused event, only the headers count. */
export const costOf = ({ payload, headers }: Weight, bounds: ByteBounds): number => headers + (isRefused(payload, bounds) ? 0 : payload);

/** Whether the event is read without its payload. */
export const isUnread = (weight: Weight, bounds: ByteBounds): boolean =>
  isRefused(weight.payload, bounds) || weight.payload + weight.headers > bounds.bytes;

/** The longest prefix that stays within the bounds. A first event that exceeds them by itself goes alone. */
export function withinBytes<Item>(items: readonly Item[], bounds: ByteBounds, weigh: (item: Item) => Weight): readonly Item[] {
  let sum = 0;
  for (const [at, item] of items.entries()) {
    sum += costOf(weigh(item), bounds);
    if (sum > bounds.bytes) return items.slice(0, Math.max(1, at));
  }
  return items;
}

export const deletedUnread = (): WaybillError => new WaybillError("ROW_UNREADABLE", "the row was deleted before its payload was read");

/** Why a payload of this size is not even read. Null: it may be read. */
export const tooLargeToRead = (bytes: number): string | null =>
  bytes > mostReadable ? `the payload takes ${bytes} bytes, more than the ${mostReadable} that can be read` : null;
