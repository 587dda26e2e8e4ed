import type { Outgoing, PublishResult, Sink } from "../../contracts/sink.ts";
import type { Clock } from "../../core/clock.ts";
import { toAttributes } from "../../core/cloudevents.ts";
import { WaybillError } from "../../core/errors.ts";
import { outage } from "../kit/outage.ts";
import { encoded, inOrder, stored, unavailable } from "../kit/results.ts";
import type { Log } from "./log.ts";

interface SinkOptions {
  readonly log: Log;
  readonly clock: Clock;
  readonly provision: boolean;
  readonly maxBytes: number;
  readonly closing: AbortSignal;
}

export function createSink({ log, clock, provision, maxBytes, closing }: SinkOptions): Pick<Sink, "publish" | "probe"> {
  const absent = (topic: string): WaybillError | null =>
    provision || log.topics.has(topic) ? null : outage(`the memory broker has no topic ${JSON.stringify(topic)}: provision it first`);

  const calledOff = (signal: AbortSignal): WaybillError | null => {
    if (closing.aborted) return new WaybillError("STOPPED", "the memory broker has been closed");
    return signal.aborted ? outage("the publish was called off before it began") : null;
  };

  const store = (message: Outgoing, late: Error | null): PublishResult => {
    const { topic, envelope, source } = message;
    const row = encoded(message, { of: "the memory broker", most: maxBytes }, () => {
      const attributes = toAttributes(envelope, source);
      const beside = JSON.stringify(attributes) + JSON.stringify(envelope.headers);
      return { attributes, bytes: Buffer.byteLength(beside) + envelope.data.byteLength };
    });
    if ("status" in row) return row;
    const missing = late ?? absent(topic);
    if (missing !== null) return unavailable(missing);
    const messages = log.topics.get(topic) ?? [];
    log.topics.set(topic, messages);
    messages.push({
      offset: ++log.last,
      topic,
      key: envelope.aggregateId,
      attributes: row.attributes,
      headers: { ...envelope.headers },
      data: envelope.data.slice(),
      storedAt: new Date(clock.now()),
    });
    return stored;
  };

  return {
    async publish(batch, signal) {
      const late = calledOff(signal);
      const results = inOrder(batch, (message) => store(message, late));
      for (const wake of log.wakes) wake.notify();
      return results;
    },
    async probe(topic, signal) {
      const why = calledOff(signal) ?? absent(topic);
      if (why !== null) throw why;
    },
  };
}
