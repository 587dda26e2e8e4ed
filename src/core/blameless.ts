import { WaybillError } from "./errors.ts";

/** The database ended the session under a handler: it was killed, or the server restarted or failed over. The event is not to blame. */
export class SessionEnded extends WaybillError {
  constructor(place: string, cause: unknown) {
    super("STORE_UNAVAILABLE", `${place} ended the session while a handler worked in it`, { cause });
  }
}

/** Another transaction holds the event's mark and did not end in time. That says nothing about the event and must not count against it. */
export class MarkHeld extends WaybillError {
  constructor(place: string, cause: unknown) {
    super("STORE_UNAVAILABLE", `another transaction in ${place} holds the event's mark and did not end in time`, { cause });
  }
}
