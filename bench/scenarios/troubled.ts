import { compare, ours, type Side } from "../measure/compare.ts";
import { brokers, databases, type Ground } from "../measure/ground.ts";
import { totalCpu, type Finding } from "../report/finding.ts";

/** An event costs the same CPU beside a transaction that stays open, and beside events that are blocked. */
export async function troubled(ground: Ground): Promise<Finding> {
  await using broker = await brokers.none.open();
  await using store = await databases.postgres.open(ground);
  const blocked = ground.size(100_000);
  const side = (name: string, task: object): Side => ({ name, side: "relay", task });
  const clean = "nothing beside";
  const finding = await compare(ground, {
    question: "CPU of an event beside trouble, to a sink that acknowledges at once",
    store,
    broker,
    sides: [
      ...ours(ground, side(clean, {})),
      side("a reader holds the vacuum horizon", { held: true }),
      side(`${blocked.toLocaleString("en")} events are blocked`, { blocked }),
    ],
    base: clean,
    task: { events: ground.size(100_000), warm: ground.size(100_000), broker: "none" },
    minutes: 1.5,
  });
  if (finding.bound !== null) return finding; // with --beside, that verdict stands
  const cost = (name: string): number => totalCpu(finding.rows!.find((row) => row.name === name)!)!;
  const most = Math.max(...finding.rows!.map(({ name }) => cost(name)));
  return { ...finding, ratio: most / cost(clean), bound: { at: "most", ratio: 1.05 } };
}
