import type { Facts } from "./facts.ts";
import { harms, type Trouble } from "./troubles.ts";
import { trial, unknown, type Verdict } from "./verdict.ts";

export interface TimeBounds {
  /** An event that nothing harms is in the broker within this time. */
  readonly latencyMs: number;
  /** How long a fault may still delay events after its end. */
  readonly recoveryMs: number;
  /** How long after its end a fault may still cost copies: until the leases and publishes that it harmed have expired. */
  readonly lingerMs: number;
  /** Set where the run does not vouch for the broker: how long it has for a publish before the next attempt may be a copy. */
  readonly answerMs?: number;
  /** One run of many: its database may have been unavailable for so long that nothing was ever committed. */
  readonly mayBeIdle?: boolean;
  /** The consumers have a database of their own, which does not fail over. */
  readonly effectsApart?: boolean;
}

/** I: a bad event harms its own aggregate only, and a broken destination its own topics only. All other events are published in time. */
export function isolation({ history, reads, events, troubles }: Facts, bounds: TimeBounds): Verdict {
  if (reads.broker === null) return unknown("isolation", "the broker could not be read");
  const stored = new Map<string, number>();
  for (const entry of history) {
    if (entry.op !== "publish" || entry.phase !== "ok") continue;
    for (const { id } of entry.events) if (!stored.has(id)) stored.set(id, entry.at);
  }
  const general = troubles.filter(({ scope }) => scope === "all");
  const { broken, pardon, verdict } = trial("isolation");
  const inBroker = new Set(reads.broker.map(({ id }) => id));
  let unseen: string | null = null;
  for (const event of events.values()) {
    const { id, fate, committedAt } = event;
    if (fate !== "committed" || committedAt === null || event.delayed === true) continue;
    const due = committedAt + bounds.latencyMs;
    const at = stored.get(id);
    if (at !== undefined && at <= due) continue;
    const during = (trouble: Trouble): boolean => trouble.from <= due && trouble.until + bounds.recoveryMs >= committedAt;
    if (general.some(during) || troubles.some((trouble) => harms(trouble.scope, event) && during(trouble))) pardon("harmed-by-a-fault");
    else if (at === undefined && inBroker.has(id)) unseen ??= id;
    else {
      const late = at === undefined ? "was never published" : `was published after ${Math.round(at - committedAt)} ms`;
      broken(event.n, `${event.aggregate} #${event.n} ${late}, though nothing that was broken was its own`, [id]);
    }
  }
  return verdict(unseen === null ? null : `event ${String(unseen)} is in the broker, and nobody recorded its publish`);
}
