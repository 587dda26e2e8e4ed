import type { Facts } from "./facts.ts";
import { trial, unknown, type Verdict } from "./verdict.ts";

const waiting = new Set(["PENDING", "PUBLISHING", "FAILED", "BLOCKED"]);

/** S: once everything has healed, no event waits without a reason. The run has waited for the bound before it ends. */
export function nothingStuck({ reads, events, hasCause, healedAt }: Facts): Verdict {
  if (reads.outbox === null) return unknown("nothing stuck", "the outbox could not be read");
  if (healedAt === null) return unknown("nothing stuck", "nobody healed the faults, so that nothing had to move on");
  const { broken, pardon, verdict } = trial("nothing stuck");
  const dead = new Set(reads.outbox.filter(({ state }) => state === "DEAD").map(({ aggregate }) => aggregate));
  for (const { id, aggregate, state } of reads.outbox) {
    const event = events.get(id);
    if (state === "DEAD" && event !== undefined && !hasCause(event))
      broken(event.n, `${aggregate} #${event.n} is DEAD, and nothing that was broken was its own`, [id]);
    else if (state === "DEAD") pardon("dead");
    if (!waiting.has(state)) continue;
    if (state === "BLOCKED" && dead.has(aggregate)) pardon("blocked-behind-dead");
    else broken(state === "BLOCKED" ? 1 : 0, `an event of ${aggregate} is ${state}, and nothing holds it`, [id]);
  }
  for (const { consumer, id, waits } of reads.letters ?? [])
    if (waits === true)
      broken(0, `the letter of event ${id} was redriven, and ${consumer} has neither applied it nor given it up again`, [id]);
  return verdict();
}
