import type { Holder } from "../src/contracts/housekeeping.ts";
import type { Finding } from "./report.ts";
import { subjectOn, timed, type Subject } from "./subject.ts";

const chunk = 20_000;
const batch = 1_000;

/** How fast the last tenth goes, after all the others have passed. */
async function rateAtEnd(subject: Subject, events: number): Promise<number> {
  let rate = 0;
  const last = Math.floor((events / chunk) * 0.9);
  let ms = 0;
  for (let at = 0; at * chunk < events; at++) {
    await subject.insert(chunk);
    const { ms: took } = await timed(() => subject.drain(batch));
    if (at >= last) {
      ms += took;
      rate += chunk;
    }
  }
  return (rate / ms) * 1_000;
}

/** The holder as status names it. */
function tell(what: string, holder: Holder | "unknown" | null | undefined): readonly string[] {
  if (holder === null || holder === undefined || holder === "unknown") return [];
  return [`status: ${what} ${holder.kind} ${holder.name} (${holder.application}, ${holder.state})`];
}

/** Nothing that a transaction keeps from being vacuumed may slow a claim down, however much has been published. */
export async function horizon(url: string, events: number): Promise<readonly Finding[]> {
  const run = async (
    name: string,
    hold: string | null,
    count = events,
  ): Promise<{ readonly rate: number; readonly notes: readonly string[] }> => {
    await using subject = await subjectOn(url, name);
    const client = await subject.pool.connect();
    await client.query(`SET application_name = 'bench ${name}'`);
    await client.query("BEGIN ISOLATION LEVEL REPEATABLE READ");
    if (hold !== null) await client.query(hold);
    const rate = await rateAtEnd(subject, count);
    const watch = await subject.store.housekeeping?.watch();
    await client.query("ROLLBACK");
    client.release(true);
    return { rate, notes: [tell("cleaning up waits for", watch?.horizon), tell("floors wait for", watch?.writer)].flat() };
  };
  const free = await run("free", null);
  const reader = await run("reader", "SELECT 1");
  const fewer = events / 6; // it gets slower and slower: enough to show how
  const writer = await run("writer", "SELECT pg_current_xact_id()", fewer);
  const rate = (what: string, value: number) => ({ what, value, unit: "events/s" });
  const last = `claimed and settled, the last tenth of ${events.toLocaleString("en")}`;
  return [
    {
      question: "A reader holds the vacuum horizon: does claiming decay?",
      figures: [rate(last, free.rate), rate("the same with the reader", reader.rate)],
      ratio: reader.rate / free.rate,
      bound: { at: "least", ratio: 0.9 },
      notes: reader.notes,
    },
    {
      question: "A writer stays open, which freezes the floors: how slow does claiming get?",
      figures: [rate(last, free.rate), rate(`the last tenth of ${fewer.toLocaleString("en")} with the writer`, writer.rate)],
      ratio: writer.rate / free.rate,
      bound: null,
      notes: writer.notes,
    },
  ];
}
