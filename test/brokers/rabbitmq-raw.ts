import type { Channel } from "amqplib";

/** The channel as the client has it inside. It would refuse, or overflow on, what is hostile: frames are made by hand. */
interface Inner {
  readonly ch: number;
  readonly connection: { readonly frameMax: number; readonly channels: readonly { readonly buffer: { write(bytes: Buffer): boolean } }[] };
}

const flags = { contentType: 0x8000, headers: 0x2000, messageId: 0x80 } as const;

export interface RawProperties {
  readonly contentType?: string | Buffer;
  /** The fields of the table, already encoded: see `field`. */
  readonly headers?: readonly Buffer[];
  readonly messageId?: string | Buffer;
  /** All of them as AMQP writes them, from their flags on, instead. */
  readonly bytes?: Buffer;
}

export const long = (bytes: Buffer | string): Buffer => {
  const content = Buffer.from(bytes as string);
  return Buffer.concat([uint32(content.length), content]);
};
export const short = (bytes: Buffer | string): Buffer => {
  const content = Buffer.from(bytes as string);
  return Buffer.concat([Buffer.from([content.length]), content]);
};
function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

/** One field of a table: its name, the type's letter, and the value as AMQP writes it. */
export const field = (name: string | Buffer, tag: string, value: Buffer = Buffer.alloc(0)): Buffer =>
  Buffer.concat([short(name), Buffer.from(tag), value]);
export const text = (name: string | Buffer, value: string | Buffer): Buffer => field(name, "S", long(value));

/** A table in a table in a table. */
export function nested(name: string, depth: number): Buffer {
  let inner: Buffer = text("end", "x");
  for (let n = 1; n < depth; n++) inner = field("t", "F", long(inner));
  return field(name, "F", long(inner));
}

/** An array in an array in an array. */
export function nestedArrays(name: string, depth: number): Buffer {
  let inner: Buffer = Buffer.from("V");
  for (let n = 1; n < depth; n++) inner = Buffer.concat([Buffer.from("A"), long(inner)]);
  return field(name, "A", long(inner));
}

/** The content header behind class, weight and size. */
export function propertiesOf({ contentType, headers, messageId, bytes }: RawProperties): Buffer {
  if (bytes !== undefined) return bytes;
  const set = (contentType && flags.contentType) || 0;
  const bits = set | (headers ? flags.headers : 0) | (messageId === undefined ? 0 : flags.messageId);
  return Buffer.concat([
    Buffer.from([bits >> 8, bits & 0xff]),
    ...(contentType === undefined ? [] : [short(contentType)]),
    ...(headers === undefined ? [] : [long(Buffer.concat(headers))]),
    ...(messageId === undefined ? [] : [short(messageId)]),
  ]);
}

/** Publishes it in frames of our own making. */
export function publishRaw(channel: Channel, exchange: string, routingKey: string | Buffer, properties: RawProperties, body: Buffer): void {
  const { ch, connection } = channel as unknown as Inner;
  const { buffer } = connection.channels[ch]!;
  const frame = (type: number, payload: Buffer): Buffer =>
    Buffer.concat([Buffer.from([type, ch >> 8, ch & 0xff]), long(payload), Buffer.from([0xce])]);
  const size = Buffer.alloc(12);
  size.writeUInt16BE(60, 0);
  size.writeBigUInt64BE(BigInt(body.length), 4);
  buffer.write(frame(1, Buffer.concat([Buffer.from([0, 60, 0, 40, 0, 0]), short(exchange), short(routingKey), Buffer.from([0])])));
  buffer.write(frame(2, Buffer.concat([size, propertiesOf(properties)])));
  for (let at = 0; at < body.length; at += connection.frameMax - 8) buffer.write(frame(3, body.subarray(at, at + connection.frameMax - 8)));
}
