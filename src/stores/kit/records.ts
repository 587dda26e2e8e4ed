import type { EventRecord, WholeEvent } from "../../contracts/operator.ts";
import { isWaybillError, WaybillError } from "../../core/errors.ts";
import { tooLargeToRead } from "../../core/within-bytes.ts";

/** The largest payload that a list includes: the longest page of the command line then takes 64 MiB. */
export const listedBytes = 64 * 1024;

/** An event as a statement read it, perhaps without its payload. */
export interface Stored {
  readonly record: EventRecord;
  readonly isText: boolean;
}

/** Reads one payload by itself, in a way that is safe for a large one. */
export type ReadPayload = (seq: bigint, bytes: number) => Promise<Uint8Array>;

/** Rejects with ROW_UNREADABLE when the payload can never be read. */
export async function wholeOf({ record, isText }: Stored, read: ReadPayload): Promise<WholeEvent> {
  const { payload, seq, payloadBytes } = record;
  if (payload !== null) return { ...record, payload };
  const why = tooLargeToRead(payloadBytes);
  if (why !== null) throw new WaybillError("ROW_UNREADABLE", why);
  const data = await read(seq, payloadBytes);
  return { ...record, payload: isText ? Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString("utf8") : data };
}

export const isUnreadable = (error: unknown): boolean => isWaybillError(error, "ROW_UNREADABLE");

/** The event with its payload. If that can never be read, the event is shown without it. */
export async function shownOf(stored: Stored, read: ReadPayload): Promise<EventRecord> {
  try {
    return await wholeOf(stored, read);
  } catch (error) {
    if (!isUnreadable(error)) throw error;
    return stored.record;
  }
}
