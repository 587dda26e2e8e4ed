import { connect } from "node:net";
import type { StoredMessage } from "../../src/conformance/sink.ts";

export interface At {
  readonly host: string;
  readonly port: number;
}

const at = (url: string): At => {
  const { hostname: host, port } = new URL(url.replace(/^kafka/, "http"));
  return { host, port: Number(port) };
};

/** Kafka's protocol in its oldest versions that brokers still take, by hand: nothing of the adapter and nothing of its client. */
async function ask(where: At, key: number, version: number, body: Buffer): Promise<Reader> {
  const request = Buffer.concat([i16(key), i16(version), i32(7), text("raw"), body]);
  return new Promise((resolve, reject) => {
    const socket = connect(where);
    const parts: Buffer[] = [];
    socket.setTimeout(10_000, () => socket.destroy(new Error(`no answer to request ${key} within 10 s`)));
    socket.on("data", (data) => {
      parts.push(data);
      const all = Buffer.concat(parts);
      if (all.length < 4 || all.length < 4 + all.readInt32BE(0)) return;
      resolve(reader(all.subarray(8)));
      socket.destroy();
    });
    socket.on("error", reject);
    socket.on("close", () => reject(new Error(`the broker closed the connection on request ${key}`)));
    socket.write(Buffer.concat([i32(request.length), request]));
  });
}

const i8 = (n: number): Buffer => Buffer.from([n]);
const i16 = (n: number): Buffer => {
  const bytes = Buffer.alloc(2);
  bytes.writeInt16BE(n);
  return bytes;
};
const i32 = (n: number): Buffer => {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(n);
  return bytes;
};
const i64 = (n: bigint): Buffer => {
  const bytes = Buffer.alloc(8);
  bytes.writeBigInt64BE(n);
  return bytes;
};
const text = (value: string): Buffer => Buffer.concat([i16(Buffer.byteLength(value)), Buffer.from(value)]);
const list = (items: readonly Buffer[]): Buffer => Buffer.concat([i32(items.length), ...items]);

type Reader = ReturnType<typeof reader>;

function reader(bytes: Buffer) {
  let at = 0;
  const step = (n: number): number => (at += n) - n;
  const varint = (): number => {
    let [value, factor] = [0, 1];
    for (let byte = 128; byte >= 128; factor *= 128) {
      byte = bytes[step(1)]!;
      value += (byte & 127) * factor;
    }
    return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
  };
  const take = (length: number): Buffer => bytes.subarray(at, step(length) + length);
  const self = {
    i8: () => bytes.readInt8(step(1)),
    i16: () => bytes.readInt16BE(step(2)),
    i32: () => bytes.readInt32BE(step(4)),
    i64: () => bytes.readBigInt64BE(step(8)),
    text: (): string => {
      const length = self.i16();
      return length < 0 ? "" : take(length).toString();
    },
    list: <T>(item: () => T): T[] => Array.from({ length: Math.max(0, self.i32()) }, item),
    varint,
    sized: (): Buffer | null => {
      const length = varint();
      return length < 0 ? null : take(length);
    },
    take,
    get left() {
      return bytes.length - at;
    },
  };
  return self;
}

/** The leaders of a topic's partitions. */
export async function leadersOf(url: string, topic: string): Promise<readonly At[] | "no topic" | "no leader"> {
  const r = await ask(at(url), 3, 1, list([text(topic)]));
  const brokers = new Map(
    r.list(() => {
      const [id, host, port] = [r.i32(), r.text(), r.i32()];
      r.text();
      return [id, { host, port }] as const;
    }),
  );
  r.i32();
  const [found] = r.list(() => {
    const code = r.i16();
    r.text();
    r.i8();
    const partitions = r.list(() => {
      r.i16();
      const [index, leader] = [r.i32(), r.i32()];
      r.list(() => r.i32());
      r.list(() => r.i32());
      return { index, leader };
    });
    const leaders = partitions.sort((a, b) => a.index - b.index).map(({ leader }) => brokers.get(leader));
    if (code === noTopic) return "no topic";
    return code === 0 && leaders.every((leader) => leader !== undefined) ? leaders : "no leader";
  });
  return found ?? "no topic";
}

const noTopic = 3;
const leaderMs = 15_000;

/** A server that was frozen, or was kept from its heartbeat by a busy machine, leads no partition for a moment. */
async function ledBy(url: string, topic: string): Promise<readonly At[] | "no topic"> {
  for (const end = Date.now() + leaderMs; ;) {
    const leaders = await leadersOf(url, topic);
    if (leaders !== "no leader") return leaders;
    if (Date.now() > end) throw new Error(`a partition of ${topic} has had no leader for ${leaderMs} ms`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

export async function makeTopic(
  url: string,
  topic: string,
  partitions: number,
  settings: Readonly<Record<string, string>> = {},
): Promise<void> {
  const configs = list(Object.entries(settings).map(([name, value]) => Buffer.concat([text(name), text(value)])));
  const body = Buffer.concat([text(topic), i32(partitions), i16(1), list([]), configs]);
  const r = await ask(at(url), 19, 2, Buffer.concat([list([body]), i32(10_000), i8(0)]));
  r.i32();
  const [code] = r.list(() => (r.text(), r.i16()));
  if (code !== 0 && code !== 36) throw new Error(`topic ${topic} was not made: error ${code}`);
  while (!Array.isArray(await leadersOf(url, topic))) await new Promise((resolve) => setTimeout(resolve, 20));
}

export async function removeTopic(url: string, topic: string): Promise<void> {
  const r = await ask(at(url), 20, 1, Buffer.concat([list([text(topic)]), i32(10_000)]));
  r.i32();
  const [code] = r.list(() => (r.text(), r.i16()));
  if (code !== 0) throw new Error(`topic ${topic} was not removed: error ${code}`);
}

export async function changeTopic(url: string, topic: string, name: string, value: string): Promise<void> {
  const resource = Buffer.concat([i8(2), text(topic), list([Buffer.concat([text(name), i8(0), text(value)])])]);
  const r = await ask(at(url), 44, 0, Buffer.concat([list([resource]), i8(0)]));
  r.i32();
  const [code] = r.list(() => r.i16());
  if (code !== 0) throw new Error(`${name} of ${topic} was not set: error ${code}`);
  // The controller has it; the broker that is asked next learns of it a moment later.
  for (const end = Date.now() + 15_000; (await settingOf(url, topic, name)) !== value;)
    if (Date.now() > end) throw new Error(`${name} of ${topic} was set to ${value}, and the broker does not know it`);
}

async function settingOf(url: string, topic: string, name: string): Promise<string | null> {
  const resource = Buffer.concat([i8(2), text(topic), list([text(name)])]);
  const r = await ask(at(url), 32, 1, Buffer.concat([list([resource]), i8(0)]));
  r.i32();
  const [found] = r.list(() => {
    r.i16();
    r.text();
    r.i8();
    r.text();
    return r.list(() => {
      const value = (r.text(), r.text());
      r.i8();
      r.i8();
      r.i8();
      r.list(() => (r.text(), r.text(), r.i8()));
      return value;
    })[0];
  });
  return found ?? null;
}

/** Writes a batch as it is: see kafka-batch.ts. */
export async function produceRaw(url: string, topic: string, partition: number, batch: Buffer): Promise<void> {
  const leaders = await ledBy(url, topic);
  if (leaders === "no topic") throw new Error(`there is no topic ${topic}`);
  await produceAt(leaders[partition]!, topic, partition, batch, 3);
}

/** Batches in a request of version 3, the message sets from before there were batches in one of version 2. */
export async function produceAt(leader: At, topic: string, partition: number, records: Buffer, version: 2 | 3): Promise<void> {
  const body = Buffer.concat([text(topic), list([Buffer.concat([i32(partition), i32(records.length), records])])]);
  const transaction = version === 3 ? [i16(-1)] : [];
  const r = await ask(leader, 0, version, Buffer.concat([...transaction, i16(-1), i32(10_000), list([body])]));
  let early = false;
  r.list(() => {
    r.text();
    r.list(() => {
      r.i32();
      const code = r.i16();
      early ||= code === notLeader;
      if (code !== 0 && !early) throw new Error(`the batch was not taken: error ${code}`);
      r.take(16);
    });
  });
  if (!early) return;
  await new Promise((resolve) => setTimeout(resolve, 20));
  await produceAt(leader, topic, partition, records, version);
}

/** Removes everything of a partition before an offset, as retention does. */
export async function deleteRecords(url: string, topic: string, partition: number, before: bigint): Promise<void> {
  const leaders = await ledBy(url, topic);
  if (leaders === "no topic") throw new Error(`there is no topic ${topic}`);
  const body = Buffer.concat([text(topic), list([Buffer.concat([i32(partition), i64(before)])])]);
  const r = await ask(leaders[partition]!, 21, 0, Buffer.concat([list([body]), i32(10_000)]));
  r.i32();
  r.list(() => {
    r.text();
    r.list(() => {
      r.take(12);
      const code = r.i16();
      if (code !== 0) throw new Error(`records of ${topic} were not deleted: error ${code}`);
    });
  });
}

export interface RawMessage extends StoredMessage {
  readonly partition: number;
  readonly offset: bigint;
}

/** Everything that a topic holds, partition after partition, each in its order; what is not committed too, unless told otherwise. */
export async function readTopic(url: string, topic: string, committed = false): Promise<readonly RawMessage[]> {
  const found: RawMessage[] = [];
  const leaders = await ledBy(url, topic);
  if (leaders === "no topic") return found;
  for (const [partition, leader] of leaders.entries()) {
    for (let next: bigint | null = 0n; next !== null;) {
      const { messages, last } = await fetch(leader, topic, partition, next, committed);
      found.push(...messages.filter(({ offset }) => offset >= next!));
      next = last === null ? null : last + 1n;
    }
  }
  return found;
}

interface Fetched {
  readonly messages: readonly RawMessage[];
  /** Null at the end. */
  readonly last: bigint | null;
}

async function fetch(leader: At, topic: string, partition: number, from: bigint, committed: boolean): Promise<Fetched> {
  const most = i32(16 * 1024 * 1024);
  const body = Buffer.concat([text(topic), list([Buffer.concat([i32(partition), i64(from), most])])]);
  const r = await ask(leader, 1, 4, Buffer.concat([i32(-1), i32(0), i32(0), most, i8(committed ? 1 : 0), list([body])]));
  r.i32();
  const messages: RawMessage[] = [];
  let last: bigint | null = null;
  let early = false;
  r.list(() => {
    r.text();
    r.list(() => {
      r.i32();
      const code = r.i16();
      early = code === notLeader;
      if (code !== 0 && !early) throw new Error(`partition ${partition} of ${topic} cannot be read from ${from}: error ${code}`);
      r.i64();
      r.i64();
      let aborted = r.list(() => ({ producer: r.i64(), first: r.i64() }));
      const records = reader(r.take(Math.max(0, r.i32())));
      while (records.left >= 12) {
        const base = records.i64();
        const length = records.i32();
        if (records.left < length) break;
        const batch = batchIn(reader(records.take(length)), base, partition);
        last = batch.last;
        const off = aborted.find(({ producer, first }) => batch.transactional && producer === batch.producer && first <= base);
        if (batch.control) aborted = aborted.filter((one) => one !== off);
        else if (off === undefined) messages.push(...batch.messages);
      }
    });
  });
  if (!early) return { messages, last };
  await new Promise((resolve) => setTimeout(resolve, 20));
  return fetch(leader, topic, partition, from, committed);
}

/** Of a topic that was made just now, its leader may not know yet. */
const notLeader = 6;

function batchIn(r: Reader, base: bigint, partition: number) {
  r.take(4 + 1 + 4);
  const attributes = r.i16();
  const last = base + BigInt(r.i32());
  r.take(16);
  const producer = r.i64();
  r.take(2 + 4);
  const count = r.i32();
  const messages: RawMessage[] = [];
  for (let n = 0; n < count; n++) {
    r.varint();
    r.i8();
    r.varint();
    const offset = base + BigInt(r.varint());
    const key = String(r.sized());
    const data = r.sized() ?? Buffer.from("(null)");
    const headers = Array.from({ length: r.varint() }, () => [String(r.sized()), String(r.sized())] as const);
    messages.push({ partition, offset, key, data, ...sorted(headers) });
  }
  return { last, producer, messages, control: (attributes & 32) !== 0, transactional: (attributes & 16) !== 0 };
}

function sorted(all: readonly (readonly [string, string])[]): Pick<StoredMessage, "attributes" | "headers"> {
  const isAttribute = (name: string): boolean => name.startsWith("ce_") || name === "content-type";
  const own = all
    .filter(([name]) => isAttribute(name))
    .map(([name, value]) => [name === "content-type" ? "datacontenttype" : name.slice(3), value]);
  return {
    attributes: Object.fromEntries(own) as Record<string, string>,
    headers: Object.fromEntries(all.filter(([name]) => !isAttribute(name))),
  };
}

/** How many members the coordinator counts in a group: dead ones that it has not missed yet, too. */
export async function groupSize(url: string, group: string): Promise<number> {
  const r = await ask(at(url), 15, 0, list([text(group)]));
  // One group: its error, name, state, kind and protocol stand before its members.
  const groups = r.i32();
  r.i16();
  for (let texts = 0; texts < 4; texts++) r.text();
  return groups === 0 ? 0 : r.i32();
}
