import { AssertionError } from "node:assert";
import type { Sink } from "../contracts/sink.ts";
import { noFailpoints, type Failpoints } from "../core/failpoints.ts";
import type { Random } from "../core/random.ts";
import { createRelay, type OnceReport, type Relay, type RelayOptions } from "../relay/create-relay.ts";
import type { ManualClock } from "./manual-clock.ts";
import type { Passing } from "./passing.ts";

/** The relaying half of a testbed. */
export interface Publishing {
  /** A relay publishes what is due, and ends. Some milliseconds pass, or after a crashed relay the rest of its lease. */
  publishAll(): Promise<OnceReport>;
  /**
   * A relay publishes what is due and crashes before it can settle anything. The next relay publishes everything again, so that every
   * message is in its topic twice.
   */
  crashBeforeSettle(): Promise<OnceReport>;
}

interface PublishingOptions {
  readonly store: RelayOptions["store"];
  readonly sink: Sink;
  readonly relay: Partial<RelayOptions>;
  readonly clock: ManualClock;
  readonly random: Random;
  readonly passing: Passing;
}

export function createPublishing({ store, sink, relay: options, clock, random, passing }: PublishingOptions): Publishing {
  const relay = (failpoints: Failpoints): Relay =>
    createRelay({
      observe: false,
      ...options,
      store: { ...store, outbox: passing.paced(store.outbox), leases: passing.paced(store.leases) },
      sink,
      clock,
      random,
      failpoints,
    });

  const publishing: Publishing = {
    publishAll: () => passing.through(relay(noFailpoints).runOnce(), "publishing"),
    async crashBeforeSettle() {
      let published = 0;
      const doomed = relay({
        hit(at, ids) {
          if (at !== "before-settle") return undefined;
          published += ids.length;
          return new Promise(() => undefined);
        },
      });
      await passing.through(doomed.start(), "the start of the relay");
      await passing.through(clock.sleep(1_000), "publishing");
      await passing.through(doomed.stop(), "the end of the relay");
      if (published === 0) {
        throw new AssertionError({
          message: "there was no event to publish, so that nothing is proven: add one first",
          stackStartFn: publishing.crashBeforeSettle,
        });
      }
      return publishing.publishAll();
    },
  };
  return publishing;
}
