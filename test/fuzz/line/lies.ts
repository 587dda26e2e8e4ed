import type { Chance } from "../chance.ts";
import type { Frame, LineName } from "./frames.ts";

const mib = 1024 * 1024;

/** `earlier`: the last frames of the same connection. */
type Lie = (frame: Frame, chance: Chance, name: LineName, earlier: readonly Frame[]) => Iterable<Buffer>;

/** The head of a frame of this kind whose body has so many bytes. */
function headFor(name: LineName, { bytes, head }: Frame, length: number): Buffer {
  const copy = Buffer.from(bytes.subarray(0, head));
  if (name === "postgres") copy.writeUInt32BE(4 + length, 1);
  else if (name === "mariadb") copy.writeUIntLE(Math.min(length, 0xffffff), 0, 3);
  else if (name === "kafka") copy.writeUInt32BE(4 + length, 0);
  else if (name === "rabbitmq") copy.writeUInt32BE(length, 3);
  else return Buffer.from(copy.toString("latin1").replace(/\d+\r\n$/, `${length}\r\n`), "latin1");
  return copy;
}

const endOf = (name: LineName, { bytes, head }: Frame): Buffer => {
  if (name === "rabbitmq") return Buffer.from([0xce]);
  return (name === "nats" || name === "redis") && bytes.length > head ? Buffer.from("\r\n") : Buffer.alloc(0);
};

/** The frame with another body, in a whole head. */
const framed = (name: LineName, frame: Frame, body: Buffer): Buffer =>
  Buffer.concat([headFor(name, frame, body.length), body, endOf(name, frame)]);
const bodyOf = (name: LineName, frame: Frame): Buffer => frame.bytes.subarray(frame.head, frame.bytes.length - endOf(name, frame).length);

/** What no server answers. The frames are whole, and what they hold is not what was asked for. */
export const lies: Readonly<Record<string, Lie>> = {
  *"other bytes"(frame, chance, name) {
    const body = Buffer.from(bodyOf(name, frame));
    for (let n = 1 + chance.below(4); n > 0 && body.length > 0; n--) body[chance.below(body.length)] = chance.below(256);
    yield framed(name, frame, body);
  },
  *"a high number"(frame, chance, name) {
    const body = Buffer.from(bodyOf(name, frame));
    if (body.length >= 4) body.writeUInt32BE(chance.pick([0x7fffffff, 0xffffffff, 0x80000000, 0x10000000]), chance.below(body.length - 3));
    yield framed(name, frame, body);
  },
  *"a short body"(frame, chance, name) {
    const body = bodyOf(name, frame);
    yield framed(name, frame, body.subarray(0, chance.below(body.length + 1)));
  },
  *"a long body"(frame, chance, name) {
    yield framed(name, frame, Buffer.concat([bodyOf(name, frame), Buffer.alloc(1 + chance.below(2_000), chance.below(256))]));
  },
  *"only zeros"(frame, chance, name) {
    yield framed(name, frame, Buffer.alloc(bodyOf(name, frame).length, chance.pick([0, 0xff, 0x31])));
  },
  *"another type"(frame, chance, name) {
    const bytes = Buffer.from(frame.bytes);
    const types: Partial<Record<LineName, string>> = { postgres: "123ACDEGHIKNRSTVWZcdnst", redis: "+-:$*_,#%~>", nats: "M+-PIH" };
    if (name === "mariadb" && bytes.length > 4) bytes[4] = chance.pick([0, 0xff, 0xfe, 0xfb, 1]);
    else bytes[0] = (types[name] ?? "\x01\x02\x03\x08").charCodeAt(chance.below((types[name] ?? "1234").length));
    yield bytes;
  },
  *"another's answer"(frame, chance, _, earlier) {
    yield chance.pick([...earlier, frame]).bytes;
  },
  *again({ bytes }, chance) {
    for (let n = 2 + chance.below(3); n > 0; n--) yield bytes;
  },
  *nothing() {
    // the frame is missing, and the next one comes
  },
  *"deep things"(frame, chance, name) {
    const depth = chance.pick([100, 10_000, 200_000]);
    if (name === "redis") yield Buffer.from("*1\r\n".repeat(depth));
    else if (name === "rabbitmq")
      yield framed(name, frame, Buffer.concat([bodyOf(name, frame).subarray(0, 4), deepTable(Math.min(depth, 10_000))]));
    else yield framed(name, frame, Buffer.from(`{"type":${'{"a":['.repeat(depth)}`));
  },
  *"many of it"({ bytes }, chance) {
    const most = chance.pick([1, 64]) * mib;
    const block = Buffer.concat(Array.from({ length: Math.ceil(mib / 4 / bytes.length) }, () => bytes));
    for (let sent = 0; sent < most; sent += block.length) yield block;
  },
  *"an endless one"(frame, chance, name) {
    yield headFor(name, frame, chance.pick([64 * mib, 1_000 * mib]));
    const block = Buffer.alloc(mib / 4, 0x61);
    for (let sent = 0; sent < 256 * mib; sent += block.length) yield block;
  },
};

/** An AMQP table in a table in a table. */
function deepTable(depth: number): Buffer {
  const parts = [];
  for (let n = depth; n > 0; n--) {
    const head = Buffer.from([0, 0, 0, 0, 1, 0x61, 0x46]);
    head.writeUInt32BE(n * 7 - 4);
    parts.push(head);
  }
  return Buffer.concat(parts);
}

/** What something else says that took the address. */
export function nonsense(chance: Chance): Iterable<Buffer> {
  return chance.pick<Iterable<Buffer>>([
    [Buffer.from("HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\n\r\n<html><body>undefined</body></html>")],
    [Buffer.from("SSH-2.0-OpenSSH_9.6\r\n")],
    [Buffer.from("\u0015\u0003\u0003\u0000\u0002\u0002\u0046", "latin1")], // TLS
    [Buffer.from(Array.from({ length: 4_000 }, () => chance.below(256)))],
    [Buffer.alloc(100_000)],
    [Buffer.alloc(100_000, 0xff)],
    endless(),
    [],
  ]);
}

function* endless(): Iterable<Buffer> {
  const block = Buffer.alloc(mib / 4, 0x20);
  for (let sent = 0; sent < 256 * mib; sent += block.length) yield block;
}
