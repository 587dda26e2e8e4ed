import { systemClock } from "../../src/core/clock.ts";
import { pauses, purgeStore } from "../../src/relay/housekeeping/purge.ts";
import type { Finding } from "../report/finding.ts";
import { subjectOn, timed, type Subject } from "./subject.ts";

const batch = 1_000;
const load = 5_000;

async function pass(subject: Subject): Promise<number> {
  const { ms } = await timed(async () => {
    await subject.insert(load);
    await subject.drain(batch);
  });
  return ms;
}

/** A continuous purge while the relay works. It may slow the relay a little, but must never delete an unpublished event. */
export async function purge(url: string, seconds: number): Promise<readonly Finding[]> {
  await using subject = await subjectOn(url, "purged");
  await subject.pool.query(
    `INSERT INTO ${subject.schema}.outbox (aggregate_type, aggregate_id, event_type, payload, available_at)
     SELECT 'Order', 'later-' || i, 'OrderPlaced', 'x', now() + interval '1 day' FROM generate_series(1, 1000) i`,
  );
  await subject.insert(200_000);
  await subject.drain(batch);
  const rest = new AbortController();
  let purged = 0;
  // Purges as relays and the command do, with a retention of one second, so that there is always something to purge.
  const purgeOn = async (): Promise<void> => {
    const ended = new AbortController();
    const purging = (async () => {
      const by = { who: "bench", dryRun: false };
      while (!ended.signal.aborted) {
        const options = { pause: pauses(systemClock, rest.signal), signal: ended.signal };
        purged += (await purgeStore(subject.store, new Date(Date.now() - 1_000), by, options)).events;
        await systemClock.sleep(10, ended.signal);
      }
    })();
    for (let slice = 0; slice < slices; slice++) beside.push(await pass(subject));
    ended.abort();
    await purging;
  };
  const slices = 4;
  const alone: number[] = [];
  const beside: number[] = [];
  for (const end = Date.now() + seconds * 1_000; Date.now() < end;) {
    for (let slice = 0; slice < slices; slice++) alone.push(await pass(subject)); // in turn, so that other load on the machine hits both
    await purgeOn();
  }
  const { states } = await subject.store.operator.status();
  const rate = (what: string, passes: readonly number[]): Finding["figures"][number] => ({
    what,
    value: ((load * passes.length) / passes.reduce((sum, ms) => sum + ms, 0)) * 1_000,
    unit: "events/s",
  });
  const figures = [rate("inserted, claimed and settled", alone), rate("the same while purging", beside)] as const;
  return [
    {
      question: "Purging at full load: does it slow the relay, or touch what is not published?",
      figures: [...figures, { what: "purged meanwhile", value: purged, unit: "events" }],
      ratio: states.PENDING === 1_000 ? figures[1].value / figures[0].value : 0,
      bound: { at: "least", ratio: 0.8 },
      notes: [`${states.PENDING} of 1000 events that are not published are still there`],
    },
  ];
}
