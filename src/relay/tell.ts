import type { Outcome } from "../contracts/outbox-store.ts";
import { agesOf } from "../core/ages.ts";
import { idsFor, type Observe } from "../core/path-events.ts";
import { wholly } from "../core/reason.ts";
import type { Parcel } from "./parcel.ts";
import type { RelayParts } from "./parts.ts";

export function tellPublished(
  { coordinator, observe }: Pick<RelayParts, "coordinator" | "observe">,
  parcels: readonly Parcel[],
  ms: number,
): void {
  const ids = idsFor(observe, parcels, ({ envelope }) => envelope.id);
  const now = observe.ages === true ? coordinator.storeNow() : null;
  const ages = now === null ? {} : { ages: agesOf(now, parcels, ({ envelope }) => envelope.createdAt) };
  observe({ type: "relay.published", relay: coordinator.holding.relay, count: parcels.length, ms, ...ids, ...ages });
}

export function tellOutcome(observe: Observe, outcome: Outcome): void {
  if (outcome.as === "published" || outcome.as === "returned") return;
  const { id, aggregateType, aggregateId, type: eventType } = outcome.claim.envelope;
  const event = { id, aggregateType, aggregateId, eventType };
  if (outcome.as === "retry") {
    const failures = outcome.claim.failures + 1;
    observe({ type: "relay.failed", ...event, failures, retryInMs: outcome.afterMs, error: wholly(outcome) });
  } else {
    observe({ type: "relay.died", ...event, error: wholly(outcome), followers: outcome.release ? "released" : "blocked" });
  }
}
