import type { ConsumerState, ConsumerTopic, LetterCount } from "../contracts/consumers.ts";
import { systemClock } from "../core/clock.ts";
import type { KnownConsumer } from "./known.ts";
import { gauge, written, type Gauge, type Series } from "./series.ts";

export const inboxUp = { name: "waybill_inbox_up", help: "1 when the inbox's database answers, within a minute.", labels: [] };

const ofLetters = (consumers: readonly ConsumerState[], of: (count: LetterCount) => number): Series =>
  consumers.flatMap(({ consumer, letters }) => letters.map((count) => [{ consumer, topic: count.topic }, of(count)] as const));

export const inboxGauges: readonly Gauge<readonly ConsumerState[]>[] = [
  gauge(
    "waybill_dead_letters",
    "Dead letters that wait in the inbox's database, by consumer and topic.",
    (consumers) => ofLetters(consumers, ({ letters, redriven }) => letters - redriven),
    ...["consumer", "topic"],
  ),
  gauge(
    "waybill_redriven_letters",
    "Letters that were redriven and wait for their consumer, by consumer and topic.",
    (consumers) => ofLetters(consumers, ({ redriven }) => redriven),
    ...["consumer", "topic"],
  ),
  gauge(
    "waybill_oldest_letter_seconds",
    "Age of the oldest letter, by consumer and topic.",
    (consumers) => ofLetters(consumers, ({ oldest }) => Math.max(0, systemClock.now() - oldest.getTime()) / 1000),
    ...["consumer", "topic"],
  ),
  gauge(
    "waybill_consumer_running",
    "1 while a subscriber process of the consumer runs, 0 when all that the inbox's database knows are gone, by consumer and topic.",
    (consumers) =>
      consumers.flatMap(({ consumer, reads }) => reads.map(({ topic, running }) => [{ consumer, topic }, running ? 1 : 0] as const)),
    ...["consumer", "topic"],
  ),
  gauge(
    "waybill_retrying_events",
    "Events whose handler has failed and that are tried again, by consumer.",
    (consumers) => consumers.flatMap(({ consumer, retrying }) => (retrying === null ? [] : [[{ consumer }, retrying.events]])),
    "consumer",
  ),
];

/** A consumer of this process, and what its broker reported. Null when the broker failed to answer, or has not answered for a minute. */
export interface LookedAt {
  readonly consumer: string;
  readonly topics: readonly ConsumerTopic[] | null;
}

/** Two subscribers of one process may share a consumer, and Prometheus refuses a page that has a series twice. */
function oncePer(series: Series, both: (a: number, b: number) => number): Series {
  const found = new Map<string, Series[number]>();
  for (const [labels, value] of series) {
    const before = found.get(written(labels));
    found.set(written(labels), [labels, before === undefined ? value : both(before[1], value)]);
  }
  return [...found.values()];
}

const ofTopics = (looks: readonly LookedAt[], of: (topic: ConsumerTopic) => number | null): Series =>
  looks.flatMap(({ consumer, topics }) =>
    (topics ?? []).flatMap((topic) => {
      const value = of(topic);
      return value === null ? [] : [[{ consumer, topic: topic.topic }, value] as const];
    }),
  );

/** What brokers report: of the subscribers of this process, and of consumers that are known, whether or not they run. */
export interface Asked {
  readonly looks: readonly LookedAt[];
  readonly known: readonly KnownConsumer[];
}

export const sourceGauges: readonly Gauge<Asked>[] = [
  gauge(
    "waybill_source_up",
    "1 when the subscriber runs and its broker answers within a minute, by consumer.",
    ({ looks }) =>
      oncePer(
        looks.map(({ consumer, topics }) => [{ consumer }, topics === null ? 0 : 1]),
        Math.min,
      ),
    "consumer",
  ),
  gauge(
    "waybill_lag_messages",
    "Messages that the consumer is not done with, by consumer and topic.",
    ({ looks, known }) =>
      oncePer(
        [
          ...ofTopics(looks, ({ lag }) => lag),
          ...known.flatMap(({ consumer, topic, messages }) => (messages === null ? [] : [[{ consumer, topic }, messages] as const])),
        ],
        Math.max,
      ),
    ...["consumer", "topic"],
  ),
  gauge(
    "waybill_dead_topic_up",
    "1 when the dead-letter topic takes letters of this topic, for consumers that have one.",
    ({ looks }) =>
      oncePer(
        ofTopics(looks, ({ deadTopic }) => (deadTopic === null ? null : deadTopic.error === null ? 1 : 0)),
        Math.min,
      ),
    ...["consumer", "topic"],
  ),
];
