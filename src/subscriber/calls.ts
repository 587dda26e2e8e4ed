import type { Delivery } from "../contracts/source.ts";
import { aggregateKey } from "../core/event.ts";

/**
 * Which deliveries each handler call gets. The calls run one after the other. A batch handler gets as many as it can at once. Each
 * aggregate's events still come in their order: a call never gets an event whose predecessor is in a later call.
 */
export function callsOf(
  deliveries: readonly Delivery[],
  handlerOf: (delivery: Delivery) => string,
  takesBatches: (handler: string) => boolean,
): readonly (readonly Delivery[])[] {
  const calls: Delivery[][] = [];
  /** By handler, its last call; by aggregate, the call that has its last event. */
  const lastCall = new Map<string, number>();
  const lastOf = new Map<string, number>();
  for (const delivery of deliveries) {
    const handler = handlerOf(delivery);
    const key = `${delivery.topic}\0${aggregateKey(delivery.envelope)}`;
    const known = takesBatches(handler) ? lastCall.get(handler) : undefined;
    const at = known !== undefined && known >= (lastOf.get(key) ?? 0) ? known : calls.push([]) - 1;
    calls[at]!.push(delivery);
    lastCall.set(handler, at);
    lastOf.set(key, at);
  }
  return calls;
}
