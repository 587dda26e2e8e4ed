import { existsSync } from "node:fs";
import type { Outgoing, PublishResult, Sink } from "../../contracts/sink.ts";
import type { Delivery, Source } from "../../contracts/source.ts";
import { WaybillError } from "../../core/errors.ts";
import { aggregateKey } from "../../core/event.ts";
import { poisonHeader } from "./shop.ts";

/** The broker as the shop meets it: away while the flag file is there, and never willing to take a poisoned event. */
export function gated<Broker extends Sink & Source>(broker: Broker, flag: string): Sink & Source {
  const away = (): boolean => existsSync(flag);
  const stopped = (): WaybillError => new WaybillError("DESTINATION_UNAVAILABLE", "the broker is stopped");
  const willing = async (): Promise<void> => {
    if (away()) throw stopped();
  };
  const objection = ({ envelope }: Outgoing): PublishResult | null => {
    if (away()) return { status: "refused", blame: "destination", retryable: true, error: stopped() };
    if (envelope.headers[poisonHeader] === undefined) return null;
    return { status: "refused", blame: "event", retryable: true, error: new Error("the broker refuses this poisoned event") };
  };

  return {
    name: broker.name,
    can: broker.can,
    connect: (signal) => broker.connect(signal),
    async publish(messages, signal) {
      const verdicts = judged(messages, objection);
      const taken = await broker.publish(
        messages.filter((_, i) => verdicts[i] === null),
        signal,
      );
      let next = 0;
      return verdicts.map((verdict) => verdict ?? taken[next++]!);
    },
    async probe(name, signal) {
      await willing();
      await broker.probe(name, signal);
    },
    async *receive(subscription, signal): AsyncGenerator<Delivery, undefined> {
      await willing();
      for await (const delivery of broker.receive(subscription, signal)) {
        await willing();
        yield {
          ...delivery,
          async ack() {
            await willing();
            await delivery.ack();
          },
        };
      }
    },
    [Symbol.asyncDispose]: () => broker[Symbol.asyncDispose](),
  };
}

/** Null for what may go; after an objection, the rest of its aggregate is skipped. */
function judged(messages: readonly Outgoing[], objection: (message: Outgoing) => PublishResult | null): readonly (PublishResult | null)[] {
  const refused = new Set<string>();
  return messages.map((message) => {
    const key = aggregateKey(message.envelope);
    if (refused.has(key)) return { status: "skipped" };
    const verdict = objection(message);
    if (verdict !== null) refused.add(key);
    return verdict;
  });
}
