import type { Clock } from "../../core/clock.ts";
import { WaybillError } from "../../core/errors.ts";
import type { Connection, Message } from "./driver.ts";

export interface Received {
  readonly reader: Reader;
  readonly message: Message;
}

/** Pulls the messages of one topic through its durable consumer, in the order of the stream. */
export interface Reader {
  readonly topic: string;
  /** Asks for as many, unless it has asked already. */
  ask(count: number): void;
  acknowledge(message: Message, how?: "+ACK" | "+TERM"): void;
  /** Resolves when the server has taken all acknowledgements, or cannot any more. */
  flush(): Promise<void>;
  /** Why nothing more will come. */
  failure(): WaybillError | null;
  close(): void;
}

export interface ReaderOptions {
  readonly connection: Connection;
  readonly clock: Clock;
  readonly topic: string;
  readonly stream: string;
  readonly durable: string;
  readonly take: (received: Received) => void;
  /** Called when there may be something to ask or to tell. */
  readonly changed: () => void;
}

const expiresMs = 5_000;
const graceMs = 5_000;
const text = new TextEncoder();

export function openReader({ connection, clock, topic, stream, durable, take, changed }: ReaderOptions): Reader {
  const inbox = connection.inbox();
  let pull = 0;
  let asked = 0;
  let overdueAt = Infinity;
  let last = 0;
  let lastAck: string | null = null;
  let failure: WaybillError | null = null;
  const fail = (why: string): void => {
    failure ??= new WaybillError("DESTINATION_UNAVAILABLE", why);
    changed();
  };

  const lost = (): void => fail(`the connection that ${topic} was read from has ended`);
  const unsubscribe = connection.subscribe(`${inbox}.*`, (message) => {
    if (message.status === 0) {
      const sequence = sequenceOf(message.reply);
      asked -= 1;
      // The server would deliver one again only if somebody had changed the consumer; it is in hand, or done with.
      if (sequence > last) {
        last = sequence;
        take({ reader, message });
      }
      return changed();
    }
    if (message.status === 100) return;
    if (message.status !== 408 && message.status !== 404) {
      return fail(
        `stream ${stream} has ended the reading of ${topic} with status ${message.status}: its consumer was deleted or taken over`,
      );
    }
    if (message.subject === `${inbox}.${pull}`) asked = 0;
    changed();
  });
  if (connection.over.aborted) lost();
  else connection.over.addEventListener("abort", lost, { once: true });

  const reader: Reader = {
    topic,
    ask(count) {
      if (asked > 0 || count <= 0) return;
      asked = count;
      pull += 1;
      overdueAt = clock.monotonic() + expiresMs + graceMs;
      const request = text.encode(JSON.stringify({ batch: count, expires: expiresMs * 1e6 }));
      connection.publish(`$JS.API.CONSUMER.MSG.NEXT.${stream}.${durable}`, request, `${inbox}.${pull}`);
    },
    acknowledge({ reply }, how = "+ACK") {
      lastAck = reply;
      connection.publish(reply, text.encode(how));
    },
    async flush() {
      const ack = lastAck;
      if (ack === null) return;
      lastAck = null;
      // Acknowledgements are taken in their order: when the last, given once more, is answered, all are.
      await connection.request({ subject: ack, data: text.encode("+ACK") });
    },
    failure() {
      // A consumer that is not there any more does not answer at all.
      if (asked > 0 && clock.monotonic() > overdueAt)
        fail(`stream ${stream} does not answer the reading of ${topic}: is its consumer gone?`);
      return failure;
    },
    close() {
      connection.over.removeEventListener("abort", lost);
      unsubscribe();
    },
  };
  return reader;
}

/** From `$JS.ACK.[domain.account.]stream.consumer.delivered.sequence.…`. */
function sequenceOf(reply: string): number {
  const parts = reply.split(".");
  return Number(parts[parts.length >= 11 ? 7 : 5] ?? 0);
}
