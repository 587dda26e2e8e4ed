import { createRoom, type Room } from "../../core/room.ts";
import { idOfBytes, unreadableEnvelope } from "../../core/unreadable.ts";
import { outage } from "../kit/outage.ts";
import type { Received } from "../kit/receiving.ts";
import { createAcks } from "./acks.ts";
import type { Arrival, Connection } from "./driver.ts";
import { explain } from "./link.ts";
import { bytesInMemory, envelopeOf } from "./message.ts";
import { lasting } from "./tables.ts";

/** One receiver of one or more queues, on a connection of its own. */
export interface QueueReader {
  readonly queues: readonly string[];
  /** The next message that has arrived, if its bytes fit into the room. Throws the failure after which nothing more will come. */
  next(room: Room): readonly Received[] | null;
  /** How many were given out and are not acknowledged. */
  readonly out: number;
  /** Why nothing more will come. */
  failure(): Error | null;
  /** Unacknowledged messages return to their place in the queue, for the next receiver. The connection ends too. */
  close(): Promise<void>;
}

interface ReaderOptions {
  readonly connection: Connection;
  readonly queues: readonly { readonly topic: string; readonly name: string }[];
  /** How many of each queue may be unacknowledged. */
  readonly prefetch: number;
  /** Nothing more is read while this many bytes have arrived and are neither set aside nor acknowledged, or too many are set aside. */
  readonly bytes: number;
  /** Called when `next` may have a message or a failure. */
  readonly changed: () => void;
}

export async function openReader({ connection, queues, prefetch, bytes, changed }: ReaderOptions): Promise<QueueReader> {
  const { shown } = connection;
  const channel = await connection.openChannel();
  const acks = createAcks(channel);
  const arrived: Received[] = [];
  let out = 0;
  // The server limits the count, by its prefetch.
  const room = createRoom({ prefetch: Infinity, bytes });
  let closing = false;
  let failure: Error | null = null;
  const fail = (why: Error): void => {
    failure ??= explain(why, shown);
    changed();
  };
  channel.ended.addEventListener("abort", () => fail(channel.ended.reason as Error), { once: true });

  const readOrPause = (): void => {
    // There is no prefetch limit in bytes: messages that are not read from the socket stay with the server.
    if (room.left === 0 && !closing) connection.pause();
    else connection.resume();
  };

  const receivedOf = (topic: string, arrival: Arrival): Received => {
    const acknowledge = acks.note(arrival.tag);
    const read = readOf(arrival);
    const taken = room.take(read.bytes);
    readOrPause();
    let acked = false;
    return {
      topic,
      ...read,
      // Rejects when the channel has ended: then the message is delivered again.
      async ack() {
        if (acked) return;
        acked = true;
        out -= 1;
        taken.ack();
        readOrPause();
        changed();
        if (channel.ended.aborted) {
          throw outage(`the channel that delivered event ${read.envelope.id} has ended: it is delivered again`);
        }
        acknowledge();
      },
      aside() {
        taken.aside();
        readOrPause();
      },
    };
  };

  await channel.prefetch(prefetch);
  for (const { topic, name } of queues) {
    channel.consume(name, (arrival) => {
      if (arrival === null) {
        return fail(outage(`${shown} has ended the reading of the queue ${name}: it was deleted, or lost its node`));
      }
      arrived.push(receivedOf(topic, arrival));
      changed();
    });
  }
  return {
    queues: queues.map(({ name }) => name),
    get out() {
      return out;
    },
    next({ fits }) {
      if (failure !== null) throw failure;
      const [next] = arrived;
      if (next === undefined || !fits(next.bytes)) return null;
      arrived.shift();
      out += 1;
      return [next];
    },
    failure: () => failure,
    // Not by basic.cancel: the server would give the next receiver newer messages while ours are not acknowledged.
    async close() {
      closing = true; // a late acknowledgement must not pause the connection again
      const closed = channel.close();
      connection.resume(); // the answer comes behind messages that the server has sent meanwhile, which are dropped
      await closed;
      await connection.close();
    },
  };
}

function readOf(arrival: Arrival): Pick<Received, "envelope" | "unreadable" | "bytes"> {
  const envelope = envelopeOf(arrival);
  if (typeof envelope !== "string") return { envelope, bytes: bytesInMemory(arrival, envelope) };
  const { content, properties } = arrival;
  // A message has no permanent place in a queue, and when it is redelivered it has one more header.
  const id = idOfBytes(...lasting(properties.raw), content);
  const raw = Buffer.concat([properties.raw, content]);
  return { envelope: unreadableEnvelope(id), unreadable: { why: envelope, raw }, bytes: raw.length };
}
