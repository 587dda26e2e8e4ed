import type { Facts } from "./facts.ts";
import type { Bounds } from "./isolation.ts";
import { trial, unknown, type Verdict } from "./verdict.ts";

/**
 * L: every event of a committed transaction is in the broker, or stays visible in the outbox; and what is in the broker
 * has had its effect at every consumer of its topic, or a letter.
 */
export function noLoss(
  { history, reads, events, discarded, hasCause }: Facts,
  { mayBeIdle = false, effectsApart = false }: Bounds,
): Verdict {
  const { broker, outbox, effects, letters, written } = reads;
  if (broker === null || outbox === null) return unknown("no loss", "the broker or the outbox could not be read");
  if (effects === null || letters === null) return unknown("no loss", "the effects or the letters could not be read");
  const inBroker = new Set(broker.map(({ topic, id }) => `${topic} ${id}`));
  const rows = new Map(outbox.map(({ id, state }) => [id, state]));
  const done = new Set([...effects, ...letters].map(({ consumer, id }) => `${consumer} ${id}`));
  const parked = new Set(letters.map(({ consumer, id }) => `${consumer} ${id}`));
  const { broken, pardon, verdict } = trial("no loss");
  const forgotten = effectsApart ? new Set<string>() : forgottenEffects(history);
  const kept = written === null ? null : new Set(written.map(({ id }) => id));
  for (const { aggregate, n } of gaps(written ?? []))
    broken(n, `${aggregate} #${n} is missing among those that the database has committed`, []);

  for (const event of events.values()) {
    const { id, topic, aggregate, n, fate } = event;
    if (fate === "unknown") return unknown("no loss", `nobody knows whether event ${id} was committed: read the workload's table`);
    if (fate === "forgotten") pardon("lost-with-the-database");
    if (fate !== "committed") continue;
    if (kept !== null && !kept.has(id)) broken(n, `${aggregate} #${n} was committed, and the database has forgotten it`, [id]);
    if (!inBroker.has(`${topic} ${id}`)) {
      const state = rows.get(id);
      if (discarded.has(id)) pardon("discarded");
      else if (state === undefined || state === "PUBLISHED" || state === "DISCARDED") {
        const where = state === undefined ? "nor in the outbox" : `though the outbox says ${state}`;
        broken(n, `${aggregate} #${n} was committed and is not on ${topic}, ${where}`, [id]);
      } else if (state === "DEAD" && !hasCause(event))
        broken(n, `${aggregate} #${n} is DEAD, and nothing that was broken was its own`, [id]);
      else if (state === "DEAD") pardon("dead");
      continue;
    }
    for (const { consumer, topics } of reads.consumers) {
      if (!topics.includes(topic)) continue;
      if (forgotten.has(`${consumer} ${id}`) && !done.has(`${consumer} ${id}`)) pardon("effect-lost-with-the-database");
      else if (!done.has(`${consumer} ${id}`)) broken(n, `${aggregate} #${n} is on ${topic}, and had no effect at ${consumer}`, [id]);
      else if (parked.has(`${consumer} ${id}`) && !hasCause(event))
        broken(n, `${aggregate} #${n} was given up by ${consumer}, and nothing that was broken was its own`, [id]);
      else if (parked.has(`${consumer} ${id}`)) pardon("parked-by-the-consumer");
    }
  }
  const found = verdict();
  const idle = mayBeIdle && [...events.values()].every(({ fate }) => fate === "undone");
  const tried = idle || (effects.length > 0 && reads.consumers.length > 0);
  return found.verdict === "holds" && !tried ? unknown("no loss", "nothing was applied, so that nothing was put to the test") : found;
}

/** The first number that is missing of each aggregate: its counter is increased in the same transaction, so there are none by right. */
function gaps(written: readonly { readonly aggregate: string; readonly n: number }[]): readonly { aggregate: string; n: number }[] {
  const numbers = new Map<string, Set<number>>();
  for (const { aggregate, n } of written) numbers.set(aggregate, (numbers.get(aggregate) ?? new Set<number>()).add(n));
  return [...numbers].flatMap(([aggregate, known]) => {
    let n = 1;
    while (known.has(n)) n++;
    return n > known.size ? [] : [{ aggregate, n }];
  });
}

/** What consumers had applied, and acknowledged perhaps, before the last fail-over was over: their database may not know it any more. */
function forgottenEffects(history: Facts["history"]): ReadonlySet<string> {
  const over = history.findLast((entry) => entry.op === "fault" && entry.fault === "failover")?.at ?? -Infinity;
  return new Set(
    history.flatMap((entry) =>
      entry.op === "effect" && entry.phase === "ok" && entry.at <= over ? [`${entry.consumer} ${entry.id}`] : [],
    ),
  );
}
