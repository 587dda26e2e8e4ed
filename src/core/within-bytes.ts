import { WaybillError } from "./errors.ts";

/** Of a window, and of each event in it. */
export interface Bounds {
  readonly bytes: number;
  readonly largest: number;
}

export const boundsOf = ({ bytes = Infinity, largest = Infinity }: Partial<Bounds>): Bounds => ({ bytes, largest });

/** Whether an event of this size goes alone, and its payload is not read with it. */
export const isApart = (size: number, { bytes, largest }: Bounds): boolean => size > bytes || size > largest;

/** The longest run from the first on that stays within the bounds; one that alone is beyond them goes alone. */
export function withinBytes<Item>(items: readonly Item[], bounds: Bounds, sizeOf: (item: Item) => number): readonly Item[] {
  let sum = 0;
  for (const [at, item] of items.entries()) {
    sum += sizeOf(item);
    if (sum > bounds.bytes || isApart(sizeOf(item), bounds)) return items.slice(0, Math.max(1, at));
  }
  return items;
}

export const deletedUnread = (): WaybillError => new WaybillError("ROW_UNREADABLE", "the row was deleted before its payload was read");

/** A process of Node may not be able to hold the payload of a row above this at all. */
const mostReadable = 256 * 1024 * 1024;

/** Why the payload of such a row is not even read; null: it may be. */
export const tooLargeToRead = (bytes: number): string | null =>
  bytes > mostReadable ? `the payload takes ${bytes} bytes, more than the ${mostReadable} that can be read` : null;
