import { asError, WaybillError } from "../../core/errors.ts";

/** The destination is to blame, and may take the event later. */
export const outage = (why: string, cause?: unknown): WaybillError =>
  new WaybillError("DESTINATION_UNAVAILABLE", why, cause === undefined ? {} : { cause });

/** Some socket errors have a code and no message. */
export function unreachable(shown: string, error: unknown): WaybillError {
  const cause = asError(error);
  const { code } = cause as { code?: unknown };
  const why = cause.message !== "" ? cause.message : typeof code === "string" ? code : cause.name;
  return outage(`${shown} cannot be reached: ${why}`, cause);
}
