import type { Facts } from "./facts.ts";
import type { Copy } from "./reads.ts";
import { trial, unknown, type Verdict } from "./verdict.ts";

/** B: the bytes that were added are the bytes in the broker and at the consumer, of the same aggregate and on the same topic. */
export function bytes({ history, reads, events }: Facts): Verdict {
  if (reads.broker === null) return unknown("bytes", "the broker could not be read");
  const { broken, verdict } = trial("bytes");
  let unsigned: string | null = null;
  const look = (id: string, sha: string, where: string): void => {
    const event = events.get(id);
    if (event === undefined) return; // a phantom, which `noPhantom` reports
    if (sha === "" || event.sha === "") unsigned ??= id;
    else if (event.sha !== sha) broken(event.n, `${event.aggregate} #${event.n} has other bytes ${where} than were added`, [id]);
  };
  const name = ({ id, aggregate, n, topic }: Omit<Copy, "sha">, where: string): void => {
    const event = events.get(id);
    if (event === undefined) return;
    if (event.aggregate !== aggregate || event.n !== n)
      broken(event.n, `${event.aggregate} #${event.n} is ${aggregate} #${n} ${where}`, [id]);
    if (event.topic !== topic) broken(event.n, `${event.aggregate} #${event.n} is of ${event.topic}, and is ${where}`, [id]);
  };
  for (const copy of reads.broker) {
    look(copy.id, copy.sha, `on ${copy.topic}`);
    name(copy, `on ${copy.topic}`);
  }
  for (const effect of reads.effects ?? []) name(effect, `at ${effect.consumer} from ${effect.topic}`);
  for (const entry of history) if (entry.op === "deliver") look(entry.id, entry.sha, `at ${entry.consumer}`);
  return verdict(unsigned === null ? null : `event ${String(unsigned)} was recorded without its bytes`);
}
