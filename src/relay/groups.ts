import type { Claim } from "../contracts/outbox-store.ts";
import { aggregateKey } from "../core/event.ts";

/** Claims that are published together, in order: those of one topic, or of several that an aggregate spans. */
export interface Group {
  readonly topics: ReadonlySet<string>;
  readonly aggregates: ReadonlySet<string>;
  /** By seq, ascending. */
  readonly claims: readonly Claim[];
}

/**
 * A destination that does not answer must not keep others waiting, so each topic goes by itself. Where one aggregate
 * spans topics, order goes before isolation: they share a group.
 */
export function groupsOf(claims: readonly Claim[], topicOf: (claim: Claim) => string): readonly Group[] {
  const parents = new Map<string, string>();
  const root = (name: string): string => {
    const parent = parents.get(name) ?? name;
    return parent === name ? name : root(parent);
  };
  const nodes = claims.map((claim) => ({ claim, topic: topicOf(claim), aggregate: aggregateKey(claim.envelope) }));
  for (const { topic, aggregate } of nodes) parents.set(root(`aggregate ${aggregate}`), root(`topic ${topic}`));

  const groups = new Map<string, { topics: Set<string>; aggregates: Set<string>; claims: Claim[] }>();
  for (const { claim, topic, aggregate } of nodes) {
    const name = root(`topic ${topic}`);
    const group = groups.get(name) ?? { topics: new Set(), aggregates: new Set(), claims: [] };
    groups.set(name, group);
    group.topics.add(topic);
    group.aggregates.add(aggregate);
    group.claims.push(claim);
  }
  return [...groups.values()];
}

/** Groups of one topic, or with one aggregate, go one after the other; all others side by side. */
export interface Queue {
  run<T>(group: Group, work: () => Promise<T>): Promise<T>;
}

export function createQueue(): Queue {
  const last = new Map<string, Promise<unknown>>();
  return {
    async run(group, work) {
      const names = [
        ...[...group.topics].map((topic) => `topic ${topic}`),
        ...[...group.aggregates].map((aggregate) => `aggregate ${aggregate}`),
      ];
      const before = Promise.all(names.map((name) => last.get(name) ?? Promise.resolve()));
      const done = before.then(work);
      const ended = done.catch(() => undefined);
      for (const name of names) last.set(name, ended);
      try {
        return await done;
      } finally {
        for (const name of names) if (last.get(name) === ended) last.delete(name);
      }
    },
  };
}
