import { WaybillError } from "./errors.ts";

/** Another transaction holds the event's mark and did not end in time. That says nothing about the event, and must never count against it. */
export class MarkHeld extends WaybillError {
  constructor(place: string, cause: unknown) {
    super("STORE_UNAVAILABLE", `another transaction in ${place} holds the event's mark and did not end in time`, { cause });
  }
}
