import { compare, ours, type Side } from "../measure/compare.ts";
import { brokers, databases, type Ground } from "../measure/ground.ts";
import { totalCpu, type Finding } from "../report/finding.ts";

const paced = (name: string, task: object): Side => ({ name, side: "paced", task });

/** What a writer who may only insert adds in one statement, and how much of it. */
const kinds = [
  { kind: "topics", rows: 30_000, what: "events of as many invented types" },
  { kind: "headers", rows: 1_000, what: "events with 16 kB of headers" },
  { kind: "refused", rows: 10_000, what: "aggregates whose event is refused for good" },
  { kind: "delayed", rows: 10_000, what: "events that become due at the same moment" },
  { kind: "payloads", rows: 200, what: "payloads of 2 MiB, more than the broker takes" },
] as const;

/** How long ordinary events wait beside one statement of a writer who may only insert, and what they cost: while it is dealt with, and ever after. */
export async function* hostile(ground: Ground): AsyncGenerator<Finding> {
  await using server = await brokers.nats.open();
  await using store = await databases.postgres.open(ground);
  const clean = "nothing beside";
  const sides = kinds.map(({ kind, rows, what }) => {
    const invented = ground.size(rows);
    return paced(`${invented.toLocaleString("en")} ${what}`, { kind, invented });
  });
  const after = { ...sides[0]!, name: `${sides[0]!.name}, ever after`, task: { ...sides[0]!.task, already: true } };
  const finding = await compare(ground, {
    question: "One INSERT of a writer: how long do others wait meanwhile, and what do they cost, PostgreSQL to JetStream?",
    store,
    broker: server,
    sides: [...ours(ground, paced(clean, {})), ...sides, after],
    base: clean,
    task: { broker: "nats", rate: 100, seconds: 10 },
    minutes: 8,
  });
  const row = (name: string) => finding.rows!.find((each) => each.name === name)!;
  const waited = (name: string, which: string): number => row(name).measures[which]!.median;
  const times = (name: string) => [
    ...["ackP50", "ackP99"].map((which) => ({
      what: `${name}: to ack ${which.slice(3).toLowerCase()}, times ${clean}`,
      value: waited(name, which) / waited(clean, which),
      unit: "×",
    })),
    {
      what: `${name}: CPU of an event of others, times ${clean}`,
      value: (totalCpu(row(name)) ?? NaN) / (totalCpu(row(clean)) ?? NaN),
      unit: "×",
    },
  ];
  const figures = [...sides, after].flatMap(({ name }) => times(name));
  const ratio = waited(after.name, "ackP50") / waited(clean, "ackP50");
  yield finding.bound === null ? { ...finding, figures, ratio, bound: { at: "most", ratio: 1.5 } } : finding;
}
