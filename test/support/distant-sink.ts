import type { Outgoing, PublishResult, Sink } from "../../src/contracts/sink.ts";
import type { Clock } from "../../src/core/clock.ts";
import { runsOf } from "../../src/core/runs.ts";

interface DistantSink extends Sink {
  /** What the broker holds, and when it came there by the monotonic clock. */
  readonly log: { readonly id: string; readonly aggregate: string; readonly n: number; readonly at: number }[];
  /** Messages handed over, in order. */
  readonly sent: string[];
  /** How many messages each call had. */
  readonly calls: number[];
}

export interface Distance {
  readonly clock: Clock;
  /** How long one message takes to the broker and its answer back. */
  readonly roundTripMs: number | (() => number);
  /** Neither stored nor answered. */
  lost?(message: Outgoing): boolean;
}

/** A broker that takes an aggregate's messages one per round trip, as Redis, RabbitMQ and JetStream do. What has no answer when the signal aborts is unknown. */
export function distantSink({ clock, roundTripMs, lost }: Distance): DistantSink {
  const halfMs = (): number => (typeof roundTripMs === "number" ? roundTripMs : roundTripMs()) / 2;
  const sink: DistantSink = {
    name: "distant",
    can: { maxBytes: 10_000, run: 1 },
    log: [],
    sent: [],
    calls: [],
    connect: () => Promise.resolve(),
    async publish(batch, signal) {
      sink.calls.push(batch.length);
      const results: PublishResult[] = batch.map(() => ({ status: "skipped" }));
      const deliver = async (at: number): Promise<void> => {
        const { id, aggregateId, data } = batch[at]!.envelope;
        sink.sent.push(id);
        results[at] = { status: "unknown", error: new Error("called off before the answer came") };
        await clock.sleep(halfMs());
        if (lost?.(batch[at]!) === true) return new Promise((resolve) => signal.addEventListener("abort", () => resolve()));
        sink.log.push({ id, aggregate: aggregateId, n: (JSON.parse(String(Buffer.from(data))) as { n: number }).n, at: clock.monotonic() });
        await clock.sleep(halfMs(), signal);
        if (!signal.aborted) results[at] = { status: "stored" };
      };
      const deliverRun = async (run: readonly number[]): Promise<void> => {
        for (const at of run) {
          if (signal.aborted) return;
          await deliver(at);
          if (results[at]!.status !== "stored") return;
        }
      };
      await Promise.all(runsOf(batch.map(({ envelope }) => envelope)).map(deliverRun));
      return results;
    },
    probe: () => Promise.resolve(),
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
  return sink;
}
