import type { Facts } from "./facts.ts";
import { trial, unknown, type Verdict } from "./verdict.ts";

/** P: whatever is in the broker, was delivered or had an effect belongs to a committed transaction. */
export function noPhantom({ history, reads, events }: Facts): Verdict {
  const { broker, effects } = reads;
  if (broker === null || effects === null) return unknown("no phantom", "the broker or the effects could not be read");
  const { broken, pardon, verdict } = trial("no phantom");
  let undecided: string | null = null;
  const look = (id: string, where: string): void => {
    const event = events.get(id);
    if (event === undefined) broken(0, `event ${id} is ${where}, and nobody added it`, [id]);
    else if (event.fate === "undone")
      broken(event.n, `${event.aggregate} #${event.n} is ${where}, and its transaction was rolled back`, [id]);
    else if (event.fate === "forgotten") pardon("published-before-the-database-forgot");
    else if (event.fate === "unknown") undecided ??= id;
  };
  for (const { id, aggregate, n } of reads.written ?? [])
    if (!events.has(id)) broken(n, `${aggregate} #${n} is in the database, and nobody added it`, [id]);
  for (const { id, aggregate, n, denied } of events.values())
    if (denied) broken(n, `${aggregate} #${n} is in the database, and its writer was told that it is not`, [id]);
  for (const { id, topic } of broker) look(id, `on ${topic}`);
  for (const { id, consumer } of effects) look(id, `applied by ${consumer}`);
  for (const entry of history) if (entry.op === "deliver") look(entry.id, `delivered to ${entry.consumer}`);
  const doubt = `nobody knows whether event ${String(undecided)} was committed: read the workload's table`;
  return verdict(undecided === null ? null : doubt);
}
