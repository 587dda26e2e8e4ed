import { asError, WaybillError } from "../../core/errors.ts";

/** The destination is to blame, and may take the event later. */
export const outage = (why: string, cause?: unknown): WaybillError =>
  new WaybillError("DESTINATION_UNAVAILABLE", why, cause === undefined ? {} : { cause });

/** Some socket errors have a code and no message. */
export function unreachable(shown: string, error: unknown): WaybillError {
  const cause = asError(error);
  const { code } = cause as { code?: unknown };
  const why = isUnread(cause)
    ? "it answered in a way that cannot be read"
    : cause.message !== ""
      ? cause.message
      : typeof code === "string"
        ? code
        : cause.name;
  return outage(`${shown} cannot be reached: ${why}`, cause);
}

/** What a client library stumbled over in an answer, in the words of some buffer. */
export function isUnread(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const { code } = error as { code?: unknown };
  return (
    error instanceof RangeError ||
    (typeof code === "string" && /^ERR_(BUFFER_OUT|OUT_OF)/.test(code)) ||
    (error instanceof TypeError && /^Cannot read|is not (a function|iterable)/.test(error.message)) ||
    /^(Expected \w+( or \w+)*; got |Unexpected type tag )/.test(error.message) // by amqplib
  );
}
