import { absent, codes, KafkaRefusal, succeed, wrongAnswer } from "../codes.ts";
import type { Connection } from "../driver.ts";
import { askAt, persist, type Link } from "../link.ts";
import { bySpot, byTopic, grouped, spotKey, type Spot } from "./spots.ts";

/** Values for the timestamp in listOffsets. */
const [latest, earliest, anyTime] = [-1n, -2n, 0n];
const maxDateMs = 8.64e15;
/** Whether uncommitted records count. */
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
    if (one!.offset < -1n || (timestamp !== anyTime && one!.offset < 0n)) throw wrongAnswer(shown, "listOffsets");
    return one!;
  });
}

/** Where the log begins. Retention has removed what was before, or the log is another one, and all of it is new. */
export async function firstOffset({ shown }: Link, connection: Connection, topic: string, index: number): Promise<bigint> {
  const [first] = await listOffsets({ shown, connection, topic, indexes: [index] }, earliest, "committedOnly");
  return first!.offset;
}

/** The next offset of each spot, where the group has committed one; in the order of the spots. The group's coordinator is asked. */
export async function committedOffsets(
  { shown }: Link,
  coordinator: Connection,
  group: string,
  spots: readonly Spot[],
): Promise<readonly (bigint | null)[]> {
  const where = `${shown}, group ${group}`;
  const asked = byTopic(spots, ({ index }) => index).map(({ name, partitions }) => ({ name, partitionIndexes: partitions }));
  // Stable: while a transaction over these offsets is undecided, Kafka refuses, and the session begins again.
  const { groups } = await coordinator.ask("offsetFetch", [[{ groupId: group, memberEpoch: -1, topics: asked }], true]);
  const [answer] = groups;
  succeed(answer?.errorCode ?? codes.COORDINATOR_NOT_AVAILABLE, where);
  const found = bySpot(answer!.topics);
  for (const { errorCode } of found.values()) succeed(errorCode, where);
  return spots.map(({ topic, index }) => {
    const { committedOffset = -1n } = found.get(spotKey(topic, index)) ?? {};
    return committedOffset >= 0n ? committedOffset : null;
  });
}

/**
 * How many offsets of the topic come after those that the group has committed; null when it has committed none. Kafka counts the end of a
 * transaction as a record, so a topic of transactions has a lag of one for each partition when all of it is done.
 */
export function lagOf(link: Link, topic: string, group: string, signal: AbortSignal): Promise<number | null> {
  return persist(link, signal, async () => {
    const ranges = await atLeaders(link, topic, signal, rangesAt);
    const home = await link.coordinator("group", group, signal);
    const spots = ranges.map(({ index }) => ({ topic, index }));
    const committed = await askAt(link, home, signal, (connection) => committedOffsets(link, connection, group, spots));
    if (committed.every((next) => next === null)) return null;
    const behind = ranges.map(({ first, end }, i) => {
      const next = committed[i] ?? first;
      return Math.max(0, Number(end - (next > first ? next : first)));
    });
    return behind.reduce((sum, offsets) => sum + offsets, 0);
  });
}

async function rangesAt(asked: Asked): Promise<readonly { index: number; first: bigint; end: bigint }[]> {
  const first = await listOffsets(asked, earliest, "committedOnly");
  const end = await listOffsets(asked, latest, "committedOnly");
  return asked.indexes.map((index, i) => ({ index, first: first[i]!.offset, end: end[i]!.offset }));
}

/** When the first record of the topic's partitions was written, as Kafka knows it; null where all of them are empty. */
export async function oldestOf(link: Link, name: string, signal: AbortSignal): Promise<Date | null> {
  const times = await persist(link, signal, () => atLeaders(link, name, signal, timesAt));
  return times.length === 0 ? null : new Date(Math.min(...times));
}

/** Asks the leader of each of the topic's partitions. */
async function atLeaders<T>(
  link: Link,
  name: string,
  signal: AbortSignal,
  ask: (asked: Asked) => Promise<readonly T[]>,
): Promise<readonly T[]> {
  const { topics, brokers } = await link.look([name], signal);
  const topic = topics.get(name) ?? absent(link.shown, name);
  if (topic instanceof Error) throw topic;
  const led = topic.partitions.map(({ leader }, index) => ({ leader, index }));
  const found: T[] = [];
  for (const [leader, own] of grouped(led, (partition) => String(partition.leader))) {
    const address = brokers.get(Number(leader));
    if (address === undefined) throw new KafkaRefusal(codes.LEADER_NOT_AVAILABLE, `${link.shown}, topic ${name}`);
    const indexes = own.map(({ index }) => index);
    const asked = { shown: link.shown, topic: name, indexes };
    found.push(...(await askAt(link, address, signal, (connection) => ask({ ...asked, connection }))));
  }
  return found;
}

/** For each partition with records, the time of its first; 0 where that record has none, or where the broker does not find it. */
async function timesAt(asked: Asked): Promise<readonly number[]> {
  // In this order: what retention removes in between makes the answer too old, and never too young.
  const timed = await listOffsets(asked, anyTime, "all");
  const first = await listOffsets(asked, earliest, "all");
  const end = await listOffsets(asked, latest, "all");
  return timed.flatMap(({ offset, timestamp }, i) => {
    const from = first[i]!.offset;
    if (from >= end[i]!.offset) return [];
    return offset < 0n || offset > from ? [0] : [Math.min(Number(timestamp), maxDateMs)];
  });
}
