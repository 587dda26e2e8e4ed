/** Delta debugging: leaves out halves, then quarters, and so on, for as long as it still fails without them. */
export async function fewer<T>(items: readonly T[], fails: (items: readonly T[]) => Promise<boolean>): Promise<readonly T[]> {
  let kept = items;
  for (let size = Math.ceil(kept.length / 2); size >= 1; size = size === 1 ? 0 : Math.ceil(size / 2)) {
    for (let at = 0; at < kept.length;) {
      const without = [...kept.slice(0, at), ...kept.slice(at + size)];
      if (without.length < kept.length && (await fails(without))) kept = without;
      else at += size;
    }
  }
  return kept;
}
