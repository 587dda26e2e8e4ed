import { createService, type Service } from "../core/service.ts";
import { compose } from "./compose.ts";
import { createEnding } from "./ending.ts";
import type { Concluded } from "./parcel.ts";
import type { RelayParts } from "./parts.ts";
import { run } from "./run.ts";

/** What one `runOnce` did. */
export interface OnceReport {
  readonly published: number;
  readonly failed: number;
  readonly dead: number;
  /** Given back because their destination is broken. */
  readonly held: number;
}

export interface Relay extends Service {
  /** Publishes all that is due now, hands its lanes back and ends: for cron. */
  runOnce(): Promise<OnceReport>;
}

export function createRelayService(parts: RelayParts): Relay {
  const counts = { published: 0, failed: 0, dead: 0, held: 0 };
  const counted = (concluded: readonly Concluded[]): void => {
    for (const { outcome } of concluded) {
      if (outcome.as === "published") counts.published++;
      else if (outcome.as === "retry") counts.failed++;
      else if (outcome.as === "parked") counts.dead++;
      else if (outcome.destination !== undefined) counts.held++;
    }
  };
  let once = false;
  const service = createService((life) => {
    const ending = createEnding(parts.clock, parts.publishTimeoutMs + parts.leaseMs, life);
    return ending.over(run(compose(parts, { ready: () => life.ready(), once, ending, counted })));
  });
  return {
    ...service,
    async runOnce() {
      once = true;
      await service.start();
      await service.stopped;
      return counts;
    },
  };
}
