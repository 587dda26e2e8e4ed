import { WaybillError } from "../core/errors.ts";

/** Ends a command that must be written differently: exit code 2. */
export function usage(why: string, cause?: unknown): never {
  throw new WaybillError("USAGE", why, ...(cause === undefined ? [] : [{ cause }]));
}
