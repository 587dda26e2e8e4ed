import type { Outgoing, PublishResult, Sink } from "../../contracts/sink.ts";
import { asError, WaybillError } from "../../core/errors.ts";
import { orAborted } from "../../core/time.ts";
import { skipped, stored, tooLarge, unavailable, unfit, unknown } from "../kit/results.ts";
import type { BatchAnswer } from "./batch.ts";
import { KafkaRefusal, verdictOf } from "./codes.ts";
import { loadFlights, runsOf, type Flight, type Ready, type AggregateRun } from "./flights.ts";
import type { Link } from "./link.ts";
import { batchHeadBytes, contentOf, recordBytes } from "./message.ts";
import { partitionOf } from "./partition.ts";
import type { Producer } from "./producer.ts";
import type { Producers } from "./producers.ts";
import { checkTopic, isTopic, type Directory, type WritableTopic } from "./topics.ts";

interface SinkOptions {
  readonly link: Link;
  readonly directory: Directory;
  readonly maxBytes: number;
  readonly producers: Producers;
}

/** How often in one publish a partition is tried whose leader has moved, or which does not know the producer. */
const tries = 3;
const againMs = 100;

export function createSink(options: SinkOptions): Pick<Sink, "publish" | "probe"> {
  const { link, directory } = options;
  return {
    async publish(messages, signal) {
      if (messages.length === 0) return [];
      const publishing = createPublishing(options, messages, signal);
      return publishing.run();
    },

    async probe(topic, signal) {
      checkTopic(topic, "ROUTE_FAILED");
      directory.forget(topic);
      const place = (await directory.find([topic], signal)).get(topic)!;
      if (place instanceof Error) throw place;
      const leaderless = place.topic.partitions.findIndex(({ leader }) => !place.brokers.has(leader));
      if (leaderless >= 0) throw noLeader(link.shown, topic, leaderless);
    },
  };
}

const noLeader = (shown: string, topic: string, partition: number): WaybillError =>
  new WaybillError("DESTINATION_UNAVAILABLE", `${shown}: partition ${partition} of ${topic} has no leader`);

/** Flight after flight, until every message has its result. */
function createPublishing(
  { link, directory, maxBytes, producers }: SinkOptions,
  messages: readonly Outgoing[],
  signal: AbortSignal,
): { run(): Promise<readonly PublishResult[]> } {
  const { shown, clock } = link;
  const results = messages.map(() => skipped);
  const calledOff = unavailable(new WaybillError("DESTINATION_UNAVAILABLE", `the publish was called off before it went to ${shown}`));
  /** By partition: batches that were too large, halved; and how often it was tried in vain. */
  const limits = new Map<string, number>();
  const failures = new Map<string, number>();
  let producer: Producer | null = null;
  let moved = false;

  const prepare = (message: Outgoing, places: ReadonlyMap<string, WritableTopic | Error> | Error): Ready | PublishResult => {
    const { envelope, topic } = message;
    try {
      checkTopic(topic, "ROUTE_FAILED");
      const content = contentOf(message);
      const place = places instanceof Error ? places : places.get(topic)!;
      if (place instanceof Error) return unavailable(place);
      const limit = Math.min(place.limit, maxBytes);
      const bytes = recordBytes(content);
      if (batchHeadBytes + bytes > limit)
        return tooLarge(envelope.id, `takes ${batchHeadBytes + bytes} bytes with its headers, and ${topic} takes ${limit}`);
      const partition = partitionOf(content.key, place.topic.partitions.length);
      const leader = place.brokers.get(place.topic.partitions[partition]!.leader);
      if (leader === undefined) {
        directory.forget(topic);
        return unavailable(noLeader(shown, topic, partition));
      }
      return { bytes, limit, leader, message: { ...content, topic, partition, timestamp: BigInt(clock.now()) } };
    } catch (error) {
      return unfit(asError(error));
    }
  };

  /** Of those that are left in runs. */
  const prepareAll = async (runs: readonly AggregateRun[]): Promise<readonly (Ready | PublishResult)[]> => {
    const left = new Set(runs.flat());
    const topics = new Set(messages.flatMap(({ topic }, i) => (left.has(i) && isTopic(topic) ? [topic] : [])));
    const places = await directory.find([...topics], signal).catch((error: unknown) => asError(error));
    return messages.map((message, i) => (left.has(i) ? prepare(message, places) : skipped));
  };
  const prepared = (runs: readonly AggregateRun[]): Promise<readonly (Ready | PublishResult)[]> => {
    const off = (): readonly PublishResult[] => messages.map(() => calledOff);
    return signal.aborted ? Promise.resolve(off()) : orAborted(prepareAll(runs), signal, off);
  };

  /** The answers, or why there is no producer to send with. */
  const send = async (flights: readonly Flight[]): Promise<readonly BatchAnswer[] | PublishResult> => {
    if (signal.aborted) return calledOff;
    try {
      if (producer?.spent === true) release();
      producer ??= await producers.take(signal);
    } catch (error) {
      return unavailable(asError(error));
    }
    return producer.send(
      flights.map(({ batch }) => batch),
      signal,
    );
  };
  const release = (): void => {
    if (producer !== null) producers.give(producer);
    producer = null;
  };

  /** What an answer means for the batch's messages; null when they go again. */
  const judge = ({ key, batch, indexes, bytes }: Flight, answer: BatchAnswer): PublishResult | null => {
    const again = (otherwise: PublishResult): PublishResult | null => {
      const failed = (failures.get(key) ?? 0) + 1;
      failures.set(key, failed);
      directory.forget(batch.topic);
      moved = true;
      return failed < tries ? null : otherwise;
    };
    const apart = (limit: number, alone: (why: string) => PublishResult, why: string): PublishResult | null => {
      if (indexes.length === 1) return alone(why);
      limits.set(key, limit);
      return null;
    };
    if ("undone" in answer) return null;
    if ("lost" in answer) return unknown(answer.lost);
    if ("unsent" in answer) return again(unavailable(answer.unsent));
    const refused = new KafkaRefusal(answer.code, `${shown}, partition ${batch.partition} of ${batch.topic}`, answer.said);
    const { id } = messages[indexes[0]!]!.envelope;
    switch (verdictOf(answer.code)) {
      case "stored":
        return stored;
      case "size":
        directory.forget(batch.topic);
        return apart(bytes / 2, (why) => tooLarge(id, `is refused: ${why}`), refused.message);
      case "event":
        return apart(0, () => unfit(refused), refused.message);
      case "sequence":
        producer?.end();
        return again(unknown(refused));
      case "moved":
        return again(unavailable(refused));
      case "destination":
        directory.forget(batch.topic);
        return unavailable(refused);
      case "unknown":
        producer?.end();
        return unknown(refused);
    }
  };

  /** Notes a result, and what it means for the messages behind it. */
  const settle = (run: AggregateRun, result: PublishResult): void => {
    results[run.at(-1)!] = result;
    if (result === stored) run.pop();
    else run.length = 0;
  };

  const run = async (): Promise<readonly PublishResult[]> => {
    let runs = runsOf(messages);
    let ready = await prepared(runs);
    while (runs.length > 0) {
      for (const run of runs) {
        const next = ready[run.at(-1)!]!;
        if ("status" in next) settle(run, next);
      }
      runs = runs.filter((run) => run.length > 0);
      const flights = loadFlights(runs, ready, limits);
      if (flights.length === 0) break;
      const answers = await send(flights);
      const judged = new Map<number, PublishResult>();
      if ("status" in answers) for (const run of runs) judged.set(run.at(-1)!, answers);
      else {
        flights.forEach((flight, i) => {
          const result = judge(flight, answers[i]!);
          if (result !== null) for (const index of flight.indexes) judged.set(index, result);
        });
      }
      for (const run of runs) {
        for (let result = judged.get(run.at(-1)!); result !== undefined; result = judged.get(run.at(-1) ?? -1)) settle(run, result);
      }
      // Those behind one that was lost were sent with it.
      for (const [index, result] of judged) results[index] = result;
      runs = runs.filter((run) => run.length > 0);
      if (moved && runs.length > 0) {
        moved = false;
        await clock.sleep(againMs, signal);
        ready = await prepared(runs);
      }
    }
    release();
    return results;
  };
  return { run };
}
