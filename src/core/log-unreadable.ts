import { WaybillError } from "./errors.ts";

/**
 * Why a database's log cannot be read.
 * - `link`: the connection ended, or the server is not available. Reading may begin again.
 * - `in use`: another process reads it, or is making the slot.
 * - `full`: the server has no free slot, or no free sender of its log.
 * - `lost`: the server no longer keeps the part of the log that comes next.
 * - `missing`: there is no slot.
 * - `publication`: the publication is missing, was made after the slot, or does not cover the outbox as this code needs it.
 * - `ahead`: the slot was confirmed beyond the position to read from, so events in between would be skipped.
 * - `elsewhere`: the position belongs to another server, or the slot to another database.
 * - `rights`: this role may not.
 * - `not logical`: the server does not write what is needed into its log.
 * - `damaged`: what arrived cannot be read.
 */
export type LogTrouble =
  "link" | "in use" | "full" | "lost" | "missing" | "publication" | "ahead" | "elsewhere" | "rights" | "not logical" | "damaged";

const passing: readonly LogTrouble[] = ["link", "in use", "full"];

export class LogUnreadable extends WaybillError {
  readonly trouble: LogTrouble;

  constructor(trouble: LogTrouble, message: string, options?: ErrorOptions) {
    super("LOG_UNREADABLE", message, { ...options, retryable: passing.includes(trouble) });
    this.trouble = trouble;
  }
}
