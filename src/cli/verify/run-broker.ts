import { embedded } from "../../brokers/embedded/index.ts";
import { kafka } from "../../brokers/kafka/index.ts";
import { removeGroups } from "../../brokers/kafka/groups.ts";
import { createLink as kafkaLink } from "../../brokers/kafka/link.ts";
import { removeTopics } from "../../brokers/kafka/topics.ts";
import { settingsOf as kafkaSettings } from "../../brokers/kafka/url.ts";
import { createApi } from "../../brokers/nats/api.ts";
import { nats } from "../../brokers/nats/index.ts";
import { createLink as natsLink } from "../../brokers/nats/link.ts";
import { streamName } from "../../brokers/nats/names.ts";
import { settingsOf as natsSettings } from "../../brokers/nats/url.ts";
import { rabbitmq } from "../../brokers/rabbitmq/index.ts";
import { createLinks } from "../../brokers/rabbitmq/link.ts";
import { removeTopology } from "../../brokers/rabbitmq/topology.ts";
import { settingsOf as rabbitmqSettings } from "../../brokers/rabbitmq/url.ts";
import { redis } from "../../brokers/redis/index.ts";
import { createLink as redisLink } from "../../brokers/redis/link.ts";
import { placeOf } from "../../brokers/redis/url.ts";
import type { Sink } from "../../contracts/sink.ts";
import type { Source } from "../../contracts/source.ts";
import { systemClock as clock } from "../../core/clock.ts";
import { asError } from "../../core/errors.ts";
import { brokerUrl } from "../adapters.ts";
import { pathOf } from "../files.ts";
import { fileBeside, removeFile } from "./sqlite-ground.ts";
import type { Place } from "./task.ts";

/** A broker as a run uses it: with topics that it makes, and takes away again. */
export interface RunBroker extends AsyncDisposable {
  readonly broker: Sink & Source;
  provision(topics: readonly string[], consumers: readonly string[]): Promise<void>;
  remove(topics: readonly string[], consumers: readonly string[]): Promise<void>;
}

const never = new AbortController().signal;
const timeoutMs = 2_000;

export function openRunBroker({ broker: text, run }: Pick<Place, "broker" | "run">): RunBroker {
  const url = brokerUrl(text);
  switch (url.scheme) {
    case "embedded": {
      const path = fileBeside(pathOf(url), run);
      const broker = embedded({ path, provision: false });
      return opened(
        broker,
        (topics) => broker.provision(topics),
        async () => removeFile(path),
      );
    }
    case "kafka":
    case "kafkas": {
      const sessionMs = 6_000;
      const broker = kafka({ url: text, timeoutMs, sessionMs });
      return opened(
        broker,
        (topics) => broker.provision(topics),
        async (topics, consumers) => {
          const link = kafkaLink({ settings: kafkaSettings(text), clock, timeoutMs: 5_000 });
          try {
            // Groups are there whether or not their topics are.
            const topicless = await removeTopics(link, topics, never).catch(asError);
            // A member that was killed while it joined goes when that round is over, and then its session.
            await removeGroups(link, consumers, 5 * sessionMs);
            if (topicless instanceof Error) throw topicless;
          } finally {
            link.close();
          }
        },
      );
    }
    case "amqp":
    case "amqps": {
      // An exchange of its own: a queue of the user's may be bound to everything that goes through the usual one.
      const broker = rabbitmq({ url: text, exchange: run, timeoutMs });
      return opened(
        broker,
        (topics, consumers) => broker.provision(topics, consumers),
        async (topics, consumers) => {
          const links = createLinks({ settings: rabbitmqSettings(text), timeoutMs: 5_000, clock });
          await removeTopology(await links.consuming.open(never), run, topics, consumers).finally(() => links.close());
        },
      );
    }
    case "nats":
    case "tls": {
      const broker = nats({ url: text, connectTimeoutMs: timeoutMs });
      return opened(
        broker,
        (topics, consumers) => broker.provision(topics, consumers),
        async (topics) => {
          const link = natsLink({ settings: natsSettings(text), connectTimeoutMs: 5_000, clock });
          try {
            const api = createApi(await link.get(never), link.place, never);
            for (const topic of topics) await api.ask(`STREAM.DELETE.${streamName(topic)}`);
          } finally {
            await link.close();
          }
        },
      );
    }
    default: {
      const broker = redis({ url: text, timeoutMs });
      return opened(
        broker,
        (topics, consumers) => broker.provision(topics, consumers),
        async (topics) => {
          const link = redisLink({ place: placeOf(text), clock, timeoutMs: 5_000 });
          try {
            await link.ask(await link.open(never), [["DEL", ...topics]]);
          } finally {
            link.close();
          }
        },
      );
    }
  }
}

function opened(broker: Sink & Source, provision: RunBroker["provision"], remove: RunBroker["remove"]): RunBroker {
  return { broker, provision, remove, [Symbol.asyncDispose]: () => broker[Symbol.asyncDispose]() };
}
