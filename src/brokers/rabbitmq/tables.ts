import { isUtf8 } from "node:buffer";

/** A value of a header table. Times and decimals are texts, as are whole numbers that JavaScript cannot hold. */
export type TableValue = string | number | boolean | null | readonly TableValue[] | { readonly [name: string]: TableValue };

/** Everything that a message carries besides its body. */
export interface Properties {
  readonly contentType?: string;
  readonly messageId?: string;
  readonly headers: readonly (readonly [name: string, value: TableValue])[];
  /** How many values the tables have, nested ones included. */
  readonly values: number;
  /** Names of headers whose text is not UTF-8: the decoded text differs from what the publisher wrote. */
  readonly garbled: readonly string[];
  /** Why the properties could not be read. Then no other field but `raw` can be trusted. */
  readonly wrong: string | null;
  /** The bytes as they came. */
  readonly raw: Buffer;
}

/** The server carries tables of any depth, and a decoder that follows them all overflows its stack. */
const maxDepth = 32;
/** A value may be one byte in a frame and takes a hundred times that in memory. An event of an outbox has fewer: their headers take 60,000 bytes at most. */
const maxValues = 10_000;

const has = { contentType: 0x8000, contentEncoding: 0x4000, headers: 0x2000, deliveryMode: 0x1000, priority: 0x800 } as const;
const texts = { correlationId: 0x400, replyTo: 0x200, expiration: 0x100 } as const;
const messageId = 0x80;

/** The properties of a content header, which begin with their flags. Never throws. */
export function propertiesOf(raw: Buffer): Properties {
  const cursor = cursorOf(raw);
  let type: string | undefined;
  let headers: Properties["headers"] = [];
  let id: string | undefined;
  let wrong: string | null = null;
  try {
    const flags = raw.readUInt16BE(0);
    if (flags & has.contentType) type = short(cursor);
    if (flags & has.contentEncoding) short(cursor);
    if (flags & has.headers) headers = fields(inside(cursor), 1);
    if (flags & has.deliveryMode) cursor.at += 1;
    if (flags & has.priority) cursor.at += 1;
    for (const bit of Object.values(texts)) if (flags & bit) short(cursor);
    if (flags & messageId) id = short(cursor);
  } catch (error) {
    wrong = error instanceof Beyond ? error.message : "its headers are not as AMQP writes them";
  }
  return {
    ...(type === undefined ? {} : { contentType: type }),
    ...(id === undefined ? {} : { messageId: id }),
    headers: wrong === null ? headers : [],
    values: wrong === null ? cursor.found.values : 0,
    garbled: cursor.found.garbled,
    wrong,
    raw,
  };
}

/** The bytes that identify a message when it is redelivered: its properties without the headers that the server adds on the way. */
export function lasting(raw: Buffer): readonly Buffer[] {
  try {
    const cursor = cursorOf(raw);
    const flags = raw.readUInt16BE(0);
    if (flags & has.contentType) short(cursor);
    if (flags & has.contentEncoding) short(cursor);
    if (!(flags & has.headers)) return [raw];
    const parts = [raw.subarray(2, cursor.at)];
    const table = inside(cursor);
    // All headers between two of the server's are one part: there may be thousands.
    let from = table.at;
    while (table.at < table.end) {
      const before = table.at;
      const name = short(table);
      skip(table);
      if (!name.startsWith("x-")) continue;
      if (from < before) parts.push(raw.subarray(from, before));
      from = table.at;
    }
    return [...parts, raw.subarray(from, table.end), raw.subarray(cursor.at)];
  } catch {
    return [raw];
  }
}

interface Cursor {
  readonly bytes: Buffer;
  at: number;
  readonly end: number;
  /** Collected over all tables of the message. */
  readonly found: { values: number; readonly garbled: string[] };
}

const cursorOf = (raw: Buffer): Cursor => ({ bytes: raw, at: 2, end: raw.length, found: { values: 0, garbled: [] } });

/** Thrown beyond our own bounds. Each error is created once: a flood of such messages must not cost a stack trace each. */
class Beyond extends RangeError {}
const tooDeep = new Beyond(`its headers are nested more than ${maxDepth} deep`);
const tooMany = new Beyond(`its headers have more than ${maxValues} values`);

/** Advances by so many bytes, and returns where they begin. */
function past(cursor: Cursor, bytes: number): number {
  const from = cursor.at;
  if (from + bytes > cursor.end) throw new RangeError("beyond the end");
  cursor.at = from + bytes;
  return from;
}

function short(cursor: Cursor): string {
  const length = cursor.bytes[past(cursor, 1)]!;
  const from = past(cursor, length);
  return cursor.bytes.toString("utf8", from, cursor.at);
}

function long(cursor: Cursor): Buffer {
  const length = cursor.bytes.readUInt32BE(past(cursor, 4));
  const from = past(cursor, length);
  return cursor.bytes.subarray(from, cursor.at);
}

/** A cursor over the next length-prefixed part. The outer cursor moves past that part. */
function inside(cursor: Cursor): Cursor {
  const length = cursor.bytes.readUInt32BE(past(cursor, 4));
  const from = past(cursor, length);
  return { bytes: cursor.bytes, at: from, end: cursor.at, found: cursor.found };
}

function fields(cursor: Cursor, depth: number): [string, TableValue][] {
  if (depth > maxDepth) throw tooDeep;
  const found: [string, TableValue][] = [];
  while (cursor.at < cursor.end) {
    const name = short(cursor);
    found.push([name, valueOf(cursor, depth, name)]);
  }
  return found;
}

function list(cursor: Cursor, depth: number): readonly TableValue[] {
  if (depth > maxDepth) throw tooDeep;
  const found: TableValue[] = [];
  while (cursor.at < cursor.end) found.push(valueOf(cursor, depth, ""));
  return found;
}

function valueOf(cursor: Cursor, depth: number, name: string): TableValue {
  const { bytes, found } = cursor;
  if ((found.values += 1) > maxValues) throw tooMany;
  const tag = String.fromCharCode(bytes[past(cursor, 1)]!);
  switch (tag) {
    case "S":
    case "x": {
      const content = long(cursor);
      const text = content.toString();
      if (depth === 1 && text.includes("\ufffd") && !isUtf8(content)) found.garbled.push(name);
      return text;
    }
    case "F":
      return Object.fromEntries(fields(inside(cursor), depth + 1));
    case "A":
      return list(inside(cursor), depth + 1);
    case "V":
      return null;
    case "t":
      return bytes[past(cursor, 1)] !== 0;
    case "b":
      return bytes.readInt8(past(cursor, 1));
    case "B":
      return bytes.readUInt8(past(cursor, 1));
    case "s":
      return bytes.readInt16BE(past(cursor, 2));
    case "u":
      return bytes.readUInt16BE(past(cursor, 2));
    case "I":
      return bytes.readInt32BE(past(cursor, 4));
    case "i":
      return bytes.readUInt32BE(past(cursor, 4));
    case "l":
      return whole(bytes.readBigInt64BE(past(cursor, 8)));
    case "f":
      return bytes.readFloatBE(past(cursor, 4));
    case "d":
      return bytes.readDoubleBE(past(cursor, 8));
    case "D":
      return decimal(bytes[past(cursor, 1)]!, bytes.readUInt32BE(past(cursor, 4)));
    case "T": {
      const seconds = bytes.readBigUInt64BE(past(cursor, 8));
      return seconds <= lastSecond ? new Date(Number(seconds) * 1_000).toISOString() : whole(seconds);
    }
    default:
      throw new RangeError("no type of AMQP");
  }
}

/** Widths of the types that have no length of their own. */
const widths: Readonly<Record<string, number>> = { V: 0, t: 1, b: 1, B: 1, s: 2, u: 2, I: 4, i: 4, f: 4, D: 5, l: 8, d: 8, T: 8 };

function skip(cursor: Cursor): void {
  const tag = String.fromCharCode(cursor.bytes[past(cursor, 1)]!);
  if ("SxFA".includes(tag)) long(cursor);
  else past(cursor, widths[tag] ?? Infinity);
}

/** The last second that a JavaScript Date can hold. */
const lastSecond = 8_640_000_000_000n;

const whole = (value: bigint): number | string =>
  value >= Number.MIN_SAFE_INTEGER && value <= Number.MAX_SAFE_INTEGER ? Number(value) : String(value);

function decimal(places: number, digits: number): string {
  const text = String(digits).padStart(places + 1, "0");
  return places === 0 ? text : `${text.slice(0, -places)}.${text.slice(-places)}`;
}
