import { turn as yieldTurn } from "../../../core/clock.ts";
import { asError, WaybillError } from "../../../core/errors.ts";
import { follow } from "../../../core/time.ts";
import { createWake } from "../../../core/wake.ts";
import { absent, codes, isPassing, KafkaRefusal, succeed } from "../codes.ts";
import type { Connection } from "../driver.ts";
import type { Link, Topic } from "../link.ts";
import { batchesIn, mostUnpacked } from "./batches.ts";
import { itemsPast, windowBytes } from "./damage.ts";
import { firstOffset } from "./offsets.ts";
import { itemsOf, type LogItem } from "./records.ts";
import { byTopic, spotKey, type Spot } from "./spots.ts";
import type { Address } from "../../kit/url.ts";
import type { FetchedPartition } from "./fetched.ts";

/** A partition that is read. */
export interface Reading extends Spot {
  /** The next offset to fetch. */
  from: bigint;
  /** Fetched, and not taken yet. */
  readonly queue: LogItem[];
  bytes: number;
  /** This consumer has never read it, so it has not missed what is gone before the log's beginning. */
  fresh: boolean;
}

export interface Fetching {
  /** Something was taken: there may be room for more. */
  taken(): void;
  stop(): void;
}

interface FetchingOptions<R extends Reading> {
  readonly link: Link;
  readonly readings: readonly R[];
  /** As they were when we joined. */
  readonly topics: ReadonlyMap<string, Topic>;
  /** How long a partition may be out of reach before that is a failure. */
  readonly patienceMs: number;
  /** How many bytes may be fetched at once. */
  readonly bytes: number;
  /** The largest batch: one comes whole, whatever `bytes` say. */
  readonly batchBytes: number;
  /** How many bytes more may be taken; those that are fetched and not taken count too. */
  readonly bytesLeft: () => number;
  readonly missed: (topic: string, messages: number) => void;
  /** A fresh partition was found to begin at its `from`. */
  readonly begun: (reading: R) => void;
  readonly arrived: () => void;
  readonly failed: (error: Error) => void;
}

const waitMs = 500;
/** The wait while some partition of the broker has messages queued: one that runs empty must not wait long for the next fetch. */
const shortMs = 50;
const againMs = 100;
/** With so much of a partition in memory, no more of it is fetched. */
const enoughBytes = 256 * 1024;
const fetchBytes = 1024 * 1024;
const answerBytes = 8 * 1024 * 1024;
/** So often in a row a fetch has to stop at the same place before that is looked into. */
const maxStops = 3;
/** Between two of these: what passes by itself is given time to. */
const stopMs = 500;
/** With these codes, a fetch stopped because of what is stored, or of a server problem that has no code of its own. */
const stopping: readonly number[] = [codes.CORRUPT_MESSAGE, codes.INVALID_RECORD, codes.UNKNOWN_SERVER_ERROR];
const committedOnly = 1;

/** Reads partitions from their leaders, wherever these are, until it is stopped or one cannot be read any more. */
export function startFetching<R extends Reading>(options: FetchingOptions<R>): Fetching {
  const { link, readings, topics, patienceMs, bytes: most, batchBytes, bytesLeft, missed, begun, arrived, failed } = options;
  const { clock } = link;
  const ending = follow(link.closing);
  const { signal } = ending;
  const wake = createWake();
  const names = new Map([...topics].map(([name, { id }]) => [id, name]));
  const leaders = new Map<R, number>();
  const since = new Map<R, number>();
  const loops = new Set<number>();
  const stops = new Map<R, { times: number; until: number }>();
  const itemBytes = Math.min(most, mostUnpacked);
  let turn = 0;
  let locating = false;

  const stop = (): void => {
    ending.abort();
    ending.release();
  };
  const fail = (error: unknown): void => {
    if (signal.aborted) return;
    stop();
    failed(asError(error));
  };
  /** Their leaders have to be looked up again. */
  const lose = (own: readonly R[], error: unknown): void => {
    if (signal.aborted) return;
    const now = clock.monotonic();
    for (const reading of own) {
      leaders.delete(reading);
      if (now - (since.get(reading) ?? now) > patienceMs) return fail(error);
      if (!since.has(reading)) since.set(reading, now);
    }
    void locate();
  };

  const locate = async (): Promise<void> => {
    if (locating) return;
    locating = true;
    while (!signal.aborted && leaders.size < readings.length) {
      try {
        const { topics: found, brokers } = await link.look([...topics.keys()], signal);
        for (const [name, before] of topics) checkSame(link, before, found.get(name) ?? absent(link.shown, name));
        for (const reading of readings) {
          const topic = found.get(reading.topic) as Topic;
          const leader = topic.partitions[reading.index]?.leader ?? -1;
          const address = brokers.get(leader);
          if (leaders.has(reading) || address === undefined) continue;
          leaders.set(reading, leader);
          if (!loops.has(leader)) void fetchAll(leader, address);
        }
      } catch (error) {
        if (error instanceof Changed) return fail(error.why);
        lose(
          readings.filter((reading) => !leaders.has(reading)),
          error,
        );
      }
      wake.notify();
      await clock.sleep(againMs, signal);
    }
    locating = false;
  };

  /** How many more bytes may be unpacked, over all partitions. With nothing held there is room, so one batch of any size gets in. */
  const room = (): number => bytesLeft() - readings.reduce((sum, { bytes }) => sum + bytes, 0);

  /** Fetches all our partitions of one leader, until it leads none of them any more. */
  const fetchAll = async (leader: number, address: Address): Promise<void> => {
    loops.add(leader);
    let connection: Connection | null = null;
    while (!signal.aborted) {
      const own = readings.filter((reading) => leaders.get(reading) === leader);
      if (own.length === 0) break;
      const now = clock.monotonic();
      const isReady = (reading: R): boolean => reading.bytes < enoughBytes && (stops.get(reading)?.until ?? now) <= now;
      const hungry = room() <= 0 ? [] : own.filter(isReady);
      if (hungry.length === 0) {
        await wake.wait(clock, waitMs, signal);
        continue;
      }
      try {
        connection ??= await link.dial(address, signal);
        // The first partition with messages gets a batch of any size, the others only what is left: so each is first in turn.
        hungry.push(...hungry.splice(0, turn++ % hungry.length));
        await fetchOnce(connection, hungry, own.every(({ queue }) => queue.length === 0) ? waitMs : shortMs);
      } catch (error) {
        connection?.end(asError(error));
        connection = null;
        lose(own, error);
      }
    }
    connection?.end(new WaybillError("STOPPED", `${link.shown} is not read any more`));
    loops.delete(leader);
  };

  interface Asked {
    readonly maxWaitMs: number;
    /** Of one partition, and of all. */
    readonly bytes: readonly [number, number];
    /** Instead of each partition's `from`. */
    readonly offset?: bigint;
  }
  const ask = async (connection: Connection, hungry: readonly R[], { maxWaitMs, bytes, offset }: Asked) => {
    const [partitionMaxBytes, maxBytes] = bytes;
    const request = byTopic(hungry, ({ index, from }) => ({
      ...{ partition: index, currentLeaderEpoch: -1, fetchOffset: offset ?? from, lastFetchedEpoch: -1, partitionMaxBytes },
    })).map(({ name, partitions }) => ({ topicId: topics.get(name)!.id, partitions }));
    const answer = await connection.ask("fetch", [maxWaitMs, 1, maxBytes, committedOnly, 0, -1, request, [], ""], {
      ...{ extraMs: maxWaitMs, messageBytes: maxBytes + batchBytes },
    });
    succeed(answer.errorCode, link.shown);
    const asked = new Map(hungry.map((reading) => [spotKey(reading.topic, reading.index), reading]));
    return answer.responses.flatMap(({ topicId, partitions }) =>
      partitions.flatMap((found) => {
        const reading = asked.get(spotKey(names.get(topicId) ?? "", found.partitionIndex));
        return reading === undefined ? [] : [{ reading, found }];
      }),
    );
  };

  const fetchOnce = async (connection: Connection, hungry: readonly R[], maxWaitMs: number): Promise<void> => {
    const wanted = Math.max(1, room());
    const bytes = [Math.min(fetchBytes, wanted), Math.min(answerBytes, wanted)] as const;
    for (const { reading, found } of await ask(connection, hungry, { maxWaitMs, bytes })) {
      // A few packed bytes may unpack to many: partitions without room are dropped from this answer, and fetched again.
      if (signal.aborted || room() <= 0) return;
      await take(connection, reading, found, reading === hungry[0]);
      // Unpacking blocks the process: heartbeats and handlers get their turn between two partitions.
      await yieldTurn();
    }
  };

  const take = async (connection: Connection, reading: R, partition: FetchedPartition, isFirst: boolean): Promise<void> => {
    const where = `${link.shown}, partition ${reading.index} of ${reading.topic}`;
    const { errorCode, records, abortedTransactions = null, stableOffset: end } = partition;
    if (errorCode === codes.OFFSET_OUT_OF_RANGE) {
      return restart(reading, await firstOffset(link, connection, reading.topic, reading.index));
    }
    if (isPassing(errorCode)) return lose([reading], new KafkaRefusal(errorCode, where));
    if (stopping.includes(errorCode)) return stopped(connection, reading, where);
    succeed(errorCode, where);
    begin(reading);
    const { from } = reading;
    const items = records
      ? itemsOf({ batches: batchesIn(records, { asked: from, end }), abortedTransactions }, from, Math.min(itemBytes, room()))
      : [];
    if (items.length > 0) return add(reading, items);
    // The first is given a batch of any size. Another may have got nothing since there was no room left for it.
    if (from < end && isFirst) return stopped(connection, reading, where);
    since.delete(reading);
    if (from >= end) stops.delete(reading);
  };

  /** A fetch did not get past its offset. Once may be chance; after `maxStops` times, `itemsPast` sets aside what is there. */
  const stopped = async (connection: Connection, reading: R, where: string): Promise<void> => {
    const times = (stops.get(reading)?.times ?? 0) + 1;
    stops.set(reading, { times, until: clock.monotonic() + stopMs });
    if (times < maxStops) return;
    const fetch = async (offset: bigint): Promise<FetchedPartition> => {
      const [answered] = await ask(connection, [reading], { maxWaitMs: 0, bytes: [windowBytes, windowBytes], offset });
      if (answered === undefined) throw new WaybillError("DESTINATION_UNAVAILABLE", `${where}: the server did not answer for it`);
      return answered.found;
    };
    try {
      const items = await itemsPast({ from: reading.from, where, fetch, bytes: itemBytes, ended: signal });
      if (items.length === 0) passed(reading);
      else if (!signal.aborted) add(reading, items);
    } catch (error) {
      lose([reading], error);
    }
  };
  const passed = (reading: R): void => {
    since.delete(reading);
    stops.delete(reading);
  };

  const begin = (reading: R): void => {
    if (!reading.fresh) return;
    reading.fresh = false;
    begun(reading);
  };
  const add = (reading: R, items: readonly LogItem[]): void => {
    passed(reading);
    begin(reading);
    for (const item of items) {
      reading.queue.push(item);
      reading.bytes += item.bytes;
    }
    reading.from = items.at(-1)!.last + 1n;
    arrived();
  };
  /** The offset is not in the log. Offsets before its beginning are skipped, and committed as if read: they are reported once. */
  const restart = (reading: R, first: bigint): void => {
    if (first <= reading.from || reading.fresh) {
      reading.from = first;
      return;
    }
    missed(reading.topic, Number(first - reading.from));
    add(reading, [{ first: reading.from, last: first - 1n, record: null, bytes: 0 }]);
  };

  void locate();
  return { taken: () => wake.notify(), stop };
}

class Changed extends Error {
  readonly why: Error;
  constructor(why: Error) {
    super(why.message);
    this.why = why;
  }
}

/** A topic that was deleted, or deleted and recreated, is not the one whose offsets we know. */
function checkSame({ shown }: Link, before: Topic, now: Topic | Error): void {
  if (now instanceof KafkaRefusal && isPassing(now.kafkaCode)) throw now;
  if (now instanceof Error) throw new Changed(now);
  if (now.id === before.id) return;
  throw new Changed(
    new WaybillError("DESTINATION_UNAVAILABLE", `${shown}: the topic ${JSON.stringify(before.name)} was deleted and made anew`),
  );
}
