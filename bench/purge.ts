import type { Finding } from "./report.ts";
import { subjectOn, type Subject } from "./subject.ts";

const batch = 1_000;

async function rateFor(subject: Subject, ms: number): Promise<number> {
  let published = 0;
  const start = performance.now();
  while (performance.now() - start < ms) {
    await subject.insert(5_000);
    published += await subject.drain(batch);
  }
  return (published / (performance.now() - start)) * 1_000;
}

/** Purging goes on all the time while the relay works; it may cost a little, and never an event that is not published. */
export async function purge(url: string, seconds: number): Promise<readonly Finding[]> {
  await using subject = await subjectOn(url, "purged");
  await subject.pool.query(
    `INSERT INTO ${subject.schema}.outbox (aggregate_type, aggregate_id, event_type, payload, available_at)
     SELECT 'Order', 'later-' || i, 'OrderPlaced', 'x', now() + interval '1 day' FROM generate_series(1, 1000) i`,
  );
  await subject.insert(100_000);
  await subject.drain(batch);
  const before = await rateFor(subject, seconds * 1_000);
  let purging = true;
  let purged = 0;
  const purger = (async () => {
    while (purging) purged += await subject.store.operator.purge(new Date(Date.now() - 500), { who: "bench", dryRun: false });
  })();
  const beside = await rateFor(subject, seconds * 1_000);
  purging = false;
  await purger;
  const { states } = await subject.store.operator.status();
  const rate = (what: string, value: number) => ({ what, value, unit: "events/s" });
  return [
    {
      question: "Purging at full load: does it slow the relay, or touch what is not published?",
      figures: [
        rate("inserted, claimed and settled", before),
        rate("the same while purging", beside),
        { what: "purged meanwhile", value: purged, unit: "events" },
      ],
      ratio: states.PENDING === 1_000 ? beside / before : 0,
      bound: { at: "least", ratio: 0.8 },
      notes: [`${states.PENDING} of 1000 events that are not published are still there`],
    },
  ];
}
