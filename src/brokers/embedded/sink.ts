import type { Outgoing, PublishResult, Sink } from "../../contracts/sink.ts";
import type { Clock } from "../../core/clock.ts";
import { toAttributes } from "../../core/cloudevents.ts";
import { asError, isWaybillError, WaybillError } from "../../core/errors.ts";
import { aggregateKey } from "../../core/event.ts";
import type { Statements } from "../../drivers/sqlite/connection.ts";
import { isBusy } from "../../drivers/sqlite/driver.ts";
import { orAborted } from "../../core/signal.ts";
import type { Log } from "./log.ts";

export interface SinkOptions {
  readonly log: Log;
  readonly clock: Clock;
  readonly provision: boolean;
  readonly maxBytes: number;
  /** Called when something has been stored. */
  readonly onStored: () => void;
}

/** A message as it will be stored, or why it cannot be. */
interface Encoded {
  readonly message: Outgoing;
  readonly attributes: string;
  readonly headers: string;
  readonly refusal: PublishResult | null;
}

const stored: PublishResult = { status: "stored" };
const skipped: PublishResult = { status: "skipped" };
const insert = `INSERT INTO waybill_broker_messages (topic, "key", attributes, headers, data, stored_at) VALUES (?, ?, ?, ?, ?, ?)`;

/** The whole batch is one transaction: what is not refused beforehand is stored together, in the order given, or not at all. */
export function createSink({ log, clock, provision, maxBytes, onStored }: SinkOptions): Pick<Sink, "publish" | "probe"> {
  const write = (statements: Statements, batch: readonly Encoded[]): readonly PublishResult[] => {
    const missing = provision ? null : missingTopics(statements, batch);
    const results = judge(batch, ({ refusal, message }) => refusal ?? (missing?.has(message.topic) ? noTopic(message.topic) : stored));
    const at = new Date(clock.now()).toISOString();
    const topics = new Set<string>();
    batch.forEach(({ message: { topic, envelope }, attributes, headers }, i) => {
      if (results[i] !== stored) return;
      topics.add(topic);
      statements.run(insert, topic, envelope.aggregateId, attributes, headers, envelope.data, at);
    });
    if (provision) addTopics(statements, topics, at);
    return results;
  };

  return {
    async publish(messages, signal) {
      if (messages.length === 0) return [];
      const batch = messages.map((message) => encode(message, maxBytes));
      let givenUp = false;
      let written: readonly PublishResult[] | null = null;
      const none = (error: Error): readonly PublishResult[] => judge(batch, ({ refusal }) => refusal ?? unavailable(error));
      const perhaps = (results: readonly PublishResult[], error: Error): readonly PublishResult[] =>
        results.map((result) => (result === stored ? unknown(error) : result));
      const giveUp = (): readonly PublishResult[] => {
        givenUp = true;
        const why = new WaybillError("DESTINATION_UNAVAILABLE", "the publish was called off before the broker's file answered");
        return written === null ? none(why) : perhaps(written, why);
      };
      if (signal.aborted) return giveUp();

      const work = log.write((statements) => {
        if (givenUp) throw new WaybillError("STOPPED", "the publish was called off before anything was written");
        return (written = write(statements, batch));
      });
      const settled = work.then(
        (results) => {
          if (results.includes(stored)) onStored();
          return results;
        },
        (error: unknown) => (written === null || undone(error) ? none(asError(error)) : perhaps(written, asError(error))),
      );
      return orAborted(settled, signal, giveUp);
    },

    async probe(topic, signal) {
      // An empty transaction: it is refused where a publish would be, and writes nothing.
      const work = log.write((statements) => {
        if (!provision && !isThere(statements, topic)) throw absent(topic);
      });
      await orAborted(work, signal, () => {
        throw new WaybillError("DESTINATION_UNAVAILABLE", "the probe was called off before the broker's file answered");
      });
    },
  };
}

export function addTopics(statements: Statements, topics: Iterable<string>, at: string): void {
  for (const topic of topics) {
    if (isThere(statements, topic)) continue;
    statements.run("INSERT OR IGNORE INTO waybill_broker_topics (topic, created_at) VALUES (?, ?)", topic, at);
  }
}

function isThere(statements: Statements, topic: string): boolean {
  return statements.get("SELECT 1 AS found FROM waybill_broker_topics WHERE topic = ?", topic) !== undefined;
}

function missingTopics(statements: Statements, batch: readonly Encoded[]): ReadonlySet<string> {
  const topics = new Set(batch.map(({ message }) => message.topic));
  return new Set([...topics].filter((topic) => !isThere(statements, topic)));
}

/** Each message's result in turn; after one of its aggregate that is not stored, the rest are skipped. */
function judge(batch: readonly Encoded[], verdict: (encoded: Encoded) => PublishResult): readonly PublishResult[] {
  const failed = new Set<string>();
  return batch.map((encoded) => {
    const aggregate = aggregateKey(encoded.message.envelope);
    if (failed.has(aggregate)) return skipped;
    const result = verdict(encoded);
    if (result !== stored) failed.add(aggregate);
    return result;
  });
}

function encode(message: Outgoing, maxBytes: number): Encoded {
  const { envelope, source } = message;
  try {
    const attributes = JSON.stringify(toAttributes(envelope, source));
    const headers = JSON.stringify(envelope.headers);
    const bytes = Buffer.byteLength(attributes) + Buffer.byteLength(headers) + envelope.data.byteLength;
    const fits = bytes <= maxBytes;
    const why = `event ${envelope.id} takes ${bytes} bytes with its headers, and the embedded broker takes ${maxBytes}`;
    return { message, attributes, headers, refusal: fits ? null : unfit(new WaybillError("MESSAGE_TOO_LARGE", why)) };
  } catch (error) {
    return { message, attributes: "", headers: "", refusal: unfit(asError(error)) };
  }
}

const unfit = (error: Error): PublishResult => ({ status: "refused", blame: "event", retryable: false, error });

const absent = (topic: string): WaybillError =>
  new WaybillError("DESTINATION_UNAVAILABLE", `the embedded broker has no topic ${JSON.stringify(topic)}: provision it first`);

const noTopic = (topic: string): PublishResult => unavailable(absent(topic));

function unavailable(error: Error): PublishResult {
  const named = isWaybillError(error) ? error : new WaybillError("DESTINATION_UNAVAILABLE", error.message, { cause: error });
  return { status: "refused", blame: "destination", retryable: true, error: named };
}

function unknown(cause: Error): PublishResult {
  return { status: "unknown", error: new WaybillError("PUBLISH_UNKNOWN", `COMMIT did not succeed: ${cause.message}`, { cause }) };
}

/** Did the transaction certainly end without a trace? A COMMIT that met a lock was rolled back. */
function undone(error: unknown): boolean {
  return isWaybillError(error, "TRANSACTION_LOST") || (isWaybillError(error) && isBusy(error.cause));
}
