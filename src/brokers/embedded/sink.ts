import type { Outgoing, PublishResult, Sink } from "../../contracts/sink.ts";
import type { Clock } from "../../core/clock.ts";
import { toAttributes } from "../../core/cloudevents.ts";
import { asError, isWaybillError, WaybillError } from "../../core/errors.ts";
import type { Statements } from "../../drivers/sqlite/connection.ts";
import { isBusy } from "../../drivers/sqlite/driver.ts";
import { orAborted } from "../../core/time.ts";
import { outage } from "../kit/outage.ts";
import { encoded, inOrder, stored, unavailable, unknown } from "../kit/results.ts";
import type { Log } from "./log.ts";

interface SinkOptions {
  readonly log: Log;
  readonly clock: Clock;
  readonly provision: boolean;
  readonly maxBytes: number;
  /** Called when something has been stored. */
  readonly onStored: () => void;
}

/** A message as it will be stored. */
interface Row {
  readonly attributes: string;
  readonly headers: string;
  readonly bytes: number;
}

const insert = `INSERT INTO waybill_broker_messages (topic, "key", attributes, headers, data, stored_at) VALUES (?, ?, ?, ?, ?, ?)`;

/** The whole batch is one transaction: messages not refused beforehand are stored together, in the order given, or not at all. */
export function createSink({ log, clock, provision, maxBytes, onStored }: SinkOptions): Pick<Sink, "publish" | "probe"> {
  type Batch = readonly (Row | PublishResult)[];
  const write = (statements: Statements, messages: readonly Outgoing[], batch: Batch): readonly PublishResult[] => {
    const missing = provision ? null : missingTopics(statements, messages);
    const at = new Date(clock.now()).toISOString();
    const topics = new Set<string>();
    const results = inOrder(messages, ({ topic, envelope }, i) => {
      const row = batch[i]!;
      if ("status" in row) return row;
      const refusal = missing?.get(topic);
      if (refusal !== undefined) return refusal;
      topics.add(topic);
      statements.run(insert, [topic, envelope.aggregateId, row.attributes, row.headers, envelope.data, at]);
      return stored;
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
      const none = (error: Error): readonly PublishResult[] => {
        const refusal = unavailable(error);
        return inOrder(messages, (_, i) => ("status" in batch[i]! ? batch[i] : refusal));
      };
      const perhaps = (results: readonly PublishResult[], error: Error): readonly PublishResult[] => {
        const uncertain = unknown(error);
        return results.map((result) => (result === stored ? uncertain : result));
      };
      const giveUp = (): readonly PublishResult[] => {
        givenUp = true;
        const why = outage("the publish was called off before the broker's file answered");
        return written === null ? none(why) : perhaps(written, why);
      };
      if (signal.aborted) return giveUp();

      const work = log.write((statements) => {
        if (givenUp) throw new WaybillError("STOPPED", "the publish was called off before anything was written");
        return (written = write(statements, messages, batch));
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
      // An empty transaction fails where a publish would fail, and writes nothing.
      const work = log.write((statements) => {
        if (!provision && !isThere(statements, topic)) throw absent(topic);
      });
      await orAborted(work, signal, () => {
        throw outage("the probe was called off before the broker's file answered");
      });
    },
  };
}

export function addTopics(statements: Statements, topics: Iterable<string>, at: string): void {
  for (const topic of topics) {
    if (isThere(statements, topic)) continue;
    statements.run("INSERT OR IGNORE INTO waybill_broker_topics (topic, created_at) VALUES (?, ?)", [topic, at]);
  }
}

function isThere(statements: Statements, topic: string): boolean {
  return statements.get("SELECT 1 AS found FROM waybill_broker_topics WHERE topic = ?", [topic]) !== undefined;
}

function missingTopics(statements: Statements, messages: readonly Outgoing[]): ReadonlyMap<string, PublishResult> {
  const topics = new Set(messages.map(({ topic }) => topic));
  return new Map([...topics].filter((topic) => !isThere(statements, topic)).map((topic) => [topic, unavailable(absent(topic))]));
}

function encode(message: Outgoing, maxBytes: number): Row | PublishResult {
  const { envelope, source } = message;
  return encoded(message, { of: "the embedded broker", most: maxBytes }, () => {
    const attributes = JSON.stringify(toAttributes(envelope, source));
    const headers = JSON.stringify(envelope.headers);
    return { attributes, headers, bytes: Buffer.byteLength(attributes) + Buffer.byteLength(headers) + envelope.data.byteLength };
  });
}

const absent = (topic: string): WaybillError => outage(`the embedded broker has no topic ${JSON.stringify(topic)}: provision it first`);

/** True when the transaction was certainly rolled back. A COMMIT that met a lock was. */
function undone(error: unknown): boolean {
  return isWaybillError(error, "TRANSACTION_LOST") || (isWaybillError(error) && isBusy(error.cause));
}
