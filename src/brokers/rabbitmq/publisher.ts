import { shared } from "../../core/time.ts";
import type { Channel, Connection, Listener, OutgoingMessage } from "./driver.ts";

/** What became of a message that was sent. */
export type MessageFate =
  | { readonly is: "stored" }
  /** No queue was bound for it. */
  | { readonly is: "returned"; readonly why: string }
  /** A queue did not take it. */
  | { readonly is: "nacked" }
  /** Its channel ended first. Alone, it was the only one without an answer; on a fresh channel, none had had one before. */
  | { readonly is: "lost"; readonly error: Error; readonly alone: boolean; readonly fresh: boolean };

/** A confirm channel for one topic: what ends it, such as a message that is too large, concerns no other topic. */
export interface Publisher {
  /** Throws when it cannot be sent, and then has not been. */
  send(message: OutgoingMessage): Promise<MessageFate>;
  /** How many have no answer yet. */
  readonly pending: number;
  /** How many answers have come. */
  readonly heard: number;
  readonly ended: AbortSignal;
  /** What has no answer yet is lost, and nothing more is sent. */
  end(why: Error): void;
}

interface Pending {
  readonly id: string;
  returned: string | null;
  settle(fate: MessageFate): void;
}

/** `ready` looks at the exchange first, on the same channel. */
export async function openPublisher(
  connection: Connection,
  exchange: string,
  ready: (channel: Channel) => Promise<void>,
): Promise<Publisher> {
  /** By number; a Map keeps the order in which they were sent. */
  const pending = new Map<number, Pending>();
  let last = 0;
  let heard = 0;
  const settle = (tag: number, one: Pending, nacked: boolean): void => {
    pending.delete(tag);
    heard += 1;
    one.settle(nacked ? { is: "nacked" } : one.returned === null ? { is: "stored" } : { is: "returned", why: one.returned });
  };
  const listener: Listener = {
    confirmed({ as, tag, multiple }) {
      if (!multiple) {
        const one = pending.get(tag);
        if (one !== undefined) settle(tag, one, as === "nack");
        return;
      }
      for (const [sent, one] of pending) {
        if (sent > tag) return;
        settle(sent, one, as === "nack");
      }
    },
    // It comes before the message's own confirmation. Two with one id go to one topic, so that neither has a queue.
    returned(messageId, why) {
      for (const one of pending.values()) if (one.id === messageId && one.returned === null) return void (one.returned = why);
    },
  };
  const channel = await connection.openPublishing(listener);
  const lose = (error: Error): void => {
    const [alone, fresh] = [pending.size === 1, heard === 0];
    for (const [tag, one] of pending) {
      pending.delete(tag);
      one.settle({ is: "lost", error, alone, fresh });
    }
  };
  const over = shared(new AbortController());
  const end = (why: Error): void => {
    over.abort(why);
    lose(why);
  };
  channel.ended.addEventListener("abort", () => end(channel.ended.reason as Error), { once: true });
  await ready(channel);
  return {
    ended: over.signal,
    end(why) {
      end(why);
      void channel.close();
    },
    get pending() {
      return pending.size;
    },
    get heard() {
      return heard;
    },
    send: (message) =>
      new Promise((resolve) => {
        over.signal.throwIfAborted();
        channel.send(exchange, message);
        pending.set((last += 1), { id: message.messageId, returned: null, settle: resolve });
      }),
  };
}
