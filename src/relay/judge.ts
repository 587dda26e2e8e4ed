import type { Claim, Destination, Outcome } from "../contracts/outbox-store.ts";
import type { PublishResult } from "../contracts/sink.ts";
import { lineOf, reasonOf } from "../core/reason.ts";
import type { RetrySchedule } from "../core/retry.ts";

export interface Policy {
  readonly retry: RetrySchedule;
  /** Followers of a dead event of this type go on at once. */
  skips(aggregateType: string): boolean;
}

/**
 * What a result means for the event. Only a failure that the event itself caused costs an attempt. When the destination is to blame, or the
 * result is unknown, the event waits for the destination.
 */
export function judge(claim: Claim, to: Omit<Destination, "why">, result: PublishResult, policy: Policy): Outcome {
  switch (result.status) {
    case "stored":
      return { claim, as: "published" };
    case "skipped":
      return { claim, as: "returned" };
    case "unknown":
      return { claim, as: "returned", destination: { ...to, why: lineOf(result.error) } };
    case "refused":
      if (result.blame === "destination") return { claim, as: "returned", destination: { ...to, why: lineOf(result.error) } };
      return refuse(claim, result.error, result.retryable, policy);
  }
}

/** `names` are of this event only: without them, failures of one cause are told as one. */
export function refuse(claim: Claim, error: Error, retryable: boolean, policy: Policy, names: readonly string[] = []): Outcome {
  const afterMs = retryable ? policy.retry.next(claim.failures + 1) : null;
  const { id, aggregateId, aggregateType } = claim.envelope;
  const reason = reasonOf(error, [id, aggregateId, ...names]);
  return afterMs === null
    ? { claim, as: "parked", release: policy.skips(aggregateType), ...reason }
    : { claim, as: "retry", afterMs, ...reason };
}
