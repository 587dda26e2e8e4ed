import { show, WaybillError } from "../core/errors.ts";
import type { Clock } from "../core/clock.ts";
import type { DeadLetters, Letter } from "../contracts/dead-letters.ts";
import type { Sink } from "../contracts/sink.ts";
import type { Source } from "../contracts/source.ts";
import { deadLetterTopic, deadTopicNames, type DeadTopic } from "./dead-letter-topic.ts";

export interface LettersOptions {
  readonly consumer: string;
  readonly topics: readonly string[];
  readonly source: Source;
  readonly clock: Clock;
  readonly deadLetters?: DeadLetters | undefined;
  readonly deadTopic?: DeadTopic | undefined;
}

/** The place that was given for letters; null where the inbox keeps all of them. */
export function letterPlace(options: LettersOptions): DeadLetters | null {
  const { deadLetters, deadTopic, source, topics, consumer, clock } = options;
  if (deadLetters !== undefined) {
    if (deadTopic !== undefined)
      throw new WaybillError(
        "INVALID_OPTION",
        "deadTopic is for the dead-letter topic on the source: give it, or deadLetters, but not both",
      );
    if (typeof deadLetters?.park !== "function")
      throw new WaybillError("INVALID_OPTION", `deadLetters must have park, not be ${show(deadLetters)}`);
    return deadLetters;
  }
  if (deadTopic === undefined) return null;
  if (!isSink(source)) {
    throw new WaybillError(
      "INVALID_OPTION",
      `${source.name} cannot publish letters: leave deadTopic out, so that the inbox keeps them, or give deadLetterTopic({ sink }) as deadLetters`,
    );
  }
  const topicFor = deadTopicNames(deadTopic);
  for (const topic of topics) topicFor(topic, consumer);
  return deadLetterTopic({ sink: source, clock, topic: deadTopic });
}

function isSink(source: Source): source is Source & Sink {
  return "publish" in source && typeof source.publish === "function";
}

/** So much of a letter's bytes is kept where the inbox does not take the whole. */
const keptBytes = 256 * 1024;

/** A letter that fits where the whole one did not; null when there is nothing to leave out. */
export function shortened(letter: Letter): Letter | null {
  const { envelope, raw } = letter;
  const bytes = Math.max(envelope.data.byteLength, raw?.byteLength ?? 0);
  if (bytes <= keptBytes) return null;
  return {
    ...letter,
    error: `${letter.error} (the inbox did not take its ${bytes} bytes: these are the first ${keptBytes})`,
    envelope: { ...envelope, data: envelope.data.slice(0, keptBytes) },
    ...(raw === undefined ? {} : { raw: raw.slice(0, keptBytes) }),
  };
}
