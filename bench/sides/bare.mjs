// The broker's own client publishes without a database: the same messages, with the same headers and as many in flight.
import { Buffer } from "node:buffer";
import { openBroker, topicOf } from "./brokers.mjs";
import { data, messages, pump } from "./message.mjs";
import { measured } from "./measure.mjs";

/** Each resolves to a function that sends `count` messages and resolves when the broker has acknowledged them. */
export const clients = {
  async nats(task) {
    const [{ connect, headers }, { jetstream }] = [await import("@nats-io/transport-node"), await import("@nats-io/jetstream")];
    const js = jetstream(await connect({ servers: task.brokerUrl }));
    const publish = ({ id, attributes }) => {
      const head = headers();
      for (const [name, value] of Object.entries(attributes)) head.append(`ce-${name}`, value);
      return js.publish(topicOf(task), data, { headers: head, msgID: id });
    };
    return (count) => Promise.all(messages(task, count).map(publish));
  },

  async redis(task) {
    const { Redis } = await import("ioredis");
    const client = new Redis(task.brokerUrl);
    return async (count) => {
      const pipeline = client.pipeline();
      for (const { attributes } of messages(task, count)) {
        const fields = Object.entries(attributes).flatMap(([name, value]) => [`ce_${name}`, value]);
        pipeline.xadd(topicOf(task), "*", ...fields, "data", data);
      }
      for (const [error] of await pipeline.exec()) if (error !== null) throw error;
    };
  },

  async rabbitmq(task) {
    const { connect } = await import("amqplib");
    const channel = await (await connect(task.brokerUrl)).createConfirmChannel();
    const publish = ({ id, attributes: { datacontenttype: contentType, ...rest } }) =>
      new Promise((resolve, reject) => {
        const headers = Object.fromEntries(Object.entries(rest).map(([name, value]) => [`cloudEvents:${name}`, value]));
        const options = { headers, contentType, messageId: id, type: rest.type, timestamp: 1, persistent: true, mandatory: true };
        channel.publish("waybill", topicOf(task), data, options, (error) => (error === null ? resolve() : reject(error)));
      });
    return (count) => Promise.all(messages(task, count).map(publish));
  },

  async kafka(task) {
    const { Producer } = await import("@platformatic/kafka");
    // Without idempotence, several sends may be in flight: this is the most that the client can do.
    const producer = new Producer({ clientId: "bench", bootstrapBrokers: [new URL(task.brokerUrl).host], acks: -1, maxInflights: 10 });
    const topic = topicOf(task);
    return (count) =>
      producer.send({
        messages: messages(task, count).map(({ key, attributes }) => {
          const headers = new Map(Object.entries(attributes).map(([name, value]) => [Buffer.from(`ce_${name}`), Buffer.from(value)]));
          return { topic, key: Buffer.from(key), value: data, headers };
        }),
      });
  },
};

/** Sends one aggregate's share in order: each message waits for the previous acknowledgement. `pump` sends the rest at the same time. */
async function oneByOne(total, share, send) {
  const hot = Math.round(total * share);
  const each = async () => {
    for (let sent = 0; sent < hot; sent++) await send(1);
  };
  await Promise.all([each(), pump(total - hot, send)]);
}

export default async function bare(task) {
  const broker = await openBroker(task); // creates the topic
  await broker[Symbol.asyncDispose]();
  const send = await clients[task.broker](task);
  const publish = task.hot > 0 ? (total) => oneByOne(total, task.hot, send) : (total) => pump(total, send);
  await publish(Math.ceil(task.events / 10));
  return measured({ ...task, processes: { ...task.processes, database: null } }, () => publish(task.events));
}
