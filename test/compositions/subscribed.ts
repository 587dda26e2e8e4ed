import { memoryBroker, type MemoryBroker } from "../../src/brokers/memory/index.ts";
import type { PathEvent } from "../../src/core/path-events.ts";
import type { Service } from "../../src/core/service.ts";
import { createSubscriber, type SubscriberOptions } from "../../src/subscriber/subscriber.ts";
import type { Ground } from "./ground.ts";

const topic = "order.events";

/** A subscriber on the ground, which is given `count` events of as many aggregates, numbered from 0 by their aggregate id; `typeOf` names their types. */
export async function subscribed(
  ground: Ground,
  options: Pick<SubscriberOptions<unknown>, "batch" | "concurrency" | "retry" | "handlers" | "batchHandlers" | "handlerTimeoutMs">,
  count: number,
  typeOf: (n: number) => string = () => "OrderPlaced",
): Promise<{ readonly broker: MemoryBroker; readonly service: Service; readonly events: readonly PathEvent[]; settled(): number }> {
  const broker = memoryBroker();
  const sent = Array.from({ length: count }, (_, n) => ({
    topic,
    source: "/test",
    envelope: {
      id: `e-${n}`,
      seq: BigInt(n + 1),
      aggregateType: "Order",
      aggregateId: String(n),
      type: typeOf(n),
      eventVersion: 1,
      data: Buffer.from("{}"),
      contentType: "application/json",
      headers: {},
      idempotencyKey: null,
      createdAt: new Date(1_000),
    },
  }));
  await broker.publish(sent, new AbortController().signal);
  const events: PathEvent[] = [];
  const service = createSubscriber<unknown>({
    consumer: "stock",
    source: broker,
    inbox: ground.store,
    topics: [topic],
    retry: { delaysMs: [5, 5] },
    observe: (event) => void events.push(event),
    ...options,
  });
  await service.start();
  const settled = (): number =>
    new Set(events.flatMap((event) => (event.type === "subscriber.handled" || event.type === "subscriber.died" ? [event.id] : []))).size;
  return { broker, service, events, settled };
}
