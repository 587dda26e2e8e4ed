import type { Finding } from "../report/finding.ts";
import { percentile, subjectOn, timed, type Subject } from "./subject.ts";

const claims = 400;

/** Dead events of policy `block`, each with a thousand followers. */
async function block(subject: Subject, rows: number): Promise<void> {
  const { pool, schema } = subject;
  const aggregates = rows / 1_000;
  await pool.query(
    `INSERT INTO ${schema}.outbox (aggregate_type, aggregate_id, event_type, payload)
     SELECT 'Order', 'held-' || (i % $2::int), 'OrderPlaced', repeat('x', 300) FROM generate_series(1, $1::int) i`,
    [rows + aggregates, aggregates],
  );
  // The first event of each aggregate dies; its followers leave the scan as they are met.
  const dead = new Set<string>();
  while (dead.size < aggregates) {
    const window = await subject.claim(10_000);
    await subject.store.outbox.settle(
      subject.holding.relay,
      window.id!,
      window.claims.map((claim) => {
        const { aggregateId } = claim.envelope;
        if (dead.has(aggregateId)) return { claim, as: "returned" };
        dead.add(aggregateId);
        return { claim, as: "parked", error: "refused", release: false };
      }),
    );
  }
  await subject.drain(10_000);
}

async function latencies(subject: Subject, take: number[]): Promise<void> {
  await subject.insert(20);
  const { ms, value } = await timed(() => subject.claim(100));
  take.push(ms);
  await subject.publish(value);
}

/** Events that are blocked behind a dead event do not slow a claim down. */
export async function blocked(url: string, rows: number): Promise<readonly Finding[]> {
  await using clear = await subjectOn(url, "clear");
  await using held = await subjectOn(url, "held");
  await block(held, rows);
  for (const subject of [clear, held]) await subject.pool.query(`VACUUM ANALYZE ${subject.schema}.outbox`);
  const [without, beside]: [number[], number[]] = [[], []];
  for (let n = 0; n < claims; n++) {
    await latencies(clear, without);
    await latencies(held, beside);
  }
  const { states } = await held.store.operator.status();
  const p99 = (what: string, values: readonly number[]) => ({ what, value: percentile(values, 0.99), unit: "ms" });
  return [
    {
      question: `${states.BLOCKED.toLocaleString("en")} rows are blocked: does a claim take longer?`,
      figures: [p99("claim of 20 events, p99", without), p99("the same beside the blocked rows", beside)],
      ratio: percentile(beside, 0.99) / percentile(without, 0.99),
      bound: { at: "most", ratio: 2 },
    },
  ];
}
