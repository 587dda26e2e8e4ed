import { compare, ours, type Side } from "../measure/compare.ts";
import { brokers, databases, type Ground } from "../measure/ground.ts";
import { peer, peersNode, versionOf, type PeerName } from "../measure/peers.ts";
import type { Finding } from "../report/finding.ts";

interface Way {
  readonly peer: PeerName;
  readonly name: string;
  readonly ordered?: boolean;
  /** Of the events, how many it is given: one that is much slower gets fewer. */
  readonly share?: number;
}

const ways: readonly Way[] = [
  { peer: "graphile-worker", name: "graphile-worker, batched, not ordered" },
  { peer: "pg-boss", name: "pg-boss, batched, not ordered" },
  { peer: "pg-boss", name: "pg-boss, ordered by key", ordered: true },
  { peer: "pg-transactional-outbox", name: "pg-transactional-outbox, polling, ordered", share: 0.03 },
];

/** Libraries that drain a table of PostgreSQL, on the same server, by turns, and on one Node. */
export async function* peers(ground: Ground): AsyncGenerator<Finding> {
  const events = ground.size(30_000);
  const lacks: string[] = [];
  const node = await peersNode();
  if (node instanceof Error) lacks.push(node.message);
  const sides: Side[] = [];
  for (const { name, peer: of, ordered = false, share = 1 } of ways.filter((way) =>
    ground.chosen(ways.map(({ peer: each }) => each)).includes(way.peer),
  )) {
    const folder = await peer(of);
    if (folder instanceof Error) lacks.push(folder.message);
    else
      sides.push({
        name: `${name} (${versionOf(of)})`,
        side: "peer",
        task: { peer: of, folder, ordered, events: Math.ceil(events * share) },
      });
  }
  for (const lack of new Set(lacks)) console.warn(`left out: ${lack}`);
  await using store = await databases.postgres.open(ground);
  await using broker = await brokers.none.open();
  const on = (side: Side): Side => (node instanceof Error ? side : { ...side, node });
  const finding = await compare(ground, {
    question: `${events.toLocaleString("en")} events out of a table, to a handler that does nothing`,
    store,
    broker,
    sides: [...ours(ground, { name: "relay, ordered by aggregate", side: "relay" }), ...sides].map(on),
    base: "relay, ordered by aggregate",
    task: { events, broker: "none" },
    minutes: 2.5,
  });
  yield { ...finding, ratio: finding.bound === null ? null : finding.ratio, notes: [...finding.notes!, ...lacks] };
}
