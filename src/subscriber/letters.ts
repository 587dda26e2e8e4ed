import { show, WaybillError } from "../core/errors.ts";
import type { Clock } from "../core/clock.ts";
import type { Envelope } from "../core/event.ts";
import { letterId, type Letter } from "../core/letter.ts";
import { wholly } from "../core/reason.ts";
import type { DeadLetters } from "../contracts/dead-letters.ts";
import type { Sink } from "../contracts/sink.ts";
import type { Source } from "../contracts/source.ts";
import { deadLetterTopic, deadTopicNames, type DeadTopic } from "./dead-letter-topic.ts";

interface LettersOptions {
  readonly consumer: string;
  readonly topics: readonly string[];
  readonly source: Source;
  readonly clock: Clock;
  readonly deadLetters?: DeadLetters | undefined;
  readonly deadTopic?: DeadTopic | undefined;
}

/** The configured place for letters; null where the inbox keeps all of them. */
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

/** Limits for a letter that the inbox does not take whole: for its bytes, all its texts, the headers among them, and one text. */
const keptBytes = 256 * 1024;
const keptTexts = 64 * 1024;
const keptHeaders = 32 * 1024;
const keptText = 4 * 1024;

/** A letter that fits where the whole one did not; null when there is nothing to leave out. */
export function shortened(letter: Letter): Letter | null {
  const { envelope, raw } = letter;
  const bytes = Math.max(envelope.data.byteLength, raw?.byteLength ?? 0);
  const texts = textsOf(envelope).reduce((sum, text) => sum + text.length, 0);
  const cuts = [
    ...(bytes > keptBytes ? [`did not take its ${bytes} bytes: these are the first ${keptBytes}`] : []),
    ...(texts > keptTexts ? [`did not take its names and headers of ${texts} characters: they are cut`] : []),
  ];
  if (cuts.length === 0) return null;
  return {
    ...letter,
    cut: true,
    detail: `${wholly(letter)} (the inbox ${cuts.join(", and ")})`,
    envelope: { ...(texts > keptTexts ? cut(envelope) : envelope), data: envelope.data.slice(0, keptBytes) },
    ...(raw === undefined ? {} : { raw: raw.slice(0, keptBytes) }),
  };
}

const textsOf = ({ id, aggregateType, aggregateId, type, contentType, idempotencyKey, headers }: Envelope): readonly string[] =>
  [id, aggregateType, aggregateId, type, contentType, idempotencyKey ?? "", Object.entries(headers)].flat(2);

function cut(envelope: Envelope): Envelope {
  const start = (text: string, most = keptText): string => text.slice(0, most).toWellFormed();
  let left = keptHeaders;
  const headers = Object.entries(envelope.headers).flatMap(([name, value]) => {
    if (name.length > left) return [];
    const kept = start(value, left - name.length);
    left -= name.length + kept.length;
    return [[name, kept] as const];
  });
  return {
    ...envelope,
    // The letter is still kept under the same id.
    id: letterId(envelope.id),
    aggregateType: start(envelope.aggregateType),
    aggregateId: start(envelope.aggregateId),
    type: start(envelope.type),
    contentType: start(envelope.contentType),
    idempotencyKey: envelope.idempotencyKey === null ? null : start(envelope.idempotencyKey),
    headers: Object.fromEntries(headers),
  };
}
