import type { PublishResult } from "../../contracts/sink.ts";
import { isWaybillError, WaybillError } from "../../core/errors.ts";

export const stored: PublishResult = { status: "stored" };
export const skipped: PublishResult = { status: "skipped" };

export const unfit = (error: Error): PublishResult => ({ status: "refused", blame: "event", retryable: false, error });

export const tooLarge = (id: string, why: string): PublishResult => unfit(new WaybillError("MESSAGE_TOO_LARGE", `event ${id} ${why}`));

export function unavailable(error: Error): PublishResult {
  const named = isWaybillError(error) ? error : new WaybillError("DESTINATION_UNAVAILABLE", error.message, { cause: error });
  return { status: "refused", blame: "destination", retryable: true, error: named };
}

export function unknown(cause: Error): PublishResult {
  return { status: "unknown", error: new WaybillError("PUBLISH_UNKNOWN", `it may or may not be stored: ${cause.message}`, { cause }) };
}
