import { absent, codes, KafkaRefusal, succeed } from "./codes.ts";
import type { Connection } from "./driver.ts";
import { askAt, persist, type Link } from "./link.ts";
import { bySpot, grouped, spotKey } from "./spots.ts";

/** In the place of a time, in listOffsets. */
const [latest, earliest, anyTime] = [-1n, -2n, 0n];
/** Whether what is not committed counts. */
const isolation = { all: 0, committedOnly: 1 } as const;

interface Asked {
  readonly shown: string;
  readonly connection: Connection;
  readonly topic: string;
  readonly indexes: readonly number[];
}

/** For each partition an offset and its time, in the order of the indexes. */
async function listOffsets({ shown, connection, topic, indexes }: Asked, timestamp: bigint, counts: keyof typeof isolation) {
  const partitions = indexes.map((partitionIndex) => ({ partitionIndex, currentLeaderEpoch: -1, timestamp }));
  const found = bySpot((await connection.ask("listOffsets", [-1, isolation[counts], [{ name: topic, partitions }]])).topics);
  return indexes.map((index) => {
    const one = found.get(spotKey(topic, index));
    succeed(one?.errorCode ?? codes.UNKNOWN_TOPIC_OR_PARTITION, `${shown}, partition ${index} of ${topic}`);
    return one!;
  });
}

/** Where the log begins. What lay before it is gone by the topic's retention, or the log is another one, and all of it is new. */
export async function firstOffset({ shown }: Link, connection: Connection, topic: string, index: number): Promise<bigint> {
  const [first] = await listOffsets({ shown, connection, topic, indexes: [index] }, earliest, "committedOnly");
  return first!.offset;
}

/** When the first record of the topic's partitions was written, as Kafka knows it; null where all of them are empty. */
export async function oldestOf(link: Link, name: string, signal: AbortSignal): Promise<Date | null> {
  const times = await persist(link, signal, () => readTimes(link, name, signal));
  return times.length === 0 ? null : new Date(Math.min(...times));
}

async function readTimes(link: Link, name: string, signal: AbortSignal): Promise<readonly number[]> {
  const { topics, brokers } = await link.look([name], signal);
  const topic = topics.get(name) ?? absent(link.shown, name);
  if (topic instanceof Error) throw topic;
  const led = topic.partitions.map(({ leader }, index) => ({ leader, index }));
  const times: number[] = [];
  for (const [leader, own] of grouped(led, (partition) => String(partition.leader))) {
    const address = brokers.get(Number(leader));
    if (address === undefined) throw new KafkaRefusal(codes.LEADER_NOT_AVAILABLE, `${link.shown}, topic ${name}`);
    const indexes = own.map(({ index }) => index);
    const asked = { shown: link.shown, topic: name, indexes };
    times.push(...(await askAt(link, address, signal, (connection) => timesAt({ ...asked, connection }))));
  }
  return times;
}

/** Of each partition that has records, the time of its first; 0 where that has none, or where the broker does not find it. */
async function timesAt(asked: Asked): Promise<readonly number[]> {
  // In this order: what retention removes in between makes the answer too old, and never too young.
  const timed = await listOffsets(asked, anyTime, "all");
  const first = await listOffsets(asked, earliest, "all");
  const end = await listOffsets(asked, latest, "all");
  return timed.flatMap(({ offset, timestamp }, i) => {
    const from = first[i]!.offset;
    if (from >= end[i]!.offset) return [];
    return offset < 0n || offset > from ? [0] : [Number(timestamp)];
  });
}
