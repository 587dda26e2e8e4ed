import type { Finding } from "../report/finding.ts";
import { percentile, subjectOn, timed, type Subject } from "./subject.ts";

const claims = 400;
const batch = 100;

async function latency(subject: Subject, take: number[]): Promise<void> {
  const { ms, value } = await timed(() => subject.claim(batch));
  take.push(ms);
  await subject.publish(value);
}

/** Events that wait behind a claim's own events cost the claim nothing. */
export async function backlog(url: string, rows: number): Promise<readonly Finding[]> {
  await using few = await subjectOn(url, "few");
  await using many = await subjectOn(url, "many");
  for (let left = rows; left > 0; left -= 100_000) await many.insert(Math.min(left, 100_000));
  await few.insert(batch);
  for (const subject of [few, many]) await subject.pool.query(`VACUUM ANALYZE ${subject.schema}.outbox`);
  const [without, behind]: [number[], number[]] = [[], []];
  for (let n = 0; n < claims; n++) {
    await latency(few, without);
    await few.insert(batch);
    await latency(many, behind);
  }
  const p99 = (what: string, values: readonly number[]) => ({ what, value: percentile(values, 0.99), unit: "ms" });
  return [
    {
      question: `${rows.toLocaleString("en")} events wait: does a claim take longer?`,
      figures: [p99(`claim of ${batch} events, p99`, without), p99("the same before all that waits", behind)],
      ratio: percentile(behind, 0.99) / percentile(without, 0.99),
      bound: { at: "most", ratio: 2 },
    },
  ];
}
