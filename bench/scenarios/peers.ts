import { compare, ours, type Side } from "../measure/compare.ts";
import { brokers, databases, type Ground } from "../measure/ground.ts";
import { peer, peersNode, versionOf, type PeerName } from "../measure/peers.ts";
import type { Finding } from "../report/finding.ts";

interface Way {
  /** A library, or the loop that articles about the pattern show. */
  readonly peer: PeerName | "loop";
  readonly name: string;
  readonly ordered?: boolean;
  /** Its share of the events: a much slower peer gets fewer. */
  readonly share?: number;
}

const ways: readonly Way[] = [
  { peer: "graphile-worker", name: "graphile-worker, batched, not ordered" },
  { peer: "pg-boss", name: "pg-boss, batched, not ordered" },
  { peer: "pg-boss", name: "pg-boss, ordered by key", ordered: true, share: 0.3 },
  { peer: "pg-transactional-outbox", name: "pg-transactional-outbox, polling, ordered", share: 0.015 },
  { peer: "loop", name: "a loop that publishes and marks each event by itself", share: 0.15 },
];

/** Ways to drain a PostgreSQL table to JetStream. They take turns on the same servers, and run on the same Node. */
export async function* peers(ground: Ground): AsyncGenerator<Finding> {
  const events = ground.size(60_000);
  const lacks: string[] = [];
  const names = ground.chosen(ways.map(({ peer: of }) => of));
  const node = names.every((name) => name === "loop") ? process.execPath : await peersNode();
  if (node instanceof Error) lacks.push(node.message);
  const sides: Side[] = [];
  for (const way of ways.filter(({ peer: of }) => names.includes(of))) {
    const side = await sideOf(way, events);
    if (side instanceof Error) lacks.push(side.message);
    else sides.push(side);
  }
  for (const lack of new Set(lacks)) console.warn(`left out: ${lack}`);
  await using store = await databases.postgres.open(ground);
  await using broker = await brokers.nats.open();
  const on = (side: Side): Side => (node instanceof Error ? side : { ...side, node });
  const finding = await compare(ground, {
    question: `${events.toLocaleString("en")} events out of a table, to JetStream`,
    store,
    broker,
    sides: [...ours(ground, { name: "relay, ordered by aggregate", side: "relay" }), ...sides].map(on),
    base: "relay, ordered by aggregate",
    task: { events, broker: "nats" },
    minutes: 2.5,
  });
  yield { ...finding, ratio: finding.bound === null ? null : finding.ratio, notes: [...finding.notes!, ...lacks] };
}

async function sideOf({ name, peer: of, ordered = false, share = 1 }: Way, events: number): Promise<Side | Error> {
  const task = { peer: of, ordered, events: Math.ceil(events * share) };
  if (of === "loop") return { name, side: "peer", task };
  const folder = await peer(of);
  return folder instanceof Error ? folder : { name: `${name} (${versionOf(of)})`, side: "peer", task: { ...task, folder } };
}
