import type { Address } from "../../kit/url.ts";
import { codes } from "../codes.ts";
import { crc32c } from "../crc32c.ts";

/** Messages for one partition, which are written together or not at all. */
export interface Batch {
  readonly topic: string;
  readonly partition: number;
  readonly leader: Address;
  readonly count: number;
  /** As Kafka stores it, once it is sealed. */
  readonly bytes: Buffer;
}

export type BatchAnswer =
  /** The broker's own code for the batch. */
  | { readonly code: number; readonly said: string | null | undefined }
  /** Nothing was sent, or it is in a transaction that will never be committed. */
  | { readonly unsent: Error }
  /** Its transaction was aborted because of another batch: it may be sent again at once. */
  | { readonly undone: true }
  /** It was sent, and no answer came. */
  | { readonly lost: Error };

/** Transactions under this name. A later producer with the same name fences this one. */
export interface Transactional {
  readonly name: string;
  readonly timeoutMs: number;
}

export const isWritten = (answer: BatchAnswer): boolean => "code" in answer && answer.code === codes.NONE;

/** Of a batch, before its first record. */
export const batchHeadBytes = 61;

/** Where the fields of that head are. */
export const head = {
  ...{ offset: 0, length: 8, leaderEpoch: 12, magic: 16, crc: 17, attributes: 21, lastOffsetDelta: 23 },
  ...{ firstTimestamp: 27, maxTimestamp: 35, producerId: 43, producerEpoch: 51, sequence: 53, count: 57 },
} as const;

const transactional = 1 << 4;

interface Seal {
  readonly id: bigint;
  readonly epoch: number;
  /** The number of its first message among all that the producer has sent to the partition. */
  readonly sequence: number;
  readonly isTransactional: boolean;
}

/** Writes the producer and the checksum. A batch that another producer sends again is sealed again. */
export function seal({ bytes }: Batch, { id, epoch, sequence, isTransactional }: Seal): void {
  bytes.writeInt16BE(isTransactional ? transactional : 0, head.attributes);
  bytes.writeBigInt64BE(id, head.producerId);
  bytes.writeInt16BE(epoch, head.producerEpoch);
  bytes.writeInt32BE(sequence, head.sequence);
  bytes.writeUInt32BE(crc32c(bytes, head.attributes), head.crc);
}
