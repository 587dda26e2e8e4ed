/** Which partitions of which topics: the consumers' own part of Kafka's group protocol, in the version that all of them read. */
export type Assignment = ReadonlyMap<string, readonly number[]>;

export interface Subscriber {
  readonly id: string;
  readonly topics: readonly string[];
}

/** As other clients call this way of sharing. */
export const protocol = "range";

/**
 * Each topic for itself, in ranges, to those who asked for it: topics with as many partitions give the same ones to the same member, so
 * that one process has an aggregate in all of them.
 */
export function share(subscribers: readonly Subscriber[], partitions: ReadonlyMap<string, number>): ReadonlyMap<string, Assignment> {
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
  return Buffer.concat([int16(0), int32(topics.length), ...topics.map(text), int32(-1)]);
}

export function decodeSubscription(bytes: Buffer | null): readonly string[] {
  if (bytes === null || bytes.length === 0) return [];
  const read = reader(bytes, 2);
  return Array.from({ length: read.int32() }, () => read.text());
}

export function encodeAssignment(assignment: Assignment): Buffer {
  const topics = [...assignment].map(([topic, own]) => Buffer.concat([text(topic), int32(own.length), ...own.map(int32)]));
  return Buffer.concat([int16(0), int32(topics.length), ...topics, int32(-1)]);
}

export function decodeAssignment(bytes: Buffer | null): Assignment {
  if (bytes === null || bytes.length === 0) return new Map();
  const read = reader(bytes, 2);
  return new Map(
    Array.from({ length: read.int32() }, () => {
      const topic = read.text();
      return [topic, Array.from({ length: read.int32() }, () => read.int32())];
    }),
  );
}

function reader(bytes: Buffer, from: number): { int32(): number; text(): string } {
  let at = from;
  return {
    int32: () => bytes.readInt32BE((at += 4) - 4),
    text() {
      const length = bytes.readInt16BE(at);
      at += 2 + length;
      return bytes.toString("utf8", at - length, at);
    },
  };
}

function int16(value: number): Buffer {
  const bytes = Buffer.alloc(2);
  bytes.writeInt16BE(value);
  return bytes;
}

function int32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(value);
  return bytes;
}

const text = (value: string): Buffer => Buffer.concat([int16(Buffer.byteLength(value)), Buffer.from(value)]);
