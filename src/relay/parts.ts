import type { Coordinator } from "../contracts/coordinator.ts";
import type { OutboxStore } from "../contracts/outbox-store.ts";
import type { Sink } from "../contracts/sink.ts";
import type { Clock } from "../core/clock.ts";
import type { Failpoints } from "../core/failpoints.ts";
import type { Observe } from "../core/path-events.ts";
import type { Progress } from "../core/progress.ts";
import type { Random } from "../core/random.ts";
import type { WithDefaults } from "../core/settings.ts";
import type { Wake } from "../core/wake.ts";
import type { Ending } from "./ending.ts";
import type { FedWindow, Feed } from "./feed.ts";
import type { Policy } from "./judge.ts";
import type { Route } from "./route.ts";
import type { relaySettings } from "./settings.ts";

/** What a relay is made of: its settings, and what was built from them. Its feed, publisher and destinations take what they need of it. */
export interface RelayParts extends Omit<WithDefaults<typeof relaySettings>, "route" | "topics" | "publishTimeoutMs"> {
  /** Rejects when the store is away, or its tables are not those of this code. */
  readonly check: () => Promise<void>;
  readonly outbox: OutboxStore;
  readonly feedOf: (parts: FeedParts) => Feed;
  readonly wake: Wake;
  readonly sink: Sink;
  readonly coordinator: Coordinator;
  readonly route: Route;
  /** The only topics that events may go to; null: any. */
  readonly topics: ReadonlySet<string> | null;
  readonly policy: Policy;
  readonly publishTimeoutMs: number;
  /** What a relay does besides publishing, except in `runOnce`, until the signal aborts. It never fails. */
  readonly chores: (ending: AbortSignal) => Promise<void>;
  readonly clock: Clock;
  readonly random: Random;
  readonly failpoints: Failpoints;
  readonly observe: Observe;
}

/** The parts of a relay that runs. */
export interface LifeParts extends RelayParts, Pick<Ending, "draining" | "stopping" | "track"> {
  /** It ends when nothing is due, and a store that stays away fails it. */
  readonly once: boolean;
  /** Whatever the relay waits for is a step: while one is overdue, the lease is not renewed, and other relays take over. */
  readonly steps: Progress;
}

/** What a feed is made of, and what it tells the relay. */
export interface FeedParts extends LifeParts {
  /** Has what is not sent yet of all open windows settled as returned. */
  recall(windows: readonly FedWindow[]): void;
  /** The outbox could be read. Events of this relay's lanes wait for these topics. */
  onRead(destinations: readonly string[]): void;
  onTrouble(step: "claim" | "settle", error: Error): void;
}
