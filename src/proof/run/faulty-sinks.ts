import type { Outgoing, PublishResult, Sink } from "../../contracts/sink.ts";
import { aggregateKey } from "../../core/event.ts";
import type { Points } from "../crew/failpoints.ts";

/** The same sink with another publish. Some adapters know their `can` only when it is read. */
export function withPublish(of: Sink, publish: Sink["publish"]): Sink {
  return {
    name: of.name,
    get can() {
      return of.can;
    },
    connect: (signal) => of.connect(signal),
    publish,
    probe: (topic, signal) => of.probe(topic, signal),
    [Symbol.asyncDispose]: () => of[Symbol.asyncDispose](),
  };
}

/** A broker that refuses some messages, and skips the later ones of their aggregates. */
export function refusing(of: Sink, objection: (message: Outgoing) => PublishResult | null): Sink {
  return withPublish(of, async (batch, signal) => {
    const stopped = new Set<string>();
    const own = batch.map((message): PublishResult | null => {
      const key = aggregateKey(message.envelope);
      if (stopped.has(key)) return { status: "skipped" };
      const refused = objection(message);
      if (refused !== null) stopped.add(key);
      return refused;
    });
    const results = await of.publish(
      batch.filter((_, i) => own[i] === null),
      signal,
    );
    let next = 0;
    return own.map((refused) => refused ?? results[next++]!);
  });
}

/** Blames the event, not its topic. */
export const refusal = (why: string): PublishResult => ({ status: "refused", blame: "event", retryable: true, error: new Error(why) });

/** A sink whose process may die in the middle of a batch, when half of it is stored and the relay has no answer yet. */
export function halved(of: Sink, failpoints: Points): Sink {
  return withPublish(of, async (batch, signal) => {
    const half = Math.ceil(batch.length / 2);
    const first = await of.publish(batch.slice(0, half), signal);
    await failpoints.hit(
      "mid-batch",
      batch.map(({ envelope }) => envelope.id),
    );
    const others = batch.slice(half);
    // If a message was not stored, its followers may be among the others.
    const well = others.length > 0 && first.every(({ status }) => status === "stored");
    return [...first, ...(well ? await of.publish(others, signal) : others.map((): PublishResult => ({ status: "skipped" })))];
  });
}

/** A network that delivers every message several times. */
export function repeating(of: Sink, times: number): Sink {
  return withPublish(of, async (batch, signal) => {
    const results = await of.publish(batch, signal);
    const stored = batch.filter((_, i) => results[i]!.status === "stored");
    for (let again = 0; again < times && stored.length > 0; again++) await of.publish(stored, signal);
    return results;
  });
}
