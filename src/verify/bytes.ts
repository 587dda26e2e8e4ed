import type { Facts } from "./facts.ts";
import { trial, unknown, type Verdict } from "./verdict.ts";

/** B: the bytes that were added are the bytes in the broker and at the consumer, and of the same aggregate. */
export function bytes({ history, reads, events }: Facts): Verdict {
  if (reads.broker === null) return unknown("bytes", "the broker could not be read");
  const { broken, verdict } = trial("bytes");
  let unsigned: string | null = null;
  const look = (id: string, sha: string, where: string): void => {
    const event = events.get(id);
    if (event === undefined) return; // a phantom, and told as one
    if (sha === "" || event.sha === "") unsigned ??= id;
    else if (event.sha !== sha) broken(event.n, `${event.aggregate} #${event.n} has other bytes ${where} than were added`, [id]);
  };
  const name = (id: string, aggregate: string, n: number, where: string): void => {
    const event = events.get(id);
    if (event !== undefined && (event.aggregate !== aggregate || event.n !== n))
      broken(event.n, `${event.aggregate} #${event.n} is ${aggregate} #${n} ${where}`, [id]);
  };
  for (const { id, sha, topic, aggregate, n } of reads.broker) {
    look(id, sha, `on ${topic}`);
    name(id, aggregate, n, `on ${topic}`);
  }
  for (const { id, consumer, aggregate, n } of reads.effects ?? []) name(id, aggregate, n, `at ${consumer}`);
  for (const entry of history) if (entry.op === "deliver") look(entry.id, entry.sha, `at ${entry.consumer}`);
  const found = verdict();
  return found.verdict === "holds" && unsigned !== null
    ? unknown("bytes", `event ${String(unsigned)} was recorded without its bytes`)
    : found;
}
