/** One partition of a topic. */
export interface Spot {
  readonly topic: string;
  readonly index: number;
}

/** As producers, requests and answers name it, too. */
export const spotKey = (topic: string, index: number): string => `${topic}:${index}`;

/** Items by their `key`; the groups are in the order of their first items. */
export function grouped<T>(items: Iterable<T>, key: (item: T) => string): ReadonlyMap<string, readonly T[]> {
  const groups = new Map<string, T[]>();
  for (const item of items) {
    const name = key(item);
    const group = groups.get(name);
    if (group === undefined) groups.set(name, [item]);
    else group.push(item);
  }
  return groups;
}

/** In the shape of requests: each topic once, with what `say` returns for its partitions. */
export const byTopic = <T extends { readonly topic: string }, Said>(items: Iterable<T>, say: (item: T) => Said) =>
  [...grouped(items, ({ topic }) => topic)].map(([name, own]) => ({ name, partitions: own.map(say) }));

/** What an answer says of each partition. */
export const bySpot = <Said extends { readonly partitionIndex: number }>(
  topics: readonly { readonly name: string; readonly partitions: readonly Said[] }[],
): ReadonlyMap<string, Said> =>
  new Map(topics.flatMap(({ name, partitions }) => partitions.map((said) => [spotKey(name, said.partitionIndex), said])));
