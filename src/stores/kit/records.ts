import type { EventRecord, PurgeOptions, WholeEvent } from "../../contracts/operator.ts";
import { asError, isWaybillError, WaybillError } from "../../core/errors.ts";
import { tooLargeToRead } from "../../core/within-bytes.ts";

/** What a list brings along of each event: the longest page of the command line takes 64 MiB. */
export const listedBytes = 64 * 1024;

/** What an archive is given at once. */
export const archiveEvents = 500;
export const archiveBytes = 8 * 1024 * 1024;
export const archiveBounds = { bytes: archiveBytes, largest: Infinity };

/** An event as a statement brought it, perhaps without its payload. */
export interface Stored {
  readonly record: EventRecord;
  readonly isText: boolean;
}

/** Reads one payload apart, in a way that is safe for a large one. */
export type ReadPayload = (seq: bigint, bytes: number) => Promise<Uint8Array>;

/** Rejects with ROW_UNREADABLE when the payload can never be read. */
async function wholeOf({ record, isText }: Stored, read: ReadPayload): Promise<WholeEvent> {
  const { payload, seq, payloadBytes } = record;
  if (payload !== null) return { ...record, payload };
  const why = tooLargeToRead(payloadBytes);
  if (why !== null) throw new WaybillError("ROW_UNREADABLE", why);
  const data = await read(seq, payloadBytes);
  return { ...record, payload: isText ? Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString("utf8") : data };
}

const isUnreadable = (error: unknown): boolean => isWaybillError(error) && error.code === "ROW_UNREADABLE";

/** The event with its payload, or without one that cannot be read: everything else of it can be shown nevertheless. */
export async function shownOf(stored: Stored, read: ReadPayload): Promise<EventRecord> {
  try {
    return await wholeOf(stored, read);
  } catch (error) {
    if (!isUnreadable(error)) throw error;
    return stored.record;
  }
}

/** The events that one purge leaves where they are. */
export interface Kept {
  readonly seqs: readonly bigint[];
  keep(event: EventRecord, why: string): void;
  /** Rejects where nobody was told of them. */
  end(): void;
}

export function createKept({ kept }: PurgeOptions): Kept {
  const seqs: bigint[] = [];
  let first: string | undefined;
  return {
    seqs,
    keep(event, why) {
      seqs.push(event.seq);
      first ??= `${event.id} (${why})`;
      kept?.(event, why);
    },
    end() {
      if (first !== undefined && kept === undefined)
        throw new WaybillError("ROW_UNREADABLE", `${seqs.length} events were not archived and stay, the first is ${first}`);
    },
  };
}

/**
 * The first events with their payloads, for an archive; `dealt` says how many were looked at. One whose payload can never be read is kept.
 * So is one whose read failed otherwise, and the batch ends there: if the store is gone, its next statement says so.
 */
export async function archivable(
  stored: readonly Stored[],
  read: ReadPayload,
  kept: Kept,
): Promise<{ readonly events: readonly WholeEvent[]; readonly dealt: number }> {
  const events: WholeEvent[] = [];
  for (const [at, each] of stored.entries()) {
    try {
      events.push(await wholeOf(each, read));
    } catch (error) {
      kept.keep(each.record, asError(error).message);
      if (!isUnreadable(error)) return { events, dealt: at + 1 };
    }
  }
  return { events, dealt: stored.length };
}
