/** The longest run from the first on that stays within the bound; one alone may be larger. */
export function withinBytes<Item>(items: readonly Item[], bytes: number, sizeOf: (item: Item) => number): readonly Item[] {
  let sum = 0;
  for (const [at, item] of items.entries()) {
    sum += sizeOf(item);
    if (sum > bytes) return items.slice(0, Math.max(1, at));
  }
  return items;
}

/** A process of Node may not be able to hold the payload of a row above this at all. */
const mostReadable = 256 * 1024 * 1024;

/** Why the payload of such a row is not even read; null: it may be. */
export const tooLargeToRead = (bytes: number): string | null =>
  bytes > mostReadable ? `payload and headers take ${bytes} bytes, more than the ${mostReadable} that can be read` : null;
