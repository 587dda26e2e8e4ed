import { turn, type Clock } from "../../core/clock.ts";
import type { WaybillError } from "../../core/errors.ts";
import { onAbort } from "../../core/time.ts";
import { outage } from "../kit/outage.ts";
import type { Connection, NatsMessage } from "./driver.ts";
import type { ReadingMark } from "./marks.ts";

export interface NatsReceived {
  readonly reader: TopicReader;
  readonly message: NatsMessage;
  /** The message's number in its stream. */
  readonly sequence: number;
  /** Names the message in its stream for ever. */
  readonly place: string;
}

/** Pulls the messages of one topic through its durable consumer, in the order of the stream. */
export interface TopicReader {
  readonly topic: string;
  /** Requests so many messages, and no more bytes unless the first message is larger. Does nothing while a request is open. */
  ask(count: number, bytes: number): void;
  /** Needs the message's reply alone: keeping the message until then would keep everything that came with it in memory. */
  acknowledge(reply: string, sequence: number): void;
  /** Resolves when the server has taken all acknowledgements and how far the reading has come, or cannot any more. */
  flush(): Promise<void>;
  /** Why nothing more will come. */
  failure(): WaybillError | null;
  close(): void;
}

export interface TopicReaderOptions {
  readonly connection: Connection;
  readonly clock: Clock;
  readonly topic: string;
  readonly stream: string;
  readonly durable: string;
  /** The number of the last message that is done with, or was never there. */
  readonly from: number;
  readonly take: (received: NatsReceived) => void;
  /** Called before each message is taken, with the number of the message before it, its own, and which delivery it is. */
  readonly came: (before: number, sequence: number, delivery: number) => void;
  /** Keeps how far the reading has come. The returned function keeps the latest, and never rejects. */
  readonly keeping: (now: () => ReadingMark) => () => Promise<void>;
  /** Called when there may be something to request, deliver or report. */
  readonly changed: () => void;
}

const expiresMs = 5_000;
const graceMs = 5_000;
/** A higher limit is not sent, and so is no bound: the server counts in 32 bits. */
const maxBytes = 2 ** 31 - 1;
const text = new TextEncoder();
const ack = text.encode("+ACK");

export function openReader(options: TopicReaderOptions): TopicReader {
  const { connection, clock, topic, stream, durable, from, take, came, keeping, changed } = options;
  const inbox = connection.inbox();
  let pull = 0;
  let asked = 0;
  let askedBytes = Infinity;
  let overdueAt = Infinity;
  let last = from;
  let deliveries = 0;
  /** The numbers of the messages that were taken and not acknowledged, ascending. */
  const open = new Set<number>();
  /** The next message is larger than the bytes that were requested: it is requested alone, whatever its size. */
  let large = false;
  const keep = keeping(() => {
    const [oldest] = open;
    return { floor: oldest === undefined ? last : oldest - 1, read: last, open: open.size, deliveries };
  });
  let lastAck: string | null = null;
  /** Acknowledgements of one turn go out in one write: each write costs as much as the rest of an event's way. */
  const acks: string[] = [];
  const sendAcks = (): void => {
    for (const reply of acks.splice(0)) connection.publish(reply, ack);
  };
  let failure: WaybillError | null = null;
  const fail = (why: string): void => {
    failure ??= outage(why);
    changed();
  };

  const unsubscribe = connection.subscribe(`${inbox}.*`, (message) => {
    const delivered = deliveredBy(message.reply);
    if (delivered !== null) {
      const { sequence, delivery, place } = delivered;
      asked -= 1;
      askedBytes -= message.raw.byteLength;
      if (asked < 0 || askedBytes < 0) return fail(`stream ${stream} sends more of ${topic} than it was asked for`);
      // The server redelivers a message only if the consumer was changed from outside. That message is in hand, or done with.
      if (sequence > last) {
        came(last, sequence, delivery);
        last = sequence;
        deliveries = delivery;
        open.add(sequence);
        take({ reader, message, sequence, place });
      }
      return changed();
    }
    const { status, description, headers } = message.head;
    if (status === 100) return;
    const tooLarge = status === 409 && /max ?bytes/i.test(description);
    // How NATS 2.10 and later end a pull with `max_bytes` that has got all it asked for.
    const complete = status === 409 && /^batch completed/i.test(description);
    if (status !== 408 && status !== 404 && !tooLarge && !complete) {
      return fail(`stream ${stream} has ended the reading of ${topic} with status ${status}: its consumer was deleted or taken over`);
    }
    if (message.subject === `${inbox}.${pull}`) {
      // One of several replicas sends a message once the others know of the delivery. The end of the pull overtakes such messages.
      asked = Math.max(0, asked - (pendingIn(headers) ?? asked));
      large ||= tooLarge;
    }
    changed();
  });
  const leave = onAbort(connection.ended, () => fail(`the connection that ${topic} was read from has ended`));

  const reader: TopicReader = {
    topic,
    ask(count, bytes) {
      if (asked > 0 || count <= 0) return;
      const bound: { readonly max_bytes?: number } = large || bytes > maxBytes ? {} : { max_bytes: bytes };
      asked = large ? 1 : count;
      askedBytes = bound.max_bytes ?? Infinity;
      large = false;
      pull += 1;
      overdueAt = clock.monotonic() + expiresMs + graceMs;
      const request = text.encode(JSON.stringify({ batch: asked, expires: expiresMs * 1e6, ...bound }));
      connection.publish(`$JS.API.CONSUMER.MSG.NEXT.${stream}.${durable}`, request, `${inbox}.${pull}`);
    },
    acknowledge(reply, sequence) {
      open.delete(sequence);
      lastAck = reply;
      if (acks.push(reply) === 1) void turn().then(sendAcks);
    },
    async flush() {
      const last = lastAck;
      if (last !== null) {
        lastAck = null;
        sendAcks();
        // The server takes acknowledgements in order: when it answers the last one, which is sent once more, it has taken all.
        await connection.request(last, ack);
      }
      await keep();
    },
    failure() {
      // For a consumer that no longer exists, the server does not answer at all.
      if (asked > 0 && clock.monotonic() > overdueAt)
        fail(`stream ${stream} does not answer the reading of ${topic}: is its consumer gone?`);
      return failure;
    },
    close() {
      leave();
      unsubscribe();
    },
  };
  return reader;
}

/** How many of the requested messages a pull that has ended leaves out; null where the server does not say. */
function pendingIn(headers: NatsMessage["head"]["headers"]): number | null {
  const said = headers.find(([name]) => name === "Nats-Pending-Messages")?.[1] ?? "";
  return /^\d{1,9}$/.test(said) ? Number(said) : null;
}

/**
 * From `$JS.ACK.[domain.account.]stream.consumer.delivered.sequence.consumer-sequence.time.pending`. Only what a stream delivers has such a
 * reply; the server's status messages have none. The status line cannot distinguish the two: any publisher can write one.
 */
function deliveredBy(reply: string): { readonly sequence: number; readonly delivery: number; readonly place: string } | null {
  if (!reply.startsWith("$JS.ACK.")) return null;
  const parts = reply.split(".");
  const at = parts.length >= 11 ? 7 : 5;
  const sequence = Number(parts[at] ?? 0);
  const delivery = Number(parts[at + 1] ?? 0);
  return Number.isSafeInteger(sequence) ? { sequence, delivery, place: `${sequence}-${parts[at + 2] ?? 0}` } : null;
}
