import type { Claim, Outcome } from "../contracts/outbox-store.ts";
import type { PublishResult } from "../contracts/sink.ts";
import type { RetrySchedule } from "../core/retry.ts";

export interface Policy {
  readonly retry: RetrySchedule;
  /** Followers of a dead event of this type go on at once. */
  skips(aggregateType: string): boolean;
}

const maxErrorLength = 1_000;

/**
 * What a result means for the event. Only what the event itself is to blame for costs an attempt; whatever belongs
 * to the destination, and whatever is unknown, waits for the destination.
 */
export function judge(claim: Claim, topic: string, result: PublishResult, policy: Policy): Outcome {
  switch (result.status) {
    case "stored":
      return { claim, as: "published" };
    case "skipped":
      return { claim, as: "returned" };
    case "unknown":
      return { claim, as: "returned", destination: { topic, why: errorText(result.error) } };
    case "refused":
      if (result.blame === "destination") return { claim, as: "returned", destination: { topic, why: errorText(result.error) } };
      return refuse(claim, result.error, result.retryable, policy);
  }
}

export function refuse(claim: Claim, error: Error, retryable: boolean, policy: Policy): Outcome {
  const afterMs = retryable ? policy.retry.next(claim.failures + 1) : null;
  if (afterMs !== null) return { claim, as: "retry", afterMs, error: errorText(error) };
  return { claim, as: "parked", error: errorText(error), release: policy.skips(claim.envelope.aggregateType) };
}

function errorText(error: Error): string {
  const code = (error as { code?: unknown }).code;
  const text = typeof code === "string" ? `${code}: ${error.message}` : error.message;
  return text.length > maxErrorLength ? `${text.slice(0, maxErrorLength)}…` : text;
}
