import type { Finding } from "./report.ts";
import { subjectOn, timed } from "./subject.ts";

const step = 1_000_000;

/** Status beside a large table of published events, which it must not count row by row. */
export async function status(url: string, events: number): Promise<readonly Finding[]> {
  await using subject = await subjectOn(url, "status");
  const { pool, schema, store } = subject;
  // Only the filling is made faster by this: no log, and the widest index is built at the end.
  await pool.query(`ALTER TABLE ${schema}.outbox SET UNLOGGED; DROP INDEX ${schema}.outbox_id`);
  for (let from = 1; from <= events; from += step)
    await pool.query(
      `INSERT INTO ${schema}.outbox (seq, aggregate_type, aggregate_id, event_type, payload, status, published_at)
       SELECT i, 'Order', 'order-' || i % 20000, 'OrderPlaced', 'x', 'PUBLISHED', clock_timestamp() FROM generate_series($1::bigint, $2::bigint) i`,
      [from, Math.min(events, from + step - 1)],
    );
  await pool.query(`SELECT setval('${schema}.waybill_seq', ${events})`);
  await pool.query(`CREATE UNIQUE INDEX outbox_id ON ${schema}.outbox (id)`);
  await subject.insert(1_000);
  const look = async (what: string): Promise<{ readonly ms: number; readonly what: string; readonly note: string }> => {
    const { ms, value } = await timed(() => store.operator.status());
    const { states, estimated } = value;
    return { what, ms, note: `${what}: ${states.PENDING} PENDING, ${states.PUBLISHED} PUBLISHED, estimated: ${estimated.join(", ")}` };
  };
  const looks = [await look("the first look, without statistics"), await look("the next look")];
  await pool.query(`VACUUM ANALYZE ${schema}.outbox`);
  looks.push(await look("after VACUUM ANALYZE"));
  return [
    {
      question: `Status beside ${events.toLocaleString("en")} published events: does it answer within a second?`,
      figures: looks.map(({ what, ms }) => ({ what, value: ms, unit: "ms" })),
      ratio: Math.max(...looks.map(({ ms }) => ms)) / 1_000,
      bound: { at: "most", ratio: 1 },
      notes: looks.map(({ note }) => note),
    },
  ];
}
