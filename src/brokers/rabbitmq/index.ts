import type { Examination } from "../../contracts/doctor.ts";
import type { Sink } from "../../contracts/sink.ts";
import type { Source } from "../../contracts/source.ts";
import { systemClock, type Clock } from "../../core/clock.ts";
import { show, WaybillError } from "../../core/errors.ts";
import { checkOptions, positive, whole } from "../../core/options.ts";
import { shared } from "../../core/time.ts";
import { createExamination } from "./examine.ts";
import { createLinks, explain } from "./link.ts";
import { createManagement } from "./management.ts";
import { shortBytes } from "./names.ts";
import { createSink } from "./sink.ts";
import { createSource } from "./source.ts";
import { provision as declare, type QueueType } from "./topology.ts";
import { pageOf, settingsOf } from "./url.ts";

export interface RabbitmqOptions {
  /**
   * `amqp://user:password@host:5672/vhost`, or `amqps://…` for verified encryption, with the parameters `ca`, `cert` and `key`, which name
   * files. Several nodes of one cluster are written with commas.
   */
  readonly url: string;
  /** The durable topic exchange that events are published to. @default "waybill" */
  readonly exchange?: string;
  /** The type of the queues that are created and read. @default "quorum" */
  readonly queueType?: "quorum" | "classic";
  /** Creates the exchange with the first message, and a consumer's queues when it first receives. @default false */
  readonly provision?: boolean;
  /** The largest message, attributes and headers included; the server has a limit of its own. @default 16777216 */
  readonly maxBytes?: number;
  /** `http://user:password@host:15672`: the management plugin, which reports what AMQP does not. Without a user, that of `url` is used. */
  readonly management?: string;
  /** How long connecting, and an answer, may take before the connection is given up. @default 5000 */
  readonly timeoutMs?: number;
  readonly clock?: Clock;
}

export interface Rabbitmq extends Sink, Source, Examination {
  readonly can: { readonly maxBytes: number; readonly run: 1; readonly assign: true };
  /** Creates the exchange, and a queue for each consumer and topic that gets what is published from then on. What exists stays as it is. */
  provision(topics: readonly string[], consumers?: readonly string[]): Promise<void>;
}

const known = [
  "url",
  "exchange",
  "queueType",
  "provision",
  "maxBytes",
  "management",
  "timeoutMs",
  "clock",
] satisfies (keyof RabbitmqOptions)[];

/** RabbitMQ over AMQP 0-9-1: a topic is a routing key, and each consumer has a queue for each of its topics. */
export function rabbitmq(options: RabbitmqOptions): Rabbitmq {
  checkOptions("rabbitmq", options, known);
  const { url, management: page, exchange = "waybill", queueType = "quorum", provision = false, clock = systemClock } = options;
  for (const [name, value] of Object.entries({ url, exchange, ...(page === undefined ? {} : { management: page }) })) {
    if (typeof value !== "string") throw new WaybillError("INVALID_OPTION", `${name} must be a text, not ${show(value)}`);
  }
  if (exchange === "" || Buffer.byteLength(exchange) > shortBytes - ".skipped".length)
    throw new WaybillError("INVALID_OPTION", `exchange must be a name of 1 to 247 bytes, not ${show(exchange)}`);
  if (!(["quorum", "classic"] satisfies QueueType[] as string[]).includes(queueType))
    throw new WaybillError("INVALID_OPTION", `queueType must be quorum or classic, not ${show(queueType)}`);
  const maxBytes = whole("maxBytes", options.maxBytes ?? 16 * 1024 * 1024);
  const timeoutMs = positive("timeoutMs", options.timeoutMs ?? 5_000);
  const settings = settingsOf(url);
  const management = page === undefined ? null : createManagement({ page: pageOf(page), settings, timeoutMs, clock });
  const closing = shared(new AbortController());
  const links = createLinks({ settings, timeoutMs, clock });
  const topology = { exchange, queueType };
  const source = createSource({ links, topology, provision, clock, closing: closing.signal });

  let closed: Promise<void> | null = null;
  const close = async (): Promise<void> => {
    closing.abort();
    // Acknowledgements first: the end of a connection would overtake them.
    await source.close();
    await links.close();
  };

  return {
    name: "rabbitmq",
    can: { maxBytes, run: 1, assign: true },
    ...createSink({ links, exchange, provision, maxBytes, management, timeoutMs, clock }),
    receive: source.receive,
    lag: source.lag,
    connect: (signal) => links.connect(signal),
    async provision(topics, consumers = []) {
      const connection = await links.consuming.open(closing.signal);
      await declare(connection, topology, topics, consumers).catch((error: unknown) => {
        throw explain(error, links.shown);
      });
    },
    ...createExamination({ links, management, settings, ...topology }),
    [Symbol.asyncDispose]: () => (closed ??= close()),
  };
}
