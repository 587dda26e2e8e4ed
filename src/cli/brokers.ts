import { kafka } from "../brokers/kafka/index.ts";
import { nats } from "../brokers/nats/index.ts";
import { rabbitmq } from "../brokers/rabbitmq/index.ts";
import { redis } from "../brokers/redis/index.ts";
import { WaybillError } from "../core/errors.ts";
import type { OpenedBroker } from "./opened.ts";
import type { Url } from "./url.ts";

export function openKafka(url: Url): OpenedBroker {
  const broker = kafka({ url: url.text });
  return {
    sink: broker,
    async provision(topics, consumers) {
      if (consumers.length > 0)
        throw new WaybillError("USAGE", "--consumers: Kafka makes a consumer's group when it first reads; leave it out");
      await broker.provision(topics);
    },
    purge: () => own("a Kafka topic deletes by its own limits: set retention.ms on the topic"),
    [Symbol.asyncDispose]: () => broker[Symbol.asyncDispose](),
  };
}

export function openRabbitmq(url: Url, _create: boolean, management: string | undefined): OpenedBroker {
  const broker = rabbitmq({ url: url.text, ...(management === undefined ? {} : { management }) });
  return {
    sink: broker,
    provision: (topics, consumers) => broker.provision(topics, consumers),
    purge: () => own("RabbitMQ keeps no message that every consumer has acknowledged"),
    [Symbol.asyncDispose]: () => broker[Symbol.asyncDispose](),
  };
}

export function openNats(url: Url): OpenedBroker {
  const broker = nats({ url: url.text });
  return {
    sink: broker,
    provision: (topics, consumers) => broker.provision(topics, consumers),
    purge: () => own("a JetStream stream deletes by its own limits: set max_age on the stream"),
    [Symbol.asyncDispose]: () => broker[Symbol.asyncDispose](),
  };
}

export function openRedis(url: Url): OpenedBroker {
  const broker = redis({ url: url.text });
  return {
    sink: broker,
    provision: (topics, consumers) => broker.provision(topics, consumers),
    async purge(before, topics) {
      if (topics.length === 0) throw new WaybillError("USAGE", "--topics A,B is needed: Redis does not tell streams from other keys");
      return broker.purge(before, topics);
    },
    [Symbol.asyncDispose]: () => broker[Symbol.asyncDispose](),
  };
}

const own = (why: string): Promise<never> => Promise.reject(new WaybillError("UNSUPPORTED", why));
