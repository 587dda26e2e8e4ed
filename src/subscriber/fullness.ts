import type { Observe } from "../core/path-events.ts";
import type { Delivery, Subscription } from "../contracts/source.ts";

export interface Fullness {
  /** The delivery, seen to be set aside; call `done` when it is not `running` any more. */
  watch(delivery: Delivery): { readonly delivery: Delivery; readonly done: () => void };
  look(): void;
}

/** Tells when no more is received because so much waits. From there until the prefetch is free again it is one trouble. */
export function watchFullness(
  { consumer, topics, prefetch, waiting = 0 }: Subscription,
  running: ReadonlySet<unknown>,
  observe: Observe,
): Fullness {
  const asides = new Set<Delivery>();
  let full = false;
  const look = (): void => {
    const now = full ? running.size > waiting : asides.size >= waiting && running.size >= prefetch + waiting;
    if (now === full) return;
    full = now;
    observe({ type: "subscriber.full", consumer, topic: topics.join(","), unacknowledged: running.size, full });
  };
  return {
    look,
    watch(delivery) {
      const aside = (): void => {
        asides.add(delivery);
        delivery.aside();
        look();
      };
      const done = (): void => {
        asides.delete(delivery);
        look();
      };
      return { delivery: { topic: delivery.topic, envelope: delivery.envelope, ack: () => delivery.ack(), aside }, done };
    },
  };
}
