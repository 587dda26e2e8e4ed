import { setTimeout as sleep } from "node:timers/promises";
import type { Outgoing, Sink } from "../../src/contracts/sink.ts";
import { aggregateKey } from "../../src/core/event.ts";

/** What a relay does wrong, once, so that the judge can show that it finds it. */
export const bugs = ["drop", "double", "swap", "phantom", "change"] as const;
export type Bug = (typeof bugs)[number];

const neverStops = new AbortController().signal;

/** Spoils one message, after this many others. */
export function spoiled(sink: Sink, bug: Bug, after: number): Sink {
  let seen = 0;
  let done = false;
  const followed = (batch: readonly Outgoing[], { envelope }: Outgoing): boolean =>
    batch.some((other) => other.envelope.seq > envelope.seq && aggregateKey(other.envelope) === aggregateKey(envelope));
  return {
    ...sink,
    async publish(batch, signal) {
      seen += batch.length;
      const at = seen < after || done ? -1 : batch.findIndex((message) => bug !== "swap" || followed(batch, message));
      if (at === -1) return sink.publish(batch, signal);
      done = true;
      const victim = batch[at]!;
      const { envelope } = victim;
      const rest = batch.filter((each) => each !== victim);
      switch (bug) {
        case "double": {
          const results = await sink.publish(batch, signal);
          if (results[at]!.status === "stored") await sink.publish([victim], signal);
          return results;
        }
        case "phantom":
          await sink.publish([{ ...victim, envelope: { ...envelope, id: `${envelope.id.slice(0, -4)}0000` } }], signal);
          return sink.publish(batch, signal);
        case "change":
          return sink.publish(batch.with(at, { ...victim, envelope: { ...envelope, data: envelope.data.slice(1) } }), signal);
        case "drop":
        case "swap": {
          const results = rest.length === 0 ? [] : await sink.publish(rest, signal);
          if (bug === "swap") void late(sink, victim);
          return results.toSpliced(at, 0, { status: "stored" });
        }
      }
    },
  };
}

/** Until it is stored: the broker refuses some. */
async function late(sink: Sink, victim: Outgoing): Promise<void> {
  for (let tried = 0; tried < 20; tried++) {
    await sleep(100);
    const [result] = await sink.publish([victim], neverStops).catch(() => []);
    if (result?.status === "stored") return;
  }
}
