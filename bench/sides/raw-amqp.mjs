// As much of AMQP 0-9-1 as one confirm channel needs.
import { Buffer } from "node:buffer";
import { connect } from "node:net";
import { topicOf } from "./brokers.mjs";
import { data } from "./message.mjs";

const u8 = (value) => Buffer.from([value]);
const u16 = (value) => Buffer.from([value >> 8, value & 255]);
const u32 = (value) => Buffer.concat([u16(value >>> 16), u16(value & 0xffff)]);
const u64 = (value) => Buffer.concat([u32(Math.floor(value / 2 ** 32)), u32(value >>> 0)]);
const short = (text) => Buffer.concat([u8(Buffer.byteLength(text)), Buffer.from(text)]);
const long = (bytes) => Buffer.concat([u32(Buffer.byteLength(bytes)), Buffer.from(bytes)]);
const table = (entries) => long(Buffer.concat(entries.map(([name, value]) => Buffer.concat([short(name), Buffer.from("S"), long(value)]))));
const frame = (type, channel, ...parts) => {
  const body = Buffer.concat(parts);
  return Buffer.concat([u8(type), u16(channel), u32(body.length), body, u8(0xce)]);
};
const method = (channel, classId, methodId, ...parts) => frame(1, channel, u16(classId), u16(methodId), ...parts);

const ack = (60 << 16) | 80;
const persistent = 2;
/** Content type, headers, delivery mode, message id, timestamp, type. */
const properties = 0x8000 | 0x2000 | 0x1000 | 0x80 | 0x40 | 0x20;

export async function amqp(task) {
  const { hostname, port, username, password } = new URL(task.brokerUrl);
  const socket = connect(Number(port), hostname).setNoDelay();
  const frames = reader();
  /** Sends, and waits for the method that answers it. */
  const ask = (request, classId, methodId) =>
    new Promise((resolve, reject) => {
      const take = (chunk) => {
        for (const body of frames(chunk)) {
          socket.off("data", take);
          if (body.readUInt16BE(0) === classId && body.readUInt16BE(2) === methodId) resolve();
          else reject(new Error(`RabbitMQ answered ${body.readUInt16BE(0)}.${body.readUInt16BE(2)}: ${body.toString("latin1")}`));
        }
      };
      socket.on("data", take);
      socket.write(request);
    });
  await ask(Buffer.from("AMQP\0\0\x09\x01", "latin1"), 10, 10);
  await ask(method(0, 10, 11, table([]), short("PLAIN"), long(`\0${username}\0${password}`), short("en_US")), 10, 30);
  const tuned = method(0, 10, 31, u16(10), u32(131_072), u16(0));
  await ask(Buffer.concat([tuned, method(0, 10, 40, short("/"), short(""), u8(0))]), 10, 41);
  await ask(method(1, 20, 10, short("")), 20, 11);
  await ask(method(1, 85, 10, u8(0)), 85, 11);
  const pending = new Set();
  let tags = 0;
  const publish = method(1, 60, 40, u16(0), short("waybill"), short(topicOf(task)), u8(1));
  return {
    socket,
    encode: ({ id, attributes: { datacontenttype, ...rest } }) => {
      pending.add(++tags);
      const headers = table(Object.entries(rest).map(([name, value]) => [`cloudEvents:${name}`, value]));
      const values = [short(datacontenttype), headers, u8(persistent), short(id), u64(1), short(rest.type)];
      return Buffer.concat([publish, frame(2, 1, u16(60), u16(0), u64(data.length), u16(properties), ...values), frame(3, 1, data)]);
    },
    answers: (chunk) => {
      let count = 0;
      for (const body of frames(chunk)) {
        if (body.readUInt32BE(0) !== ack) throw new Error(`RabbitMQ said ${body.readUInt16BE(0)}.${body.readUInt16BE(2)}`);
        const tag = Number(body.readBigUInt64BE(4));
        if ((body[12] & 1) === 0) count += pending.delete(tag) ? 1 : 0;
        else
          for (const each of pending)
            if (each <= tag) count += pending.delete(each) ? 1 : 0;
            else break;
      }
      return count;
    },
  };
}

/** Returns the bodies of method frames that have arrived completely. */
function reader() {
  let rest = Buffer.alloc(0);
  return (chunk) => {
    rest = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
    const bodies = [];
    while (rest.length >= 7 && rest.length >= 8 + rest.readUInt32BE(3)) {
      const end = 7 + rest.readUInt32BE(3);
      if (rest[0] === 1) bodies.push(rest.subarray(7, end));
      rest = rest.subarray(end + 1);
    }
    return bodies;
  };
}
