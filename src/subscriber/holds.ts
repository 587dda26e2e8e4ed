import type { Delivery } from "../contracts/source.ts";

/**
 * Which aggregates are held. An aggregate with an event that failed or takes long is held until none of its deliveries is left.
 * Otherwise the deliveries behind that event would use up the prefetch, and keep other aggregates from being delivered.
 */
interface Holds {
  /** Adds a delivery that is not done yet. It is set aside if its aggregate is held, or as soon as the aggregate becomes held. */
  enter(key: string, delivery: Delivery): Entered;
}

interface Entered {
  /** Its aggregate is held from now on. */
  hold(): void;
  leave(): void;
}

export function createHolds(): Holds {
  const aggregates = new Map<string, { readonly deliveries: Set<Delivery>; held: boolean }>();
  return {
    enter(key, delivery) {
      const aggregate = aggregates.get(key) ?? { deliveries: new Set(), held: false };
      aggregates.set(key, aggregate);
      aggregate.deliveries.add(delivery);
      if (aggregate.held) delivery.aside();
      return {
        hold() {
          if (aggregate.held) return;
          aggregate.held = true;
          for (const waiting of aggregate.deliveries) waiting.aside();
        },
        leave() {
          aggregate.deliveries.delete(delivery);
          if (aggregate.deliveries.size === 0 && aggregates.get(key) === aggregate) aggregates.delete(key);
        },
      };
    },
  };
}
