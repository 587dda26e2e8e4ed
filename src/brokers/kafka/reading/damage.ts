import { WaybillError } from "../../../core/errors.ts";
import { batchesIn, bytesFrom } from "./batches.ts";
import { codes, isPassing, KafkaRefusal } from "../codes.ts";
import { itemsOf, type LogItem } from "./records.ts";
import type { FetchedPartition } from "./fetched.ts";

interface Damaged {
  /** Where the log cannot be read. */
  readonly from: bigint;
  /** Names the partition in errors. */
  readonly where: string;
  /** Fetches this partition alone from its leader, up to `windowBytes`. */
  readonly fetch: (offset: bigint) => Promise<FetchedPartition>;
  /** How many bytes of items are wanted. */
  readonly bytes: number;
  readonly ended: AbortSignal;
}

export const windowBytes = 8 * 1024 * 1024;

/** How far before the place fetches begin: the server hands out the bytes stored after a batch without a look at them. */
const back = [0n, 1n, 2n, 3n, 4n, 8n, 16n, 64n, 256n, 1_024n, 4_096n];
/** How many offsets after the place one call tries; a later call tries the rest. */
const ahead = 1_000n;
/** How many of the unreadable bytes are kept. */
const keptBytes = 1024 * 1024;

/** Codes that blame what is stored at an offset. Any other may be a passing problem of the server. */
const ofPlace: readonly number[] = [codes.CORRUPT_MESSAGE, codes.INVALID_RECORD];

/**
 * The items from an offset that a fetch does not get past: the server refuses it, or gives nothing, or bytes that are no batch. The damage
 * becomes an unreadable item. Batches after it are searched for in the fetched bytes, if need be fetched from earlier offsets on. If there
 * are none, later offsets are tried until the server has a batch. Empty when a fetch passes now. Throws when it may be the server's fault
 * alone: nothing is passed over without damaged bytes, or a code that blames this place.
 */
export async function itemsPast({ from, where, fetch, bytes: most, ended }: Damaged): Promise<readonly LogItem[]> {
  const ask = async (offset: bigint): Promise<FetchedPartition> => {
    ended.throwIfAborted();
    const answer = await fetch(offset);
    if (isPassing(answer.errorCode)) throw new KafkaRefusal(answer.errorCode, where);
    return answer;
  };

  let said: number = codes.NONE;
  let raw: Buffer | null = null;
  for (const offset of back.map((step) => from - step).filter((one) => one >= 0n)) {
    const { errorCode, records, stableOffset: end, abortedTransactions = null } = await ask(offset);
    if (offset === from) {
      if (errorCode === codes.OFFSET_OUT_OF_RANGE || (errorCode === codes.NONE && end <= from)) return [];
      said = errorCode;
    }
    if (!records) continue;
    // A batch that an answer begins with comes whole, whatever its size; another may be cut where the answer is full.
    const thorough = offset === from || records.length < windowBytes;
    const items = itemsOf({ batches: batchesIn(records, { asked: offset, end, thorough }), abortedTransactions }, from, most);
    if (items.length > 0) return items;
    const left = bytesFrom(records, from);
    if (thorough && left.length > 0) raw ??= left;
    if (offset !== from) break;
  }

  const refusal = new KafkaRefusal(said, `${where}, offset ${from}`);
  if (raw === null && !ofPlace.includes(said)) {
    if (said !== codes.NONE) throw refusal;
    throw new WaybillError("DESTINATION_UNAVAILABLE", `${where} has messages from offset ${from} on, and gives none of them`);
  }
  const why = said === codes.NONE ? "it is damaged" : `it is damaged: the server answers ${refusal.label}`;
  const aside = (next: bigint): LogItem[] => {
    const kept = (raw ?? Buffer.alloc(0)).subarray(0, keptBytes);
    return next === from ? [] : [{ first: from, last: next - 1n, record: null, unreadable: { why, raw: kept }, bytes: kept.length }];
  };
  for (let offset = from + 1n; offset < from + ahead; offset++) {
    const { errorCode, records, stableOffset: end, abortedTransactions = null } = await ask(offset);
    if (records) {
      const [first] = batchesIn(records, { asked: offset, end });
      if (first === undefined) continue;
      const next = first.firstOffset > from ? first.firstOffset : from;
      return [...aside(next), ...itemsOf({ batches: batchesIn(records, { asked: offset, end }), abortedTransactions }, next, most)];
    }
    if (errorCode === codes.OFFSET_OUT_OF_RANGE || (errorCode === codes.NONE && end <= offset)) return aside(offset);
  }
  return aside(from + ahead);
}
