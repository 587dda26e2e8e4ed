import type { Event, Facts } from "./facts.ts";
import type { TimeBounds } from "./isolation.ts";
import type { Legal } from "./legal.ts";
import { trial, unknown, type Verdict } from "./verdict.ts";

/** The finding for one event at one place of its path: what is wrong, or why it is legal. Null: it is where it should be. */
type Finding = { readonly wrong: string } | { readonly legal: Legal } | null;

const wrong = (text: string): Finding => ({ wrong: text });
const legal = (why: Legal): Finding => ({ legal: why });

/**
 * L: every event of a committed transaction is in the broker, or stays visible in the outbox; and what is in the broker
 * has had its effect at every consumer of its topic, or a letter.
 */
export function noLoss(facts: Facts, { mayBeIdle = false, effectsApart = false }: TimeBounds): Verdict {
  const { history, reads, events, hasCause } = facts;
  const { broker, outbox, effects, letters, written } = reads;
  if (broker === null || outbox === null) return unknown("no loss", "the broker or the outbox could not be read");
  if (effects === null || letters === null) return unknown("no loss", "the effects or the letters could not be read");
  const lost = [...events.values()].find(({ fate }) => fate === "unknown");
  if (lost !== undefined) return unknown("no loss", `nobody knows whether event ${lost.id} was committed: read the workload's table`);

  const inBroker = new Set(broker.map(({ topic, id }) => `${topic} ${id}`));
  const rows = new Map(outbox.map(({ id, state }) => [id, state]));
  const applied = new Set(effects.map(({ consumer, id }) => `${consumer} ${id}`));
  const parked = new Set(letters.map(({ consumer, id }) => `${consumer} ${id}`));
  const forgotten = effectsApart ? new Set<string>() : forgottenEffects(history);
  const kept = written === null ? null : new Set(written.map(({ id }) => id));

  const inDatabase = ({ id, fate }: Event): Finding => {
    if (fate === "forgotten") return legal("lost-with-the-database");
    return fate === "committed" && kept?.has(id) === false ? wrong("was committed, and the database has forgotten it") : null;
  };
  const inOutbox = (event: Event): Finding => {
    const state = rows.get(event.id);
    if (facts.discarded.has(event.id)) return legal("discarded");
    if (state === undefined) return wrong(`was committed and is not on ${event.topic}, nor in the outbox`);
    if (state === "PUBLISHED" || state === "DISCARDED")
      return wrong(`was committed and is not on ${event.topic}, though the outbox says ${state}`);
    if (state !== "DEAD") return null;
    return hasCause(event) ? legal("dead") : wrong("is DEAD, and nothing that was broken was its own");
  };
  const atConsumer = (event: Event, consumer: string): Finding => {
    const key = `${consumer} ${event.id}`;
    if (parked.has(key)) {
      if (hasCause(event)) return legal("parked-by-the-consumer");
      return wrong(`was given up by ${consumer}, and nothing that was broken was its own`);
    }
    if (applied.has(key)) return null;
    return forgotten.has(key) ? legal("effect-lost-with-the-database") : wrong(`is on ${event.topic}, and had no effect at ${consumer}`);
  };
  const pathOf = (event: Event): readonly Finding[] => {
    if (event.fate !== "committed") return [inDatabase(event)];
    if (!inBroker.has(`${event.topic} ${event.id}`)) return [inDatabase(event), inOutbox(event)];
    const consumers = reads.consumers.filter(({ topics }) => topics.includes(event.topic));
    return [inDatabase(event), ...consumers.map(({ consumer }) => atConsumer(event, consumer))];
  };

  const { broken, pardon, verdict } = trial("no loss");
  for (const { aggregate, n } of gaps(written ?? []))
    broken(n, `${aggregate} #${n} is missing among those that the database has committed`, []);
  for (const event of events.values()) {
    for (const finding of pathOf(event)) {
      if (finding === null) continue;
      if ("legal" in finding) pardon(finding.legal);
      else broken(event.n, `${event.aggregate} #${event.n} ${finding.wrong}`, [event.id]);
    }
  }
  const idle = mayBeIdle && [...events.values()].every(({ fate }) => fate === "undone");
  const tried = idle || (effects.length > 0 && reads.consumers.length > 0);
  return verdict(tried ? null : "nothing was applied, so that nothing was put to the test");
}

/** The first missing number of each aggregate. The counter is increased in the event's transaction, so there must be no gaps. */
function gaps(written: readonly { readonly aggregate: string; readonly n: number }[]): readonly { aggregate: string; n: number }[] {
  const numbers = new Map<string, Set<number>>();
  for (const { aggregate, n } of written) numbers.set(aggregate, (numbers.get(aggregate) ?? new Set<number>()).add(n));
  return [...numbers].flatMap(([aggregate, known]) => {
    let n = 1;
    while (known.has(n)) n++;
    return n > known.size ? [] : [{ aggregate, n }];
  });
}

/** Effects that consumers had, and perhaps acknowledged, before the last fail-over was over: their database may have lost them. */
function forgottenEffects(history: Facts["history"]): ReadonlySet<string> {
  const over = history.findLast((entry) => entry.op === "fault" && entry.fault === "failover")?.at ?? -Infinity;
  return new Set(
    history.flatMap((entry) =>
      entry.op === "effect" && entry.phase === "ok" && entry.at <= over ? [`${entry.consumer} ${entry.id}`] : [],
    ),
  );
}
