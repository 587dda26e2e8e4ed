import { Cursor } from "./cursor.ts";

/** Which partitions of which topics: the consumers' own part of Kafka's group protocol, in the version that all of them read. */
export type PartitionShare = ReadonlyMap<string, readonly number[]>;

interface Subscriber {
  readonly id: string;
  readonly topics: readonly string[];
}

/** The name that other clients use for this way of sharing. */
export const protocol = "range";

/**
 * Shares each topic on its own, in ranges, among the members that subscribed to it. Topics with equally many partitions give the same ones
 * to the same member, so one process has an aggregate in all of them.
 */
export function share(subscribers: readonly Subscriber[], partitions: ReadonlyMap<string, number>): ReadonlyMap<string, PartitionShare> {
  const shares = new Map(subscribers.map(({ id }) => [id, new Map<string, number[]>()]));
  for (const [topic, count] of partitions) {
    const members = subscribers.filter(({ topics }) => topics.includes(topic)).map(({ id }) => id);
    members.sort();
    let first = 0;
    members.forEach((id, i) => {
      const own = Math.floor(count / members.length) + (i < count % members.length ? 1 : 0);
      if (own > 0)
        shares.get(id)!.set(
          topic,
          Array.from({ length: own }, (_, n) => first + n),
        );
      first += own;
    });
  }
  return shares;
}

export function encodeSubscription(topics: readonly string[]): Buffer {
  return Buffer.concat([version, int(topics.length, 4), ...topics.map(text), noData]);
}

export function decodeSubscription(bytes: Buffer | null): readonly string[] {
  if (bytes === null || bytes.length === 0) return [];
  const cursor = behindVersion(bytes);
  return items(cursor, () => textAt(cursor));
}

export function encodeAssignment(assignment: PartitionShare): Buffer {
  const topics = [...assignment].flatMap(([topic, own]) => [text(topic), int(own.length, 4), ...own.map((index) => int(index, 4))]);
  return Buffer.concat([version, int(assignment.size, 4), ...topics, noData]);
}

export function decodeAssignment(bytes: Buffer | null): PartitionShare {
  if (bytes === null || bytes.length === 0) return new Map();
  const cursor = behindVersion(bytes);
  return new Map(items(cursor, () => [textAt(cursor), items(cursor, () => cursor.int32())] as const));
}

function int(value: number, width: 2 | 4): Buffer {
  const bytes = Buffer.alloc(width);
  bytes.writeIntBE(value, 0, width);
  return bytes;
}

const [version, noData] = [int(0, 2), int(-1, 4)];
const text = (value: string): Buffer => Buffer.concat([int(Buffer.byteLength(value), 2), Buffer.from(value)]);
const textAt = (cursor: Cursor): string => cursor.take(cursor.int16()).toString();

/** Their number, and then each of them. */
function items<T>(cursor: Cursor, item: () => T): readonly T[] {
  const count = cursor.int32();
  const found: T[] = [];
  while (found.length < count) found.push(item());
  return found;
}

function behindVersion(bytes: Buffer): Cursor {
  const cursor = new Cursor(bytes);
  cursor.int16();
  return cursor;
}
