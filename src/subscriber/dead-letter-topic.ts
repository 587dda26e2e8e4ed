import { systemClock, type Clock } from "../core/clock.ts";
import { asError, WaybillError } from "../core/errors.ts";
import { checkOptions } from "../core/options.ts";
import type { Letter } from "../core/letter.ts";
import type { DeadLetters } from "../contracts/dead-letters.ts";
import type { Sink } from "../contracts/sink.ts";
import { fatal } from "./fatal.ts";
import { wholly } from "../core/reason.ts";
import { asWord } from "../core/text.ts";

/** A template with `{topic}` and `{consumer}` in it, or a function of both. */
export type DeadTopic = string | ((topic: string, consumer: string) => string);

export interface DeadLetterTopicOptions {
  readonly sink: Sink;
  /** @default "{topic}.dead" */
  readonly topic?: DeadTopic;
  /** CloudEvents `source` of the letters. @default "/waybill" */
  readonly source?: string;
  readonly clock?: Clock;
}

/**
 * Publishes letters to a topic of their own: the event as it came, with the reason, the attempts and the origin in headers. The consumer's
 * inbox keeps the others: a letter that the broker refuses for good because of the event itself, and a message that is no event.
 */
export function deadLetterTopic(options: DeadLetterTopicOptions): DeadLetters {
  checkOptions("deadLetterTopic", options, ["sink", "topic", "source", "clock"]);
  const { sink, source = "/waybill", clock = systemClock } = options;
  const topicFor = deadTopicNames(options.topic);
  let connected: Promise<void> | null = null;
  const connect = (signal: AbortSignal): Promise<void> => {
    connected ??= sink.connect(signal).catch((error: unknown) => {
      connected = null;
      throw error;
    });
    return connected;
  };
  return {
    async probe(of, consumer, signal) {
      const topic = topicFor(of, consumer);
      await connect(signal);
      await sink.probe(topic, signal).catch((cause: unknown) => {
        throw new WaybillError("DESTINATION_UNAVAILABLE", deadTopicAway(topic, of, asError(cause).message), { cause });
      });
    },
    async park(letter, signal) {
      // A topic carries events only: its readers would find a message that is not one.
      if (letter.raw !== undefined) throw fatal(`a dead-letter topic takes events only, and this message is none: ${letter.error}`);
      const topic = topicFor(letter.topic, letter.consumer);
      await connect(signal);
      const [result] = await sink.publish([{ topic, source, envelope: { ...letter.envelope, headers: headersOf(letter, clock) } }], signal);
      switch (result?.status) {
        case "stored":
          return;
        case "refused":
          throw result.blame === "event" && !result.retryable ? fatal(result.error) : result.error;
        case "unknown":
          throw result.error;
        case "skipped":
        case undefined:
          throw new WaybillError("DESTINATION_UNAVAILABLE", `${sink.name} gave no answer for the letter on ${topic}`);
      }
    },
  };
}

/** The message for the operator who has to create the topic. */
export const deadTopicAway = (deadTopic: string, topic: string, why: string): string =>
  `the dead-letter topic ${deadTopic} of ${topic} takes no letters (${why}): create it with waybill migrate --broker URL --topics ${asWord(deadTopic)}`;

/** Names the topic for a topic's letters. It is never the topic itself: the letters would come back for ever. */
export function deadTopicNames(given: DeadTopic = "{topic}.dead"): (topic: string, consumer: string) => string {
  if (typeof given === "string") checkTemplate(given);
  return (topic, consumer) => {
    const name =
      typeof given === "function"
        ? given(topic, consumer)
        : given.replaceAll("{topic}", () => topic).replaceAll("{consumer}", () => consumer);
    if (typeof name !== "string" || name === "" || name === topic) {
      throw new WaybillError(
        "INVALID_OPTION",
        `the dead-letter topic of ${topic} must be the name of another topic, not ${JSON.stringify(name)}`,
      );
    }
    return name;
  };
}

function checkTemplate(template: string): void {
  const unknown = template.match(/\{(?!topic\}|consumer\})[^}]*\}?/);
  if (unknown !== null) {
    throw new WaybillError(
      "INVALID_OPTION",
      `the dead-letter topic ${JSON.stringify(template)} holds ${unknown[0]}: there are {topic} and {consumer}`,
    );
  }
}

function headersOf(letter: Letter, clock: Clock): Record<string, string> {
  return {
    ...letter.envelope.headers,
    "waybill-dead-reason": wholly(letter),
    "waybill-dead-attempts": String(letter.attempts),
    "waybill-dead-topic": letter.topic,
    "waybill-dead-consumer": letter.consumer,
    "waybill-dead-at": new Date(clock.now()).toISOString(),
  };
}
