/** The longest run from the first on that stays within the bound; one alone may be larger. */
export function withinBytes<Item>(items: readonly Item[], bytes: number, sizeOf: (item: Item) => number): readonly Item[] {
  let sum = 0;
  for (const [at, item] of items.entries()) {
    sum += sizeOf(item);
    if (sum > bytes) return items.slice(0, Math.max(1, at));
  }
  return items;
}
