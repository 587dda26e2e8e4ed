import type * as Client from "amqplib";
import type { Clock } from "../../core/clock.ts";
import { readSafely, WaybillError } from "../../core/errors.ts";
import { createAwaited, setIdle } from "../../core/idle.ts";
import { loadClient } from "../../core/load-client.ts";
import { onAbort, orAborted, shared, within, withDeadline } from "../../core/time.ts";
import { closedHere, notWaitedFor } from "../kit/link.ts";
import { unreachable } from "../kit/outage.ts";
import { createSilence } from "../kit/silence.ts";
import { tapFrames } from "./frames.ts";
import { hearErrors } from "./opening.ts";
import type { Properties } from "./tables.ts";
import type { Address } from "../kit/url.ts";
import { shownAt, type Settings } from "./url.ts";

/** The error that the server closed a channel or a connection with. */
export class AmqpRefusal extends Error {
  readonly code: number;
  /** The server refused a basic.publish. */
  readonly publishing: boolean;

  constructor(code: number, text: string, publishing: boolean) {
    super(text);
    this.name = "AmqpRefusal";
    this.code = code;
    this.publishing = publishing;
  }
}

/** The AMQP reply codes that our code depends on. */
export const codes = { contentTooLarge: 311, accessRefused: 403, notFound: 404, resourceLocked: 405, preconditionFailed: 406 } as const;

export type Table = Readonly<Record<string, string | number | boolean>>;

/** A received message. */
export interface Arrival {
  readonly tag: number;
  readonly content: Buffer;
  readonly properties: Properties;
}

interface Confirmation {
  readonly as: "ack" | "nack";
  readonly tag: number;
  readonly multiple: boolean;
}

export interface Channel {
  /** Aborts when the channel has ended. The reason is an AmqpRefusal, or why the connection ended. */
  readonly ended: AbortSignal;
  checkExchange(name: string): Promise<void>;
  /** Declares a durable exchange. */
  declareExchange(name: string, type: "topic" | "fanout"): Promise<void>;
  /** How many messages it has that no reader holds. */
  checkQueue(name: string): Promise<number>;
  /** Declares a durable queue. */
  declareQueue(name: string, args: Table): Promise<void>;
  bind(queue: string, exchange: string, key: string): Promise<void>;
  /** Deletes its messages too. A queue that does not exist counts as deleted. */
  deleteQueue(name: string): Promise<void>;
  deleteExchange(name: string): Promise<void>;
  /** How many messages of each queue may be unacknowledged. To be called before `consume`. */
  prefetch(count: number): Promise<void>;
  /**
   * `take` gets null when the server has ended the consumer: the queue or its node is gone. The server sends no answer, which would come
   * behind messages of other queues that may be waiting unread. If it refuses, it ends the channel.
   */
  consume(queue: string, take: (arrival: Arrival | null) => void): void;
  ack(tag: number, multiple: boolean): void;
  close(): Promise<void>;
}

/** A channel in confirm mode. Published messages are numbered from 1. */
interface Publishing extends Channel {
  /** The channel number of its frames, and how large they may be. */
  readonly number: number;
  readonly frameMax: number;
  /** Whole frames, of whole messages. Throws when the channel has ended, and then nothing was sent. */
  write(frames: Uint8Array): void;
}

export interface Listener {
  confirmed(confirmation: Confirmation): void;
  /** No queue takes the message. Its confirmation follows. */
  returned(messageId: string, why: string): void;
}

/** One connection to one node. It never reconnects: all its channels end with it, and the caller that needs another dials again. */
export interface Connection {
  readonly shown: string;
  /** The server's. */
  readonly version: string;
  /** Why the server takes no messages at present. It resumes by itself. */
  readonly blocked: string | null;
  readonly ended: AbortSignal;
  openChannel(): Promise<Channel>;
  openPublishing(listener: Listener): Promise<Publishing>;
  /** Reads nothing more, on any channel, until it is resumed. The server keeps what it cannot send. */
  pause(): void;
  resume(): void;
  /** The connection keeps the process alive until the returned function is called: an answer is awaited. */
  await(): () => void;
  end(why: Error): void;
  /** With the protocol's handshake, or without it when the server does not answer. */
  close(): Promise<void>;
}

interface Dial {
  readonly settings: Settings;
  readonly address: Address;
  /** For connecting, and for every answer. */
  readonly timeoutMs: number;
  readonly clock: Clock;
}

/** In seconds. Either side drops the connection after two or three silent intervals. A busy process must not be taken for a dead one. */
const heartbeat = 3;
const closeMs = 1_000;

export async function dial({ settings, address, timeoutMs, clock }: Dial, outer: AbortSignal): Promise<Connection> {
  const client = await loadClient("RabbitMQ", "amqplib", () => import("amqplib"));
  hearErrors("amqplib");
  const { user, password, vhost, tls } = settings;
  const shown = shownAt(address, vhost, tls);
  const socket = new AbortController();
  const model = await withDeadline(clock, timeoutMs, outer, async (signal) => {
    const leave = onAbort(signal, () => socket.abort());
    try {
      // Node connects a socket even if its signal has aborted, and nothing would listen to that connection or end it.
      signal.throwIfAborted();
      const [hostname, port] = [address.host, address.port];
      return await client.connect(
        // The client decodes the virtual host itself.
        {
          ...{ protocol: tls === null ? "amqp" : "amqps", hostname, port, vhost: encodeURIComponent(vhost) },
          ...{ username: user, password, heartbeat },
        },
        {
          ...{ noDelay: true, keepAlive: true, keepAliveDelay: 10_000, clientProperties: { connection_name: "waybill" } },
          ...(tls === null ? {} : { ...tls, rejectUnauthorized: true, minVersion: "TLSv1.2" as const }),
          ...{ signal: socket.signal }, // ends the socket: the client does not, while a server is silent
        },
      );
    } catch (error) {
      if (outer.aborted) throw notWaitedFor(shown);
      if (signal.aborted) throw unreachable(shown, new Error(`it took no connection within ${timeoutMs} ms`));
      // The client's error does not include what the server said here.
      const entering = /ConnectionOpenOk; got <ConnectionClose/.test(String(error));
      throw unreachable(shown, entering ? new Error(`there is no virtual host ${vhost}, or this user may not enter it`) : error);
    } finally {
      leave();
    }
  });
  return wrap(model, { shown, socket, timeoutMs, clock });
}

/** Private fields of the client. */
interface Inside {
  readonly stream?: unknown;
  readonly expectSocketClose?: boolean;
  readonly heartbeater?: { readonly sendTimer?: unknown; readonly recvTimer?: unknown } | null;
}

interface Wrapping {
  readonly shown: string;
  readonly socket: AbortController;
  readonly timeoutMs: number;
  readonly clock: Clock;
}

function wrap(model: Client.ChannelModel, { shown, socket, timeoutMs, clock }: Wrapping): Connection {
  const ended = shared(new AbortController());
  const { pause, resume } = tapFrames(model.connection);
  const { stream, expectSocketClose, heartbeater } = model.connection as Inside;
  const awaited = createAwaited(stream);
  for (const timer of [heartbeater?.sendTimer, heartbeater?.recvTimer]) setIdle(timer, true);
  let blocked: string | null = null;
  let failure: Error | undefined;
  const end = (why: Error): void => {
    if (!ended.signal.aborted) ended.abort(why);
    socket.abort();
  };
  model.on("error", (error: Error) => (failure ??= error));
  model.on("close", (error?: Error) => end(unreachable(shown, refusalOf(failure ?? error ?? new Error("the connection was closed")))));
  model.on("blocked", (reason: string) => (blocked = reason));
  model.on("unblocked", () => (blocked = null));
  // A Close that came in the same bytes as OpenOk has had its event.
  if (expectSocketClose === true) end(unreachable(shown, new Error("the server closed the connection as it opened")));

  /** The client has no timeout for answers. A server that has blocked the connection is not silent. */
  const silence = createSilence({
    clock,
    ms: timeoutMs,
    ended: ended.signal,
    heard: () => (blocked === null ? 0 : NaN),
    silent: (ms) => end(unreachable(shown, new Error(`it did not answer within ${ms} ms`))),
  });
  const answered = async <T>(work: () => Promise<T>): Promise<T> => {
    const came = awaited.begin();
    const landed = silence.begin();
    try {
      ended.signal.throwIfAborted();
      // When its connection ends, the client never settles some pending calls, such as the closing of a channel.
      return await orAborted(work(), ended.signal, () => {
        throw ended.signal.reason as Error;
      });
    } catch (error) {
      throw ended.signal.aborted ? (ended.signal.reason as Error) : refusalOf(error as Error);
    } finally {
      landed();
      came();
    }
  };
  const open = async <C extends Client.Channel>(create: () => Promise<C>): Promise<{ channel: C; wrapped: Channel }> => {
    const channel = await answered(create);
    return { channel, wrapped: wrapChannel(channel, ended.signal, answered) };
  };

  return {
    shown,
    version: String(model.connection.serverProperties.version),
    get blocked() {
      return blocked;
    },
    ended: ended.signal,
    openChannel: async () => (await open(() => model.createChannel())).wrapped,
    async openPublishing({ confirmed, returned }) {
      const { channel, wrapped } = await open(() => model.createConfirmChannel());
      channel.on("ack", ({ deliveryTag, multiple }) => confirmed({ as: "ack", tag: deliveryTag, multiple }));
      channel.on("nack", ({ deliveryTag, multiple }) => confirmed({ as: "nack", tag: deliveryTag, multiple }));
      channel.on("return", ({ fields, properties }) => {
        const { replyCode, replyText } = fields as unknown as { replyCode: number; replyText: string };
        returned(String((properties as unknown as Properties).messageId), `${replyText} (${replyCode})`);
      });
      return { ...wrapped, ...writerOf(model.connection, channel, wrapped.ended) };
    },
    pause,
    resume,
    await: awaited.begin,
    end,
    async close() {
      resume();
      const closed = awaited.begin();
      await within(
        clock,
        closeMs,
        (async () => model.close())().catch(() => undefined),
      );
      closed();
      end(closedHere(shown));
    },
  };
}

function wrapChannel(channel: Client.Channel, over: AbortSignal, answered: <T>(work: () => Promise<T>) => Promise<T>): Channel {
  const ended = shared(new AbortController());
  let failure: Error | null = null;
  channel.on("error", (error: Error) => void (failure ??= refusalOf(error)));
  channel.on("close", () =>
    // When the connection ends, its channels close first, and the reason comes after.
    queueMicrotask(() => ended.abort(failure ?? (over.aborted ? over.reason : new Error("the channel was closed")))),
  );
  return {
    ended: ended.signal,
    checkExchange: (name) => answered(async () => void (await channel.checkExchange(name))),
    declareExchange: (name, type) => answered(async () => void (await channel.assertExchange(name, type, { durable: true }))),
    checkQueue: (name) => answered(async () => (await channel.checkQueue(name)).messageCount),
    declareQueue: (name, args) => answered(async () => void (await channel.assertQueue(name, { durable: true, arguments: args }))),
    deleteQueue: (name) => answered(async () => void (await channel.deleteQueue(name))),
    deleteExchange: (name) => answered(async () => void (await channel.deleteExchange(name))),
    bind: (queue, exchange, key) => answered(async () => void (await channel.bindQueue(queue, exchange, key))),
    prefetch: (count) => answered(async () => void (await channel.prefetch(count))),
    consume: (queue, take) => consumeUnanswered(channel, queue, (message) => take(message === null ? null : arrivalOf(message))),
    ack(tag, multiple) {
      const acknowledge = (): void => channel.ack({ fields: { deliveryTag: tag } } as Client.Message, multiple);
      // The client refuses it while the channel closes. The server delivers the message again.
      if (!ended.signal.aborted) readSafely(acknowledge, undefined);
    },
    async close() {
      if (!ended.signal.aborted) await answered(() => channel.close()).catch(() => undefined);
    },
  };
}

/** The parts of the client that send. */
interface Sending {
  readonly frameMax?: number;
  readonly channels?: readonly ({ readonly channel: unknown; readonly buffer: { write(bytes: Uint8Array): unknown } } | null)[];
  sentSinceLastCheck?: boolean;
}

/**
 * The client's own publish creates buffers, strings and objects for each message. These writes go through the channel's queue. Each entry
 * of the queue holds whole frames, and the client sends one entry after the other.
 */
function writerOf(connection: object, channel: object, ended: AbortSignal): Pick<Publishing, "number" | "frameMax" | "write"> {
  const sending = connection as Sending;
  const { ch: number } = channel as { readonly ch?: number };
  const mine = () => sending.channels?.[number ?? -1];
  if (number === undefined || sending.frameMax === undefined || mine()?.channel !== channel)
    throw new WaybillError("DRIVER_UNFIT", "this version of amqplib sends in another way: use 2.3 or later of 2.x");
  return {
    number,
    frameMax: sending.frameMax,
    write(frames) {
      ended.throwIfAborted();
      const queue = mine();
      // Another channel may have its number by now.
      if (queue?.channel !== channel) throw new Error("the channel was closed");
      queue.buffer.write(frames);
      sending.sentSinceLastCheck = true;
    },
  };
}

/** The parts of the client that consume. Its own `consume` waits for an answer. */
interface Consuming {
  registerConsumer(tag: string, take: (message: Client.ConsumeMessage | null) => void): void;
  sendImmediately(method: number, fields: object): void;
}

const basicConsume = 3932180;

function consumeUnanswered(channel: object, queue: string, take: (message: Client.ConsumeMessage | null) => void): void {
  const consuming = channel as Consuming;
  if (typeof consuming.registerConsumer !== "function" || typeof consuming.sendImmediately !== "function")
    throw new WaybillError("DRIVER_UNFIT", "this version of amqplib consumes in another way: use 2.3 or later of 2.x");
  const consumerTag = queue; // a channel consumes a queue once
  consuming.registerConsumer(consumerTag, take);
  const flags = { noLocal: false, noAck: false, exclusive: false, nowait: true };
  consuming.sendImmediately(basicConsume, { ticket: 0, queue, consumerTag, ...flags, arguments: {} });
}

/** The properties are those of our own decoder: see frames.ts. */
const arrivalOf = ({ content, fields, properties }: Client.ConsumeMessage): Arrival => ({
  tag: fields.deliveryTag,
  content,
  properties: properties as unknown as Properties,
});

const [basic, publish] = [60, 40];

/** The client's errors hold the protocol's number when the server sent one. */
function refusalOf(error: Error): Error {
  const { code, classId, methodId } = error as Error & { code?: unknown; classId?: number; methodId?: number };
  const said = /with message "(.*)"$/s.exec(error.message)?.[1];
  // Without it, the client has closed the channel itself, over an answer that it cannot read.
  if (error instanceof AmqpRefusal || typeof code !== "number" || said === undefined) return error;
  return new AmqpRefusal(code, said, classId === basic && methodId === publish);
}
