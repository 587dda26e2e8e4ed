import type { Draft } from "../../../src/core/event.ts";
import { uuidv7 } from "../../../src/core/ids.ts";
import { systemRandom } from "../../../src/core/random.ts";
import { aggregateName, canaryHeader, countHeader, shaOfDraft, type Aggregate } from "../../../src/proof/run/workload.ts";
import type { Written } from "../../../src/proof/judge/history.ts";
import type { Stage } from "./row.ts";

interface Made {
  readonly written: Written;
  readonly draft: Draft;
}

/** So many events of an aggregate, after the first `from`. */
export function made({ clock }: Stage, aggregate: Aggregate, events: number, from: number): readonly Made[] {
  const newId = uuidv7(clock, systemRandom);
  const topic = `${aggregate.aggregateType.toLowerCase()}.events`;
  return Array.from({ length: events }, (_, i) => {
    const n = from + i + 1;
    const id = newId();
    const headers = { [countHeader]: String(n), [canaryHeader]: "canary-7f3a9c51" };
    const draft: Draft = { ...aggregate, id, type: "Changed", payload: { n }, headers };
    return { written: { id, aggregate: aggregateName(aggregate), topic, n, sha: shaOfDraft(draft) }, draft };
  });
}

/** In one transaction: as a writer would, but quicker. */
export async function insert({ ground, recorder }: Stage, tx: string, events: readonly Made[]): Promise<void> {
  const { tables } = ground;
  const counts = new Map<string, number>();
  for (const { written } of events) counts.set(written.aggregate, (counts.get(written.aggregate) ?? 0) + 1);
  await ground.transaction(async ({ ask, add }) => {
    for (const [name, count] of counts) await ask(`UPDATE ${tables.counters} SET n = n + ? WHERE aggregate = ?`, [count, name]);
    for (let at = 0; at < events.length; at += 100) {
      const some = events.slice(at, at + 100).map(({ written }) => written);
      const values = some.flatMap(({ id, aggregate, n }) => [id, aggregate, n]);
      await ask(`INSERT INTO ${tables.written} (id, aggregate, n) VALUES ${some.map(() => "(?, ?, ?)").join(", ")}`, values);
    }
    recorder.write("invoked", { op: "add", tx, events: events.map(({ written }) => written) });
    await add(events.map(({ draft }) => draft));
  });
  recorder.write("ok", { op: "add", tx });
}
