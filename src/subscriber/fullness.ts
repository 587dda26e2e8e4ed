import type { Observe } from "../core/path-events.ts";
import { createAsideBytes } from "../core/room.ts";
import type { Delivery, Subscription } from "../contracts/source.ts";

interface Fullness {
  /** Wraps the delivery to notice when it is set aside. Call `done` once it is no longer in `running`. */
  watch(delivery: Delivery): { readonly delivery: Delivery; readonly done: () => void };
  look(): void;
}

/** Reports when no more is received because too many deliveries wait. Until the prefetch is free again, this counts as one trouble. */
export function watchFullness(
  { consumer, topics, prefetch, waiting = 0, bytes = Infinity }: Subscription,
  running: ReadonlySet<unknown>,
  observe: Observe,
): Fullness {
  const asides = new Set<Delivery>();
  const asideBytes = createAsideBytes(bytes);
  let full = false;
  const look = (): void => {
    const counted = full ? running.size > waiting : asides.size >= waiting && running.size >= prefetch + waiting;
    const now = counted || asideBytes.full;
    if (now === full) return;
    full = now;
    observe({ type: "subscriber.full", consumer, topic: topics.join(","), unacknowledged: running.size, full });
  };
  return {
    look,
    watch(delivery) {
      const { topic, envelope, unreadable, assignment } = delivery;
      const size = delivery.bytes ?? envelope.data.byteLength;
      const aside = (): void => {
        if (!asides.has(delivery)) asideBytes.add(size);
        asides.add(delivery);
        delivery.aside();
        look();
      };
      const done = (): void => {
        if (asides.delete(delivery)) asideBytes.remove(size);
        look();
      };
      const rest = { ...(unreadable && { unreadable }), ...(assignment && { assignment }) };
      return { delivery: { topic, envelope, ...rest, ack: () => delivery.ack(), aside }, done };
    },
  };
}
