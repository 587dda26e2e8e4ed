import { asError, WaybillError } from "./errors.ts";

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

/** The transaction lost against another one: a deadlock, a serialisation failure, a lock that came too late. It may be run again. */
export class Conflict extends WaybillError {
  constructor(place: string, cause: unknown) {
    super("STORE_UNAVAILABLE", `${place} rolled a transaction back that conflicted with another one: ${asError(cause).message}`, { cause });
  }
}

/** What the transaction of one event or of several failed with, as what the event is not to blame for, where that is known. */
export function blamed(place: string, error: unknown, isConflict: (error: unknown) => boolean): unknown {
  if (error instanceof SessionEnded || error instanceof MarkHeld || !isConflict(error)) return error;
  return new Conflict(place, error);
}
