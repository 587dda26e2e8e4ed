import { existsSync } from "node:fs";
import type { Outgoing, PublishResult, Sink } from "../contracts/sink.ts";
import type { Delivery, Source } from "../contracts/source.ts";
import { WaybillError } from "../core/errors.ts";
import { refusal, refusing } from "../proof/run/faulty-sinks.ts";
import { poisonHeader } from "./shop.ts";

/** The broker as the shop sees it: unavailable while the flag file exists, and refusing a poisoned event every time. */
export function gated<Broker extends Sink & Source>(broker: Broker, flag: string): Sink & Source {
  const away = (): boolean => existsSync(flag);
  const stopped = (): WaybillError => new WaybillError("DESTINATION_UNAVAILABLE", "the broker is stopped");
  const willing = async (): Promise<void> => {
    if (away()) throw stopped();
  };
  const objection = ({ envelope }: Outgoing): PublishResult | null => {
    if (away()) return { status: "refused", blame: "destination", retryable: true, error: stopped() };
    return envelope.headers[poisonHeader] === undefined ? null : refusal("the broker refuses this poisoned event");
  };

  return {
    ...refusing(broker, objection),
    can: broker.can,
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
  };
}
