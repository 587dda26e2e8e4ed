import type { Examination } from "../../contracts/doctor.ts";
import type { Sink } from "../../contracts/sink.ts";
import type { Source } from "../../contracts/source.ts";
import { systemClock, type Clock } from "../../core/clock.ts";
import { show, WaybillError } from "../../core/errors.ts";
import { uuidv7 } from "../../core/ids.ts";
import { checkOptions, positive, whole } from "../../core/options.ts";
import { systemRandom } from "../../core/random.ts";
import { examineKafka } from "./examine.ts";
import { createLink } from "./link.ts";
import { createProducers } from "./writing/producers.ts";
import { createSink } from "./sink.ts";
import { createSource } from "./source.ts";
import { checkTopic, createDirectory, createTopics } from "./topics.ts";
import { settingsOf } from "./url.ts";

export interface KafkaOptions {
  /**
   * `kafka://user:password@host:9092,host2:9092?sasl=scram-sha-512`, or `kafkas://…` for TLS. With TLS, the parameters `ca`, `cert` and
   * `key` may name files: an authority that the system does not know, and a certificate of our own with its key.
   */
  readonly url: string;
  /** Creates topics when they are first written to or read. @default false */
  readonly provision?: boolean;
  /** Partitions of each topic created here. Adding some later would break the order of aggregates: begin with enough. @default 6 */
  readonly partitions?: number;
  /** How many brokers keep each topic that is made here. @default what the brokers are set to */
  readonly replicas?: number;
  /** The largest message, attributes and headers included; the topic's own limit where that is lower. @default 1048576 */
  readonly maxBytes?: number;
  /** Messages sent together become readable together or not at all, for consumers that read only committed messages. @default false */
  readonly transactions?: boolean;
  /** How long connecting, and an answer, may take before the connection is given up. @default 5000 */
  readonly timeoutMs?: number;
  /** How long a crashed process keeps its partitions from other processes. The brokers have their own bounds for it. @default 10000 */
  readonly sessionMs?: number;
  readonly clock?: Clock;
}

export interface Kafka extends Sink, Source, Examination {
  readonly can: { readonly maxBytes: number; readonly assign: true };
  /** Creates these topics; existing ones stay as they are. A consumer's group is created when it first reads. */
  provision(topics: readonly string[]): Promise<void>;
}

const known = [
  "url",
  "provision",
  "partitions",
  "replicas",
  "maxBytes",
  "transactions",
  "timeoutMs",
  "sessionMs",
  "clock",
] satisfies (keyof KafkaOptions)[];

/** Kafka: a topic is a topic, a consumer is a group. */
export function kafka(options: KafkaOptions): Kafka {
  checkOptions("kafka", options, known);
  if (typeof options.url !== "string") throw new WaybillError("INVALID_OPTION", `url must be a text, not ${show(options.url)}`);
  const { provision = false, transactions = false, clock = systemClock } = options;
  const maxBytes = whole("maxBytes", options.maxBytes ?? 1024 * 1024);
  const timeoutMs = positive("timeoutMs", options.timeoutMs ?? 5_000);
  const sessionMs = whole("sessionMs", options.sessionMs ?? 10_000);
  const shape = {
    partitions: whole("partitions", options.partitions ?? 6),
    replicas: options.replicas === undefined ? null : whole("replicas", options.replicas),
  };
  const link = createLink({ settings: settingsOf(options.url), clock, timeoutMs });
  const directory = createDirectory(link, provision ? shape : null);
  const prefix = `waybill-${uuidv7(clock, systemRandom)()}`;
  // A transaction that its process leaves open keeps readers waiting until it times out.
  const producers = createProducers({ link, transactions: transactions ? { prefix, timeoutMs: 2 * timeoutMs } : null });
  const source = createSource({ link, directory, sessionMs });

  let closed: Promise<void> | null = null;
  const close = async (): Promise<void> => {
    producers.close();
    await source.close();
    link.close();
  };

  return {
    name: "kafka",
    can: { maxBytes, assign: true },
    ...createSink({ link, directory, maxBytes, producers }),
    receive: source.receive,
    oldest: source.oldest,
    lag: source.lag,
    connect: async (signal) => void (await link.open(signal)),
    async provision(topics) {
      for (const topic of topics) checkTopic(topic, "INVALID_OPTION");
      await createTopics(link, topics, shape, link.closing);
    },
    examine: (topics, signal) => examineKafka(link, topics, maxBytes, signal),
    [Symbol.asyncDispose]: () => (closed ??= close()),
  };
}
