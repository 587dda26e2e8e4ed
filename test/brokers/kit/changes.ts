import type { StoredMessage } from "../../../src/conformance/sink.ts";

/** The nth change of an aggregate. */
export interface Change {
  readonly aggregate: string;
  readonly n: number;
}

export const changeOf = ({ key, data }: StoredMessage): Change => ({
  aggregate: key,
  n: (JSON.parse(Buffer.from(data).toString()) as Change).n,
});

/** Each change where it came first; later copies are left out. */
export function firsts(changes: readonly Change[]): readonly Change[] {
  const seen = new Set<string>();
  return changes.filter(({ aggregate, n }) => seen.size < seen.add(`${aggregate}/${n}`).size);
}

export function byAggregate(changes: readonly Change[]): Record<string, number[]> {
  const found: Record<string, number[]> = {};
  for (const { aggregate, n } of changes) (found[aggregate] ??= []).push(n);
  return found;
}

export const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
