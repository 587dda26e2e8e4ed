import { embedded } from "../../brokers/embedded/index.ts";
import { kafka } from "../../brokers/kafka/index.ts";
import { removeGroups } from "../../brokers/kafka/groups.ts";
import { createLink as kafkaLink } from "../../brokers/kafka/link.ts";
import { removeTopics } from "../../brokers/kafka/topics.ts";
import { settingsOf as kafkaSettings } from "../../brokers/kafka/url.ts";
import { ApiError, createApi, explain, type Api } from "../../brokers/nats/api.ts";
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
import { asError, WaybillError } from "../../core/errors.ts";
import { brokerUrl } from "../adapters.ts";
import { pathOf } from "../files.ts";
import { fileBeside, removeFile } from "./sqlite-ground.ts";
import type { Place } from "./task.ts";

/** A broker as a run uses it: with topics that it makes, and takes away again. */
export interface RunBroker extends AsyncDisposable {
  readonly broker: Sink & Source;
  /** Rejects when something of the user's would take what goes to these topics. Makes nothing. */
  vacant(topics: readonly string[]): Promise<void>;
  provision(topics: readonly string[], consumers: readonly string[]): Promise<void>;
  /** As much of it as can be, whatever fails in between; rejects with all that is left. What is not there is no failure. */
  remove(topics: readonly string[], consumers: readonly string[]): Promise<void>;
}

const never = new AbortController().signal;
/** A group is there until its members' sessions have run out. */
const groupsMs = 30_000;
/** How long a broker has for an answer, and a member of a group of Kafka's for a sign of life. */
interface Pace {
  readonly timeoutMs: number;
  readonly sessionMs: number;
}
/** Of workers: what is broken on purpose is felt soon, and gone soon. */
const hasty: Pace = { timeoutMs: 2_000, sessionMs: 6_000 };
/** Of whoever makes and reads topics: a broker that is slow, or a judge that has to wait for its turn, is no verdict. */
export const patient: Pace = { timeoutMs: 10_000, sessionMs: 20_000 };

export function openRunBroker({ broker: text, run }: Pick<Place, "broker" | "run">, { timeoutMs, sessionMs } = hasty): RunBroker {
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
      const broker = kafka({ url: text, timeoutMs, sessionMs });
      return opened(
        broker,
        (topics) => broker.provision(topics),
        async (topics, consumers) => {
          const link = kafkaLink({ settings: kafkaSettings(text), clock, timeoutMs: 5_000 });
          try {
            // Groups are there whether or not their topics are.
            const failed = await failures(topics, (topic) => removeTopics(link, [topic], never));
            // A member that was killed while it joined goes when that round is over, and then its session.
            failed.push(...(await failures(consumers, (consumer) => removeGroups(link, [consumer], groupsMs))));
            raise(failed);
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
          try {
            const connection = await links.consuming.open(never);
            const failed: Error[] = [];
            // One after the other: RabbitMQ may answer with INTERNAL_ERROR, and end the connection, when two delete the same at once.
            for (const topic of topics)
              for (const consumer of consumers)
                failed.push(...(await failures([consumer], (one) => removeTopology(connection, run, [topic], [one]))));
            raise(failed);
          } finally {
            await links.close();
          }
        },
      );
    }
    case "nats":
    case "tls": {
      const broker = nats({ url: text, connectTimeoutMs: timeoutMs });
      const asking = async (work: (api: Api, place: string) => Promise<void>): Promise<void> => {
        const link = natsLink({ settings: natsSettings(text), connectTimeoutMs: 5_000, clock });
        try {
          await work(createApi(await link.get(never), link.place, never), link.place);
        } catch (error) {
          throw explain(error, link.place);
        } finally {
          await link.close();
        }
      };
      return {
        ...opened(
          broker,
          (topics, consumers) => broker.provision(topics, consumers),
          (topics) => asking(async (api) => raise(await failures(topics, (topic) => removeStream(api, topic)))),
        ),
        vacant: (topics) =>
          asking(async (api, place) => {
            for (const topic of topics) await refuseTaken(api, place, topic);
          }),
      };
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
  // Nothing but a stream of JetStream's takes what goes to a name that nobody else has.
  return { broker, vacant: async () => undefined, provision, remove, [Symbol.asyncDispose]: () => broker[Symbol.asyncDispose]() };
}

/** Whichever stream takes a subject keeps it: a wildcard of the user's would get the run's events and consumers. */
async function refuseTaken(api: Api, place: string, topic: string): Promise<void> {
  const { streams } = await api.ask<{ readonly streams: readonly string[] | null }>("STREAM.NAMES", { subject: topic });
  const [name] = streams ?? [];
  if (name === undefined) return;
  const why = `stream ${name} of ${place} takes the subject ${JSON.stringify(topic)}, and the run's events would be among its own`;
  throw new WaybillError(
    "UNSUPPORTED",
    `${why}: give waybill verify an account or a server of its own, or the stream subjects that do not take this one`,
  );
}

const streamNotFound = 10059;

async function removeStream(api: Api, topic: string): Promise<void> {
  const name = streamName(topic);
  try {
    await api.ask(`STREAM.DELETE.${name}`);
  } catch (error) {
    if (error instanceof ApiError && error.code === streamNotFound) return;
    throw new Error(`stream ${name}: ${asError(error).message}`, { cause: error });
  }
}

/** Everything is tried, all at once: each may take long. */
async function failures<T>(all: readonly T[], work: (one: T) => Promise<void>): Promise<Error[]> {
  const tried = await Promise.allSettled(all.map(work));
  return tried.filter((one) => one.status === "rejected").map(({ reason }) => asError(reason));
}

function raise(failed: readonly Error[]): void {
  if (failed.length === 0) return;
  const words = new Set(failed.map(({ message }) => message));
  throw new WaybillError("DESTINATION_UNAVAILABLE", [...words].join("; "), { cause: failed[0] });
}
