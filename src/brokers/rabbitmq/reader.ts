import { WaybillError } from "../../core/errors.ts";
import type { Envelope } from "../../core/event.ts";
import { createAcks } from "./acks.ts";
import type { Connection } from "./driver.ts";
import { explain } from "./link.ts";
import { envelopeOf } from "./message.ts";

export interface Received {
  readonly topic: string;
  readonly envelope: Envelope;
  /** Rejects when the channel has ended: then it is delivered again. */
  ack(): Promise<void>;
}

/** One receiver of one or more queues, on a channel of its own. */
export interface Reader {
  readonly queues: readonly string[];
  /** The next of what has arrived. */
  next(): Received | undefined;
  /** How many were given out and are not acknowledged. */
  readonly out: number;
  /** Why nothing more will come. */
  failure(): Error | null;
  /** What is not acknowledged goes back to where it was in its queue, for the next receiver. */
  close(): Promise<void>;
}

export interface ReaderOptions {
  readonly connection: Connection;
  readonly queues: readonly { readonly topic: string; readonly name: string }[];
  /** How many of each queue may be unacknowledged. */
  readonly prefetch: number;
  /** Called when there may be something to take or to tell. */
  readonly changed: () => void;
}

export async function openReader({ connection, queues, prefetch, changed }: ReaderOptions): Promise<Reader> {
  const { shown } = connection;
  const channel = await connection.openChannel();
  const acks = createAcks(channel);
  const arrived: Received[] = [];
  let out = 0;
  let failure: Error | null = null;
  const fail = (why: Error): void => {
    failure ??= explain(why, shown);
    changed();
  };
  channel.ended.addEventListener("abort", () => fail(channel.ended.reason as Error), { once: true });

  const receivedOf = (topic: string, tag: number, envelope: Envelope): Received => {
    const acknowledge = acks.note(tag);
    let acked = false;
    return {
      topic,
      envelope,
      async ack() {
        if (acked) return;
        acked = true;
        out -= 1;
        changed();
        if (channel.ended.aborted) {
          throw new WaybillError(
            "DESTINATION_UNAVAILABLE",
            `the channel that delivered event ${envelope.id} has ended: it is delivered again`,
          );
        }
        acknowledge();
      },
    };
  };

  for (const { topic, name } of queues) {
    await channel.consume(name, prefetch, (arrival) => {
      if (arrival === null) {
        return fail(
          new WaybillError(
            "DESTINATION_UNAVAILABLE",
            `${shown} has ended the reading of the queue ${name}: it was deleted, or lost its node`,
          ),
        );
      }
      const envelope = envelopeOf(arrival);
      if (envelope === null) {
        acks.note(arrival.tag);
        acks.pass(arrival.tag);
        return channel.reject(arrival.tag);
      }
      arrived.push(receivedOf(topic, arrival.tag, envelope));
      changed();
    });
  }
  return {
    queues: queues.map(({ name }) => name),
    get out() {
      return out;
    },
    next() {
      const received = arrived.shift();
      if (received !== undefined) out += 1;
      return received;
    },
    failure: () => failure,
    // Not by basic.cancel: the next receiver would be given newer messages while ours are not acknowledged.
    close: () => channel.close(),
  };
}
