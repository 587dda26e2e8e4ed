import { WaybillError } from "../../../core/errors.ts";
import { batchesIn, bytesFrom } from "./batches.ts";
import { codes, isPassing, KafkaRefusal } from "../codes.ts";
import { itemsOf, type LogItem } from "./records.ts";
import type { FetchedPartition } from "./fetched.ts";

interface Damaged {
  /** Where the log cannot be read. */
  readonly from: bigint;
  /** For what is said. */
  readonly where: string;
  /** What the partition's leader answers to a fetch of it alone, up to `windowBytes`. */
  readonly fetch: (offset: bigint) => Promise<FetchedPartition>;
  /** How many bytes of items are wanted. */
  readonly bytes: number;
  readonly ended: AbortSignal;
}

export const windowBytes = 8 * 1024 * 1024;

/** How far before the place it is tried: the server hands out what is stored behind a batch, and does not look at it. */
const back = [0n, 1n, 2n, 3n, 4n, 8n, 16n, 64n, 256n, 1_024n, 4_096n];
/** How many offsets behind it are tried at once; the rest has its turn later. */
const ahead = 1_000n;
/** Of bytes that cannot be read, so many are kept. */
const keptBytes = 1024 * 1024;

/** Codes that name what is stored at an offset. Any other may be the server's trouble of the moment. */
const ofPlace: readonly number[] = [codes.CORRUPT_MESSAGE, codes.INVALID_RECORD];

/**
 * What a partition holds from a place on that a fetch does not pass: the server refuses it, or gives nothing, or bytes that are no batch. It is
 * set aside, and the batches behind it are looked for in the bytes that come, if need be with those before them. Where there are none, the next
 * offset is looked for at which the server has a batch. Empty: a fetch passes now. Throws for what may be the server's fault alone: nothing is
 * passed over without damaged bytes, or a code that says so of this place.
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
