import type { Outgoing, PublishResult } from "../../contracts/sink.ts";
import { asError, isWaybillError, WaybillError } from "../../core/errors.ts";
import { aggregateKey } from "../../core/event.ts";
import { checkTopicText } from "../../core/headers.ts";
import { outage } from "./outage.ts";

export const stored: PublishResult = { status: "stored" };
export const skipped: PublishResult = { status: "skipped" };

export const unfit = (error: Error): PublishResult => ({ status: "refused", blame: "event", retryable: false, error });

export const tooLarge = (id: string, why: string, cause?: unknown): PublishResult =>
  unfit(new WaybillError("MESSAGE_TOO_LARGE", `event ${id} ${why}`, cause === undefined ? {} : { cause }));

export function unavailable(error: Error): PublishResult {
  const named = isWaybillError(error) ? error : outage(error.message, error);
  return { status: "refused", blame: "destination", retryable: true, error: named };
}

export const unknown = (cause: Error): PublishResult => ({
  status: "unknown",
  error: new WaybillError("PUBLISH_UNKNOWN", `it may or may not be stored: ${cause.message}`, { cause }),
});

/** A message as it will be stored, or its refusal: it cannot be written, or takes more bytes than `most`. */
export function encoded<T extends { readonly bytes: number }>(
  { topic, envelope: { id } }: Outgoing,
  limit: { readonly of: string; readonly most: number },
  encode: () => T,
): T | PublishResult {
  try {
    checkTopicText(topic);
    const made = encode();
    if (made.bytes <= limit.most) return made;
    return tooLarge(id, `takes ${made.bytes} bytes with its headers, and ${limit.of} takes ${limit.most}`);
  } catch (error) {
    return unfit(asError(error));
  }
}

/** Each message's result in turn. After one that is not stored, the rest of its aggregate are skipped. */
export function inOrder(batch: readonly Outgoing[], resultOf: (message: Outgoing, at: number) => PublishResult): readonly PublishResult[] {
  const failed = new Set<string>();
  return batch.map((message, at) => {
    const aggregate = aggregateKey(message.envelope);
    if (failed.has(aggregate)) return skipped;
    const result = resultOf(message, at);
    if (result !== stored) failed.add(aggregate);
    return result;
  });
}
