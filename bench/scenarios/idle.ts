import { compare, ours, type Side } from "../measure/compare.ts";
import { brokers, databases, type Ground } from "../measure/ground.ts";
import type { Finding } from "../report/finding.ts";

const side = (name: string, task: object): Side => ({ name, side: "idle", task });

/** The cost of a relay with no events, and with twenty events a second. */
export async function* idle(ground: Ground): AsyncGenerator<Finding> {
  const seconds = ground.quick ? 4 : 10;
  await using broker = await brokers.none.open();
  await using store = await databases.postgres.open(ground);
  const task = { broker: "none", seconds };
  yield await compare(ground, {
    question: `No events, for ${seconds} seconds`,
    store,
    broker,
    sides: [...ours(ground, side("relay", {})), side("relay, listen", { listen: true }), side("no relay", { relays: 0 })],
    task,
    minutes: 1.6,
  });
  yield await compare(ground, {
    question: `Twenty events a second, for ${seconds} seconds`,
    store,
    broker,
    sides: [...ours(ground, side("relay", {})), side("relay, listen", { listen: true }), side("writers alone", { relays: 0 })],
    task: { ...task, rate: 20 },
    minutes: 1.6,
  });
}
