import type { Holder } from "../../src/contracts/housekeeping.ts";
import type { Finding } from "../report/finding.ts";
import { subjectOn, timed, type Subject } from "./subject.ts";

const chunk = 20_000;
const batch = 1_000;

interface Passing {
  readonly subject: Subject;
  /** Events per second over the last tenth. */
  readonly rate: number;
}

/** All subjects pass the same number of events, taking turns, so that other load on the machine hits all alike. */
async function passAll(subjects: readonly Subject[], events: number): Promise<readonly Passing[]> {
  const ms = subjects.map(() => 0);
  const last = Math.floor((events / chunk) * 0.9);
  for (let at = 0; at * chunk < events; at++) {
    for (const [nth, subject] of subjects.entries()) {
      await subject.insert(chunk);
      const { ms: took } = await timed(() => subject.drain(batch));
      if (at >= last) ms[nth]! += took;
    }
  }
  const measured = (events / chunk - last) * chunk;
  return subjects.map((subject, nth) => ({ subject, rate: (measured / ms[nth]!) * 1_000 }));
}

/** Keeps a transaction open in the subject's database, which is where it holds the horizon back. */
async function hold(subject: Subject, name: string, statement: string): Promise<() => Promise<void>> {
  const client = await subject.pool.connect();
  await client.query(`SET application_name = '${name}'`);
  await client.query("BEGIN ISOLATION LEVEL REPEATABLE READ");
  await client.query(statement);
  return async () => {
    await client.query("ROLLBACK");
    client.release(true);
  };
}

/** The holder as status names it. */
async function holders({ store }: Subject): Promise<readonly string[]> {
  const { watch } = await store.operator.status();
  const tell = (what: string, holder: Holder | "unknown" | null | undefined): readonly string[] =>
    holder === null || holder === undefined || holder === "unknown"
      ? []
      : [`status: ${what} ${holder.kind} ${holder.name} (${holder.application}, ${holder.state})`];
  return [...tell("cleaning up waits for", watch?.horizon), ...tell("floors wait for", watch?.writer)];
}

/** Dead rows that an open transaction keeps from being vacuumed must not slow a claim down, however much has been published. */
export async function horizon(database: (name: string) => Promise<string>, events: number): Promise<readonly Finding[]> {
  const few = events / 6; // claims get slower and slower beside the writer: this many are enough to show it
  const pass = async (
    name: string,
    statement: string,
    count: number,
  ): Promise<{ rates: readonly [number, number]; notes: readonly string[] }> => {
    await using free = await subjectOn(await database(`beside_${name}`), "bench");
    await using held = await subjectOn(await database(name), "bench");
    const end = await hold(held, `bench ${name}`, statement);
    const [one, other] = await passAll([free, held], count);
    const notes = await holders(held);
    await end();
    return { rates: [one!.rate, other!.rate], notes };
  };
  const reader = await pass("reader", "SELECT 1", events);
  const writer = await pass("writer", "SELECT pg_current_xact_id()", few);
  const figures = (who: string, [free, held]: readonly [number, number], count: number): Finding["figures"] => [
    { what: `claimed and settled, last tenth of ${count.toLocaleString("en")}`, value: free, unit: "events/s" },
    { what: `the same with the ${who}`, value: held, unit: "events/s" },
  ];
  return [
    {
      question: "A reader holds the vacuum horizon: does claiming decay?",
      figures: figures("reader", reader.rates, events),
      ratio: reader.rates[1] / reader.rates[0],
      bound: { at: "least", ratio: 0.9 },
      notes: reader.notes,
    },
    {
      question: "A writer stays open, which freezes the floors: how slow does claiming get?",
      figures: figures("writer", writer.rates, few),
      ratio: writer.rates[1] / writer.rates[0],
      bound: null,
      notes: writer.notes,
    },
  ];
}
