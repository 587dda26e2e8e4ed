import type { Work } from "../contracts/coordinator.ts";
import { relayTroubles, type RelayTroubles } from "../core/path-events.ts";
import { createProgress } from "../core/progress.ts";
import { createWake } from "../core/wake.ts";
import { createBreaker } from "./breaker.ts";
import { createCrowd } from "./crowd.ts";
import { watchDestinations } from "./destinations.ts";
import type { Ending } from "./ending.ts";
import type { FedWindow, Feed } from "./feed.ts";
import { createOrder } from "./order.ts";
import type { Concluded } from "./parcel.ts";
import type { LifeParts, RelayParts } from "./parts.ts";
import { createPublisher } from "./publish.ts";
import { tellOutcome } from "./tell.ts";

/** One life of a relay. */
interface Life extends Pick<LifeParts, "once"> {
  readonly ending: Ending;
  ready(): void;
  /** These outcomes are durable. */
  counted(concluded: readonly Concluded[]): void;
}

export interface Composed extends LifeParts, Life {
  readonly feed: Feed;
  readonly publisher: ReturnType<typeof createPublisher>;
  readonly work: Work;
  readonly troubles: RelayTroubles;
  /** Finds out when broken destinations work again, until the relay drains. */
  watch(): Promise<void>;
  /** Nothing is claimed, held or waiting for a destination that may soon work again. */
  idle(): boolean;
}

/** Wires the parts of one life. Nothing runs yet. */
export function compose(parts: RelayParts, life: Life): Composed {
  const { clock, observe, coordinator } = parts;
  const { once, ending } = life;
  const { draining, stopping, track } = ending;
  const [steps, order, changed, crowd] = [createProgress(clock), createOrder(), createWake(), createCrowd(clock, observe)];
  const breaker = createBreaker({ ...parts, crowd, changed });
  const troubles = relayTroubles(observe, coordinator.holding.relay, clock);
  const shared = { ...parts, ...life, draining, stopping, track, steps, order, breaker, crowd, changed };

  const feed = parts.feedOf({
    ...shared,
    recall: (windows) => publisher.recall(windows),
    onRead(destinations) {
      troubles.over("claim");
      destinations.forEach((topic) => breaker.adopt(topic));
    },
    onTrouble(step, error) {
      const ms = troubles.met(step, error);
      // For `runOnce`, a store that stays unreachable is a failed run. Any other relay waits for it.
      if (once && ms > parts.leaseMs) ending.fail(error);
    },
  });
  const settle = async (window: FedWindow, concluded: readonly Concluded[]): Promise<void> => {
    await feed.settle(
      window,
      concluded.map(({ outcome }) => outcome),
    );
    if (!stopping.aborted) {
      ending.settled();
      troubles.over("settle");
    }
    const stopped = concluded.filter(({ outcome }) => outcome.as !== "published");
    if (stopped.length > 0)
      order.settled(
        stopped.map(({ parcel }) => parcel),
        clock.monotonic(),
      );
    for (const { outcome } of stopped) tellOutcome(observe, outcome);
    life.counted(concluded);
  };
  const publisher = createPublisher({ ...shared, feed, settle });

  return {
    ...{ ...shared, feed, publisher, troubles },
    work: { progress: () => steps.overdue().length === 0, lanesInUse: () => feed.lanesInUse() },
    watch: () => watchDestinations({ ...shared, feed, onTrouble: (error) => void troubles.met("probe", error) }),
    idle: () => feed.empty() && breaker.quiet() && crowd.quiet(),
  };
}
