import type { Outgoing, PublishResult, Sink } from "../../contracts/sink.ts";
import type { Clock } from "../../core/clock.ts";
import { toAttributes } from "../../core/cloudevents.ts";
import { asError, WaybillError } from "../../core/errors.ts";
import { aggregateKey } from "../../core/event.ts";
import type { Log } from "./log.ts";

export interface SinkOptions {
  readonly log: Log;
  readonly clock: Clock;
  readonly provision: boolean;
  readonly maxBytes: number;
  readonly closing: AbortSignal;
}

export function createSink({ log, clock, provision, maxBytes, closing }: SinkOptions): Pick<Sink, "publish" | "probe"> {
  const absent = (topic: string): WaybillError | null =>
    provision || log.topics.has(topic)
      ? null
      : new WaybillError("DESTINATION_UNAVAILABLE", `the memory broker has no topic ${JSON.stringify(topic)}: provision it first`);

  const calledOff = (signal: AbortSignal): WaybillError | null => {
    if (closing.aborted) return new WaybillError("STOPPED", "the memory broker has been closed");
    return signal.aborted ? new WaybillError("DESTINATION_UNAVAILABLE", "the publish was called off before it began") : null;
  };

  const store = (message: Outgoing, late: Error | null): PublishResult => {
    try {
      const { topic, envelope, source } = message;
      const attributes = toAttributes(envelope, source);
      const bytes = Buffer.byteLength(JSON.stringify(attributes) + JSON.stringify(envelope.headers)) + envelope.data.byteLength;
      if (bytes > maxBytes) {
        const why = `event ${envelope.id} takes ${bytes} bytes with its headers, and the memory broker takes ${maxBytes}`;
        return refused("event", new WaybillError("MESSAGE_TOO_LARGE", why));
      }
      const unavailable = late ?? absent(topic);
      if (unavailable !== null) return refused("destination", unavailable);
      const messages = log.topics.get(topic) ?? [];
      log.topics.set(topic, messages);
      messages.push({
        offset: ++log.last,
        topic,
        key: envelope.aggregateId,
        attributes,
        headers: { ...envelope.headers },
        data: envelope.data.slice(),
        storedAt: new Date(clock.now()),
      });
      return { status: "stored" };
    } catch (error) {
      return refused("event", asError(error));
    }
  };

  return {
    async publish(batch, signal) {
      const late = calledOff(signal);
      const failed = new Set<string>();
      const results = batch.map((message): PublishResult => {
        const aggregate = aggregateKey(message.envelope);
        if (failed.has(aggregate)) return { status: "skipped" };
        const result = store(message, late);
        if (result.status !== "stored") failed.add(aggregate);
        return result;
      });
      for (const wake of log.wakes) wake.notify();
      return results;
    },
    async probe(topic, signal) {
      const why = calledOff(signal) ?? absent(topic);
      if (why !== null) throw why;
    },
  };
}

function refused(blame: "event" | "destination", error: Error): PublishResult {
  return { status: "refused", blame, retryable: blame === "destination", error };
}
