import type { Facts } from "./facts.ts";
import { trial, unknown, type Verdict } from "./verdict.ts";

/**
 * L: every event of a committed transaction is in the broker, or stays visible in the outbox; and what is in the broker
 * has had its effect at every consumer of its topic, or a letter.
 */
export function noLoss({ history, reads, events, discarded }: Facts): Verdict {
  const { broker, outbox, effects, letters, written } = reads;
  if (broker === null || outbox === null) return unknown("no loss", "the broker or the outbox could not be read");
  if (effects === null || letters === null) return unknown("no loss", "the effects or the letters could not be read");
  const inBroker = new Set(broker.map(({ topic, id }) => `${topic} ${id}`));
  const rows = new Map(outbox.map(({ id, state }) => [id, state]));
  const done = new Set([...effects, ...letters].map(({ consumer, id }) => `${consumer} ${id}`));
  const parked = new Set(letters.map(({ consumer, id }) => `${consumer} ${id}`));
  const { broken, pardon, verdict } = trial("no loss");
  const forgotten = forgottenEffects(history);
  const kept = written === null ? null : new Set(written.map(({ id }) => id));

  for (const { id, topic, aggregate, n, fate } of events.values()) {
    if (fate === "unknown") return unknown("no loss", `nobody knows whether event ${id} was committed: read the workload's table`);
    if (fate === "forgotten") pardon("lost-with-the-database");
    if (fate !== "committed") continue;
    if (kept !== null && !kept.has(id)) broken(n, `${aggregate} #${n} was committed, and the database has forgotten it`, [id]);
    if (!inBroker.has(`${topic} ${id}`)) {
      const state = rows.get(id);
      if (state === "DISCARDED" || discarded.has(id)) pardon("discarded");
      else if (state === undefined || state === "PUBLISHED") {
        const where = state === undefined ? "nor in the outbox" : "though the outbox says PUBLISHED";
        broken(n, `${aggregate} #${n} was committed and is not on ${topic}, ${where}`, [id]);
      } else if (state === "DEAD") pardon("dead");
      continue;
    }
    for (const { consumer, topics } of reads.consumers) {
      if (!topics.includes(topic)) continue;
      if (forgotten.has(`${consumer} ${id}`) && !done.has(`${consumer} ${id}`)) pardon("effect-lost-with-the-database");
      else if (!done.has(`${consumer} ${id}`)) broken(n, `${aggregate} #${n} is on ${topic}, and had no effect at ${consumer}`, [id]);
      else if (parked.has(`${consumer} ${id}`)) pardon("parked-by-the-consumer");
    }
  }
  return verdict();
}

/** What consumers had applied, and acknowledged perhaps, before the last fail-over was over: their database may not know it any more. */
function forgottenEffects(history: Facts["history"]): ReadonlySet<string> {
  const over = history.findLast((entry) => entry.op === "fault" && entry.fault === "failover")?.at ?? -Infinity;
  return new Set(history.flatMap((entry) => (entry.op === "effect" && entry.at <= over ? [`${entry.consumer} ${entry.id}`] : [])));
}
