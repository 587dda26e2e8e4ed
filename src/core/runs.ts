import { aggregateKey, type Envelope } from "./event.ts";

/** For each aggregate, the indexes of its events, in the order given. */
export function runsOf(events: readonly Pick<Envelope, "aggregateType" | "aggregateId">[]): number[][] {
  const runs = new Map<string, number[]>();
  events.forEach((event, at) => {
    const aggregate = aggregateKey(event);
    const run = runs.get(aggregate);
    if (run === undefined) runs.set(aggregate, [at]);
    else run.push(at);
  });
  return [...runs.values()];
}
