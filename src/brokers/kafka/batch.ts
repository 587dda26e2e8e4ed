import { codes } from "./codes.ts";
import type { Address } from "../kit/url.ts";
import type { KafkaContent } from "./message.ts";

export interface BatchMessage extends KafkaContent {
  readonly topic: string;
  readonly partition: number;
  readonly timestamp: bigint;
}

/** Messages for one partition, which are written together or not at all. */
export interface Batch {
  readonly topic: string;
  readonly partition: number;
  readonly leader: Address;
  readonly messages: readonly BatchMessage[];
}

export type BatchAnswer =
  /** The broker's own code for the batch. */
  | { readonly code: number; readonly said: string | null | undefined }
  /** Nothing was sent, or nobody will ever read it. */
  | { readonly unsent: Error }
  /** Its transaction was called off for another's fault: it may be sent again at once. */
  | { readonly undone: true }
  /** It was sent, and nobody answered. */
  | { readonly lost: Error };

/** Transactions under this name; who comes later with it fences this one. */
export interface Transactional {
  readonly name: string;
  readonly timeoutMs: number;
}

export const isWritten = (answer: BatchAnswer): boolean => "code" in answer && answer.code === codes.NONE;
