import { isWaybillError, readSafely, type ErrorCode } from "../core/errors.ts";

const brand = Symbol.for("waybill.fatal");

/** An error for a handler to throw when a retry cannot help: the event is parked at once. */
export function fatal(reason: string | Error): Error {
  const error = typeof reason === "string" ? new Error(reason) : new Error(reason.message, { cause: reason });
  Object.defineProperty(error, brand, { value: true });
  return error;
}

const fatalCodes: readonly ErrorCode[] = ["INVALID_PAYLOAD", "EFFECT_UNFINISHED"];

export function isFatal(error: Error): boolean {
  return readSafely(() => brand in error || (isWaybillError(error) && fatalCodes.includes(error.code)), false);
}
