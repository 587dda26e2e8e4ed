import type { ChannelModel } from "amqplib";
import type { Message } from "./messages.ts";

const frameMax = 131_072;

interface Inside {
  readonly connection: { readonly stream: { write(bytes: Buffer): boolean } };
}

/** A basic.publish whose frames are made by hand, on a channel of the client's in confirm mode. */
export async function publishAmqp(connection: ChannelModel, topic: string, message: Message, exchange = "waybill"): Promise<void> {
  const channel = await connection.createConfirmChannel();
  const closed = new Promise<never>((_, reject) => {
    channel.on("error", reject);
    connection.on("error", reject);
    connection.on("close", () => reject(new Error("the server closed the connection")));
  });
  closed.catch(() => undefined);
  const confirmed = new Promise<void>((resolve, reject) => {
    channel.on("ack", () => resolve());
    channel.on("nack", () => reject(new Error("the server refused the message")));
  });
  const number = (channel as unknown as { ch: number }).ch;
  const frames = framesOf(number, exchange, topic, message);
  if (frames === null) throw new Error("the headers do not fit into a frame");
  (connection as unknown as Inside).connection.stream.write(frames);
  const late = new Promise<never>((_, reject) => setTimeout(() => reject(new Error("no confirm within 5 s")), 5_000).unref());
  await Promise.race([confirmed, closed, late]);
}

function framesOf(channel: number, exchange: string, topic: string, { attributes, headers, data, raw }: Message): Buffer | null {
  const own = [
    ...attributes.filter(([name]) => name !== "datacontenttype").map(([name, value]) => [`cloudEvents:${name}`, value] as const),
    ...headers,
  ];
  const table = raw?.bytes ?? Buffer.concat(own.flatMap(([name, value]) => text(name, value)));
  const contentType = attributes.find(([name]) => name === "datacontenttype")?.[1];
  const body = data ?? Buffer.alloc(0);
  // Content type is flag 15, headers 13, delivery mode 12.
  const flags = (raw === null && contentType !== undefined ? 1 << 15 : 0) | (1 << 13) | (1 << 12);
  const properties = Buffer.concat([...(flags & (1 << 15) ? [short(contentType!)] : []), u32(table.length), table, Buffer.from([2])]);
  const method = Buffer.concat([u16(60), u16(40), u16(0), short(exchange), short(topic), Buffer.from([0])]);
  const head = Buffer.concat([u16(60), u16(0), u64(body.length), u16(flags), properties]);
  if (head.length > frameMax - 8) return null;
  const bodies = Array.from({ length: Math.ceil(body.length / (frameMax - 8)) }, (_, n) =>
    body.subarray(n * (frameMax - 8), (n + 1) * (frameMax - 8)),
  );
  return Buffer.concat([frame(1, channel, method), frame(2, channel, head), ...bodies.map((part) => frame(3, channel, part))]);
}

const frame = (type: number, channel: number, payload: Buffer): Buffer =>
  Buffer.concat([Buffer.from([type]), u16(channel), u32(payload.length), payload, Buffer.from([0xce])]);
const short = (value: string): Buffer => {
  const bytes = Buffer.from(value).subarray(0, 255);
  return Buffer.concat([Buffer.from([bytes.length]), bytes]);
};
const text = (name: string, value: string): Buffer[] => [short(name), Buffer.from("S"), u32(Buffer.byteLength(value)), Buffer.from(value)];
const u16 = (n: number): Buffer => Buffer.from([n >>> 8, n & 255]);
const u32 = (n: number): Buffer => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(n);
  return bytes;
};
const u64 = (n: number): Buffer => {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64BE(BigInt(n));
  return bytes;
};
