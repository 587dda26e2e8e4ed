import type { Facts } from "./facts.ts";
import { trial, unknown, type Verdict } from "./verdict.ts";

/** C: status counts what SQL counts, and of the committed events only published and discarded rows are ever deleted. */
export function conservation({ history, reads, events, discarded }: Facts): Verdict {
  const { status, outbox } = reads;
  if (status === null || outbox === null) return unknown("conservation", "the status or the outbox could not be read");
  const { broken, verdict } = trial("conservation");
  for (const name of new Set([...Object.keys(status.said), ...Object.keys(status.truth)])) {
    const [said, truth] = [status.said[name] ?? 0, status.truth[name] ?? 0];
    if (said !== truth) broken(Math.abs(said - truth), `status says ${said} ${name}, and SQL counts ${truth}`, []);
  }
  const rows = new Set(outbox.map(({ id }) => id));
  const ended = new Set(discarded);
  // A settle that was only begun counts too: it may have been done, and its relay may have died before the answer came.
  for (const entry of history) {
    if (entry.op !== "settle") continue;
    for (const { id, as } of entry.outcomes) if (as === "published") ended.add(id);
  }
  for (const { id, aggregate, n, fate } of events.values()) {
    if (fate !== "committed" || rows.has(id) || ended.has(id)) continue;
    broken(n, `the row of ${aggregate} #${n} is gone, and nobody published or discarded it`, [id]);
  }
  return verdict();
}
