// The broker on a bare socket: the same bytes on the wire, encoded in advance, and acknowledgements that are only counted.
import { Buffer } from "node:buffer";
import { connect } from "node:net";
import { openBroker, topicOf } from "./brokers.mjs";
import { data, nextMessage, pump } from "./message.mjs";
import { measured } from "./measure.mjs";
import { amqp } from "./raw-amqp.mjs";

/** Each connects and returns `encode`, for a message, and `answers`, which counts the answers in a received chunk. */
const protocols = {
  redis(task) {
    const socket = openSocket(task);
    const fields = (attributes) => Object.entries(attributes).flatMap(([name, value]) => [`ce_${name}`, value]);
    return {
      socket,
      encode: ({ attributes }) => {
        const words = ["XADD", topicOf(task), "*", ...fields(attributes), "data", data.toString()];
        return Buffer.from(`*${words.length}\r\n${words.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`).join("")}`);
      },
      // `$15\r\n1700000000000-0\r\n` each
      answers: counting("$", "-ERR"),
    };
  },

  async nats(task) {
    const socket = openSocket(task);
    await new Promise((resolve) => socket.once("data", resolve));
    socket.write('CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB _INBOX.raw 1\r\n');
    return {
      socket,
      encode: ({ attributes }) => {
        const lines = Object.entries(attributes).map(([name, value]) => `ce-${name}: ${value}\r\n`);
        const head = `NATS/1.0\r\nNats-Msg-Id: ${attributes.id}\r\n${lines.join("")}\r\n`;
        const sizes = `${Buffer.byteLength(head)} ${Buffer.byteLength(head) + data.length}`;
        return Buffer.from(`HPUB ${topicOf(task)} _INBOX.raw ${sizes}\r\n${head}${data.toString()}\r\n`);
      },
      answers: counting("MSG _INBOX.raw", '"error"'),
    };
  },

  rabbitmq: amqp,
};

function openSocket(task) {
  const { hostname, port } = new URL(task.brokerUrl);
  return connect(Number(port), hostname).setNoDelay();
}

/** Counts how often `mark` arrives, also where it is split over two chunks. */
function counting(mark, trouble) {
  let rest = "";
  return (chunk) => {
    const text = rest + chunk.toString("latin1");
    if (text.includes(trouble)) throw new Error(text.slice(text.indexOf(trouble)).slice(0, 200));
    rest = text.slice(text.length - (mark.length - 1));
    return text.split(mark).length - 1;
  };
}

export default async function raw(task) {
  const broker = await openBroker(task);
  await broker[Symbol.asyncDispose]();
  const { socket, encode, answers } = await protocols[task.broker](task);
  const batches = [];
  const encodeAll = (total) =>
    pump(total, async (count) => void batches.push(Buffer.concat(Array.from({ length: count }, () => encode(nextMessage(task))))));
  let [sent, answered] = [0, 0];
  const waiting = [];
  socket.on("data", (chunk) => {
    answered += answers(chunk);
    while (waiting.length > 0 && waiting[0].goal <= answered) waiting.shift().resolve();
  });
  const send = (count) => {
    socket.write(batches.shift());
    sent += count;
    return new Promise((resolve) => waiting.push({ goal: sent, resolve }));
  };
  const warm = Math.ceil(task.events / 10);
  await encodeAll(warm);
  await pump(warm, send);
  await encodeAll(task.events); // before the clock starts
  return measured({ ...task, processes: { ...task.processes, database: null } }, () => pump(task.events, send));
}
