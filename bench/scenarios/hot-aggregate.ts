import { compare, ours, type Side } from "../measure/compare.ts";
import { brokers, databases, type BrokerName, type Ground } from "../measure/ground.ts";
import type { Finding } from "../report/finding.ts";

const measureOf = ({ rows = [] }: Finding, side: string, measure: string): number =>
  rows.find(({ name }) => name === side)!.measures[measure]!.median;

/** With --beside, the verdict of that comparison stands. */
const judged = (finding: Finding, ratio: number, bound: NonNullable<Finding["bound"]>): Finding =>
  finding.bound === null ? { ...finding, ratio, bound } : finding;

/** Most brokers get one aggregate's events one by one: is the relay as fast as a client that awaits each acknowledgement? */
export async function hotRate(ground: Ground, broker: BrokerName): Promise<Finding> {
  await using server = await brokers[broker].open();
  await using store = await databases.postgres.open(ground);
  const [hot, bare] = ["relay, hot", "bare client that awaits each"];
  const finding = await compare(ground, {
    question: `One aggregate has nine of ten events, to ${brokers[broker].name}, order checked`,
    store,
    broker: server,
    sides: [
      ...ours(ground, { name: hot, side: "relay", task: { hot: 0.9, order: true } }),
      { name: bare, side: "bare", task: { hot: 0.9 } },
      { name: "relay, uniform", side: "relay" },
    ],
    base: bare,
    task: { events: ground.size(20_000), broker },
    minutes: 0.9,
  });
  return judged(finding, measureOf(finding, hot, "perSecond") / measureOf(finding, bare, "perSecond"), { at: "least", ratio: 0.8 });
}

/** How long other aggregates wait beside a hot one, at a rate that the hot one alone can keep. */
export async function coldLatency(ground: Ground, broker: BrokerName): Promise<Finding> {
  await using server = await brokers[broker].open();
  await using store = await databases.postgres.open(ground);
  const rate = ground.quick ? 200 : 1_000;
  const side = (name: string, task: object): Side => ({ name, side: "paced", task });
  const [share, backlog] = ["one aggregate has nine of ten", "one aggregate has a backlog"];
  const finding = await compare(ground, {
    question: `Other aggregates beside a hot one, ${rate.toLocaleString("en")} events a second to ${brokers[broker].name}`,
    store,
    broker: server,
    sides: [...ours(ground, side(share, { hot: 0.9 })), side(backlog, { backlog: ground.size(15_000) }), side("uniform", {})],
    base: "uniform",
    task: { broker, rate, seconds: ground.quick ? 3 : 8, listen: true, cold: true },
    minutes: 1,
  });
  const unseen = finding.rows!.some(({ measures }) => "coldUnseen" in measures);
  const [uniform, ...beside] = ["uniform", share, backlog].map((name) => measureOf(finding, name, "coldP99"));
  const notes = [...finding.notes!, "aggregates of the hot one's lane, one of 64, wait with it: they are shown, and not judged"];
  return judged({ ...finding, notes }, unseen ? Infinity : Math.max(...beside) / uniform!, { at: "most", ratio: 2 });
}
