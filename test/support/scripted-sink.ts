import type { Outgoing, PublishResult, Sink } from "../../src/contracts/sink.ts";
import { aggregateKey } from "../../src/core/event.ts";

/** What a scripted broker does with one message. */
export type Verdict =
  | "stored"
  /** Refused for what it is: now, or for good. */
  | "refused"
  | "refused-for-good"
  /** The topic is missing or forbidden. */
  | "down"
  /** The link broke before, or after, the broker had stored it. */
  | "lost-before"
  | "lost-after";

export interface ScriptedSink extends Sink {
  /** What the broker holds, in the order in which it was stored. */
  readonly log: { readonly topic: string; readonly id: string; readonly aggregate: string; readonly n: number }[];
  /** Ids of every message handed over, in order. */
  readonly sent: string[];
  /** Batches handed over. */
  batches: number;
}

export interface Script {
  verdict?(message: Outgoing): Verdict;
  /** Rejects when the destination is not well. */
  probe?(topic: string): void;
  /** Runs before each batch. */
  before?(batch: readonly Outgoing[], signal: AbortSignal): Promise<void> | void;
}

/** Payloads are `{ "n": … }`: the place of the event in its aggregate. */
export function scriptedSink(script: Script = {}): ScriptedSink {
  const sink: ScriptedSink = {
    name: "scripted",
    can: { maxBytes: 10_000 },
    log: [],
    sent: [],
    batches: 0,
    connect: () => Promise.resolve(),
    async publish(batch, signal) {
      sink.batches++;
      await script.before?.(batch, signal);
      const stopped = new Set<string>();
      return batch.map((message): PublishResult => {
        const aggregate = aggregateKey(message.envelope);
        if (stopped.has(aggregate)) return { status: "skipped" };
        sink.sent.push(message.envelope.id);
        const verdict = script.verdict?.(message) ?? "stored";
        if (verdict === "stored" || verdict === "lost-after") {
          const { n } = JSON.parse(Buffer.from(message.envelope.data).toString()) as { n: number };
          sink.log.push({ topic: message.topic, id: message.envelope.id, aggregate, n });
        }
        if (verdict !== "stored") stopped.add(aggregate);
        return resultOf(verdict);
      });
    },
    probe: async (topic) => script.probe?.(topic),
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
  return sink;
}

function resultOf(verdict: Verdict): PublishResult {
  switch (verdict) {
    case "stored":
      return { status: "stored" };
    case "refused":
      return { status: "refused", blame: "event", retryable: true, error: new Error("refused for now") };
    case "refused-for-good":
      return { status: "refused", blame: "event", retryable: false, error: new Error("refused for good") };
    case "down":
      return { status: "refused", blame: "destination", retryable: true, error: new Error("no such topic") };
    case "lost-before":
    case "lost-after":
      return { status: "unknown", error: new Error("link lost") };
  }
}

/** First occurrences per aggregate and topic, in the order in which the broker stored them. */
export function firstDeliveries(log: ScriptedSink["log"]): Map<string, number[]> {
  const seen = new Set<string>();
  const orders = new Map<string, number[]>();
  for (const { aggregate, n, id } of log) {
    if (seen.has(id)) continue;
    seen.add(id);
    orders.set(aggregate, [...(orders.get(aggregate) ?? []), n]);
  }
  return orders;
}
