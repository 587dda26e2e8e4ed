import type { Claim } from "../contracts/outbox-store.ts";
import { aggregateKey } from "../core/event.ts";
import { createQueue as createKeyed } from "../core/queue.ts";
import { isToBeRead } from "./feed.ts";

/** Claims that are published together, in order: those of one topic, or of several that an aggregate spans. */
export interface Group {
  /** The groups of these topics that it waits for, and that wait for it. */
  readonly topics: ReadonlySet<string>;
  readonly aggregates: ReadonlySet<string>;
  /** By seq, ascending. */
  readonly claims: readonly Claim[];
}

/** So many round trips in a row may keep the other aggregates of a topic waiting. */
const mostSteps = 8;

/**
 * A destination that does not answer must not keep others waiting, so each topic goes by itself. Where one aggregate
 * spans topics, order goes before isolation: they share a group.
 *
 * `run` is how many events of an aggregate one round trip takes. An aggregate that needs many of them, whose payload is still to be
 * read, or that waits for an earlier group like that, goes apart: its topics do not wait for it.
 */
export function groupsOf(
  claims: readonly Claim[],
  topicOf: (claim: Claim) => string,
  { run = Infinity, queue }: { readonly run?: number | undefined; readonly queue?: Pick<Queue, "apart"> } = {},
): readonly Group[] {
  const parents = new Map<string, string>();
  const root = (name: string): string => {
    const parent = parents.get(name) ?? name;
    return parent === name ? name : root(parent);
  };
  const nodes = claims.map((claim) => ({ claim, topic: topicOf(claim), aggregate: aggregateKey(claim.envelope) }));
  for (const { topic, aggregate } of nodes) parents.set(root(`aggregate ${aggregate}`), root(`topic ${topic}`));

  const reading = isToBeRead(claims);
  const counts = new Map<string, number>();
  for (const { aggregate } of nodes) counts.set(aggregate, (counts.get(aggregate) ?? 0) + 1);
  /** Null: with its topic. Those apart go with others of about their length, so that few wait long for another. */
  const apart = (aggregate: string): number | null => {
    const steps = Math.ceil(counts.get(aggregate)! / run);
    return steps > mostSteps || reading || queue?.apart(aggregate) === true ? 31 - Math.clz32(steps) : null;
  };

  const groups = new Map<string, { topics: Set<string>; aggregates: Set<string>; claims: Claim[] }>();
  for (const { claim, topic, aggregate } of nodes) {
    const length = apart(aggregate);
    const name = `${length ?? ""} ${root(`topic ${topic}`)}`;
    const group = groups.get(name) ?? { topics: new Set(), aggregates: new Set(), claims: [] };
    groups.set(name, group);
    if (length === null) group.topics.add(topic);
    group.aggregates.add(aggregate);
    group.claims.push(claim);
  }
  return [...groups.values()];
}

/** Groups of one topic, or with one aggregate, go one after the other; all others side by side. */
interface Queue {
  run<T>(group: Group, work: () => Promise<T>): Promise<T>;
  /** Whether a group that goes apart from its topics, and is not done, has this aggregate. */
  apart(aggregate: string): boolean;
}

export function createQueue(): Queue {
  const queue = createKeyed<string>();
  const apart = new Map<string, Promise<unknown>>();
  return {
    apart: (aggregate) => apart.has(aggregate),
    async run(group, work) {
      const names = [
        ...[...group.topics].map((topic) => `topic ${topic}`),
        ...[...group.aggregates].map((aggregate) => `aggregate ${aggregate}`),
      ];
      const done = queue.run(names, work);
      if (group.topics.size === 0) for (const aggregate of group.aggregates) apart.set(aggregate, done);
      try {
        return await done;
      } finally {
        for (const aggregate of group.aggregates) if (apart.get(aggregate) === done) apart.delete(aggregate);
      }
    },
  };
}
