import { WaybillError } from "../../core/errors.ts";
import { asWord } from "../../core/text.ts";
import { AmqpRefusal, codes, type Channel, type Connection, type Table } from "./driver.ts";
import { checkTopic, queueName } from "./names.ts";

export type QueueType = "quorum" | "classic";

export interface Topology {
  readonly exchange: string;
  readonly queueType: QueueType;
}

/** Takes messages that a policy of the server removes from a queue, and keeps the last ten thousand. */
const skippedName = (exchange: string): string => `${exchange}.skipped`;
const skippedKept = 10_000;

/**
 * One reader at a time keeps an aggregate's order. When a policy limits the queue's length, a full queue refuses messages and drops none.
 * From RabbitMQ 4 on, a quorum queue would drop a message that has been delivered twenty times.
 */
export function queueArguments({ exchange, queueType }: Topology, version: string): Table {
  return {
    "x-queue-type": queueType,
    "x-single-active-consumer": true,
    "x-overflow": "reject-publish",
    "x-dead-letter-exchange": skippedName(exchange),
    ...(queueType === "quorum" && Number.parseInt(version, 10) >= 4 ? { "x-delivery-limit": -1 } : {}),
  };
}

/** Creates the exchange, and a queue bound to it for each consumer and topic. What exists and fits stays as it is. */
export async function provision(
  connection: Connection,
  topology: Topology,
  topics: readonly string[],
  consumers: readonly string[],
): Promise<void> {
  for (const topic of topics) checkTopic(topic, "INVALID_OPTION");
  const queues = consumers.flatMap((consumer) => topics.map((topic) => ({ topic, name: queueName(consumer, topic) })));
  const { exchange } = topology;
  const skipped = skippedName(exchange);
  await onChannel(connection, (channel) => declareExchange(connection, channel, exchange));
  await onChannel(connection, async (channel) => {
    await channel.declareExchange(skipped, "fanout").catch(unfit(connection, `the exchange ${skipped}`));
    const kept = { "x-queue-type": "quorum", "x-max-length": skippedKept };
    await channel.declareQueue(skipped, kept).catch(unfit(connection, `the queue ${skipped}`));
    await channel.bind(skipped, skipped, "");
  });
  for (const { name } of queues) await declareQueue(connection, topology, name);
  await onChannel(connection, async (channel) => {
    for (const { name, topic } of queues) await channel.bind(name, exchange, topic);
  });
}

/** Deletes what `provision` created, with all messages in it. */
export async function removeTopology(
  connection: Connection,
  exchange: string,
  topics: readonly string[],
  consumers: readonly string[],
): Promise<void> {
  const queues = consumers.flatMap((consumer) => topics.map((topic) => queueName(consumer, topic)));
  await onChannel(connection, async (channel) => {
    for (const name of [...queues, skippedName(exchange)]) await channel.deleteQueue(name);
    for (const name of [exchange, skippedName(exchange)]) await channel.deleteExchange(name);
  });
}

export async function declareExchange(connection: Connection, channel: Channel, exchange: string): Promise<void> {
  await channel.declareExchange(exchange, "topic").catch(unfit(connection, `the exchange ${exchange}`));
}

/** The name of a queue that exists and has the right arguments. A user that may not declare it cannot check the arguments. */
export async function needQueue(connection: Connection, topology: Topology, consumer: string, topic: string): Promise<string> {
  const name = queueName(consumer, topic);
  await onChannel(connection, (channel) => channel.checkQueue(name)).catch((error: unknown) => {
    throw isRefusal(error, codes.notFound) ? missing(connection, name, topic, consumer, error) : error;
  });
  await declareQueue(connection, topology, name).catch((error: unknown) => {
    if (!isRefusal(error, codes.accessRefused)) throw error;
  });
  return name;
}

/** How many messages of the consumer's queue no reader holds; null where there is no queue. */
export async function readyFor(connection: Connection, consumer: string, topic: string): Promise<number | null> {
  try {
    return await onChannel(connection, (channel) => channel.checkQueue(queueName(consumer, topic)));
  } catch (error) {
    if (isRefusal(error, codes.notFound)) return null;
    throw error;
  }
}

async function declareQueue(connection: Connection, topology: Topology, name: string): Promise<void> {
  const args = queueArguments(topology, connection.version);
  const { "x-delivery-limit": limit, ...earlier } = args;
  const declare = (what: Table): Promise<void> => onChannel(connection, (channel) => channel.declareQueue(name, what));
  try {
    await declare(args);
  } catch (error) {
    // After an upgrade of the server, earlier queues lack the argument.
    await (limit !== undefined && isRefusal(error, codes.preconditionFailed) ? declare(earlier) : Promise.reject(error as Error)).catch(
      unfit(connection, `the queue ${name}`),
    );
  }
}

/** The server closes a channel on which it refuses something, so each piece of work has a channel of its own. */
export async function onChannel<T>(connection: Connection, work: (channel: Channel) => Promise<T>): Promise<T> {
  const channel = await connection.openChannel();
  try {
    return await work(channel);
  } finally {
    await channel.close();
  }
}

export const isRefusal = (error: unknown, code: number): boolean => error instanceof AmqpRefusal && error.code === code;

const unfit =
  ({ shown }: Connection, what: string) =>
  (error: unknown): never => {
    if (!isRefusal(error, codes.preconditionFailed) && !isRefusal(error, codes.resourceLocked)) throw error;
    const why = `${what} of ${shown} is there, and not as it must be: ${(error as Error).message}`;
    throw new WaybillError("DESTINATION_UNAVAILABLE", `${why}; delete it when nothing in it is needed, or choose queueType as it is`, {
      cause: error,
    });
  };

function missing({ shown }: Connection, name: string, topic: string, consumer: string, cause: unknown): WaybillError {
  const way = `waybill migrate --broker ${shown} --topics ${asWord(topic)} --consumers ${consumer}`;
  return new WaybillError("DESTINATION_UNAVAILABLE", `${shown} has no queue ${JSON.stringify(name)}: run ${way}`, { cause });
}
