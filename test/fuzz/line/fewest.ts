/**
 * As few of these as still fail, in the same order; null when they do not fail again. Damages are few among many, so halves are tried
 * first, and single ones last. What fails may do so only sometimes: nothing that passed is tried twice.
 */
export async function fewest<T>(all: readonly T[], fails: (some: readonly T[]) => Promise<boolean>): Promise<readonly T[] | null> {
  if (!(await fails(all))) return null;
  if (all.length > 0 && (await fails([]))) return []; // it is not the damage
  let left = all;
  for (let parts = 2; left.length > 1;) {
    const size = Math.ceil(left.length / parts);
    const pieces = Array.from({ length: Math.ceil(left.length / size) }, (_, n) => left.slice(n * size, (n + 1) * size));
    const rests = parts === 2 ? [] : pieces.map((piece) => left.filter((each) => !piece.includes(each)));
    const found = await first([...pieces, ...rests], fails);
    if (found !== null) [left, parts] = [found, 2];
    else if (size === 1) return left;
    else parts = Math.min(left.length, parts * 2);
  }
  return left;
}

async function first<T>(candidates: readonly (readonly T[])[], fails: (some: readonly T[]) => Promise<boolean>) {
  for (const candidate of candidates) if (await fails(candidate)) return candidate;
  return null;
}
