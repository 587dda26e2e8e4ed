import { compare, ours, type Side } from "../measure/compare.ts";
import { brokers, databases, type Ground } from "../measure/ground.ts";
import type { Finding } from "../report/finding.ts";

const paced = (name: string, task: object): Side => ({ name, side: "paced", task });

/** How long ordinary events wait beside one statement of a writer who may only insert: while it is dealt with, and ever after. */
export async function* hostile(ground: Ground): AsyncGenerator<Finding> {
  await using server = await brokers.nats.open();
  await using store = await databases.postgres.open(ground);
  const invented = ground.size(30_000);
  const [clean, during, after] = ["nothing beside", "while the relay deals with them", "ever after"];
  const finding = await compare(ground, {
    question: `${invented.toLocaleString("en")} events of invented types in one INSERT: how long do others wait, PostgreSQL to JetStream?`,
    store,
    broker: server,
    sides: [...ours(ground, paced(clean, {})), paced(during, { invented }), paced(after, { invented, already: true })],
    base: clean,
    task: { broker: "nats", rate: 100, seconds: 10 },
    minutes: 4,
  });
  const waited = (name: string): number => finding.rows!.find((row) => row.name === name)!.measures["ackP50"]!.median;
  const times = (name: string) => ({ what: `${name}: to ack p50, times ${clean}`, value: waited(name) / waited(clean), unit: "×" });
  const figures = [during, after].map(times);
  yield finding.bound === null ? { ...finding, figures, ratio: figures[1]!.value, bound: { at: "most", ratio: 1.5 } } : finding;
}
