import type { PublishResult } from "../../../contracts/sink.ts";
import { stored, tooLarge, unavailable, unfit, unknown } from "../../kit/results.ts";
import type { BatchAnswer } from "./batch.ts";
import { codes, KafkaRefusal, verdictOf } from "../codes.ts";
import type { Flight } from "./flights.ts";

/** What an answer means for the messages of a flight. */
export interface Ruling {
  /** Null where they go again at once. */
  readonly result: PublishResult | null;
  /** They are retried a few times before `result` is final: the leader is looked up again, or another producer is used. */
  readonly again?: true;
  /** They are sent again in batches of at most so many bytes. `result` is for a message that was alone in its batch. */
  readonly parts?: number;
  /** What is known of the topic may be wrong. */
  readonly forget?: true;
  /** The producer is not to be used again: the next one has its number with the next epoch, or a number of its own. */
  readonly spent?: "epoch" | "number";
}

/** The leader has written the batch, and waits for its replicas. */
const isUnsure = (code: number): boolean => code === codes.REQUEST_TIMED_OUT || code === codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND;

const goOn: Ruling = { result: stored };
const atOnce: Ruling = { result: null };

export function ruleOn({ batch }: Flight, answer: BatchAnswer, shown: string, firstId: string): Ruling {
  if ("undone" in answer) return atOnce;
  // Its leader may stand still, and the partition have another by now.
  if ("lost" in answer) return { result: unknown(answer.lost), forget: true };
  if ("unsent" in answer) return { result: unavailable(answer.unsent), again: true, forget: true };
  const verdict = verdictOf(answer.code);
  if (verdict === "stored") return goOn;
  const refused = new KafkaRefusal(answer.code, `${shown}, partition ${batch.partition} of ${batch.topic}`, answer.said);
  switch (verdict) {
    case "size":
      return { result: tooLarge(firstId, `is refused: ${refused.message}`), parts: batch.bytes.length / 2, forget: true };
    case "event":
      return { result: unfit(refused), parts: 0 };
    case "sequence":
      return { result: unknown(refused), again: true, forget: true, spent: "number" };
    case "moved":
      return { result: unavailable(refused), again: true, forget: true };
    case "destination":
      return { result: unavailable(refused), forget: true };
    case "unknown":
      return { result: unknown(refused), spent: isUnsure(answer.code) ? "epoch" : "number", forget: true };
  }
}

/** How often in one publish a partition is tried whose leader has moved, or which does not know the producer. */
const tries = 3;

/** What one publish remembers of its partitions. */
interface Patience {
  /** How large a partition's batches may be, since one of them was refused. */
  readonly limits: ReadonlyMap<string, number>;
  /** Whether a flight's messages are sent again. Otherwise they get the ruling's result. */
  has(flight: Flight, ruling: Ruling): boolean;
}

export function createPatience(): Patience {
  const limits = new Map<string, number>();
  const failures = new Map<string, number>();
  return {
    limits,
    has({ key, indexes }, { again = false, parts }) {
      if (again) failures.set(key, (failures.get(key) ?? 0) + 1);
      if (again) return failures.get(key)! < tries;
      if (parts === undefined || indexes.length === 1) return false;
      limits.set(key, parts);
      return true;
    },
  };
}
