import type { Outgoing } from "../../contracts/sink.ts";
import { asError } from "../../core/errors.ts";
import { shared } from "../../core/time.ts";
import type { Channel, Connection, Listener } from "./driver.ts";
import { framesOf } from "./outgoing.ts";

/** What became of a message. */
export type MessageFate =
  | { readonly is: "stored" }
  /** No queue was bound for it. */
  | { readonly is: "returned"; readonly why: string }
  /** A queue did not take it. */
  | { readonly is: "nacked" }
  /** It cannot be sent because of its own content or size. */
  | { readonly is: "unfit"; readonly error: Error }
  /** The channel had ended before it was sent. */
  | { readonly is: "unsent"; readonly error: Error }
  /** The channel ended before the answer. `alone`: no other message was unanswered. `fresh`: no message had been answered before. */
  | { readonly is: "lost"; readonly error: Error; readonly alone: boolean; readonly fresh: boolean };

/** A confirm channel for one topic. Its end, as after a message that is too large, affects no other topic. */
export interface Publisher {
  /** Sends all messages in one write. `take` gets each one's fate once, with its place. Resolves when all have one; never rejects. */
  fly(messages: readonly Outgoing[], take: (fate: MessageFate, place: number) => void): Promise<void>;
  /** How many have no answer yet. */
  readonly pending: number;
  /** How many answers have come. */
  readonly heard: number;
  readonly ended: AbortSignal;
  /** Messages without an answer get the fate `lost`, and nothing more is sent. */
  end(why: Error): void;
}

interface PublisherOptions {
  readonly exchange: string;
  readonly topic: string;
  readonly maxBytes: number;
  /** Checks or declares the exchange on the same channel, before the first message. */
  ready(channel: Channel): Promise<void>;
}

/** Messages of one write. Their numbers are consecutive. */
interface Sent {
  readonly first: number;
  readonly ids: readonly string[];
  /** 1 for each that has no answer yet. */
  readonly open: Uint8Array;
  /** All before this one have an answer. */
  from: number;
  left: number;
  readonly returned: Map<number, string>;
  readonly take: (fate: MessageFate, i: number) => void;
  readonly land: () => void;
}

const stored: MessageFate = { is: "stored" };
const nacked: MessageFate = { is: "nacked" };

export async function openPublisher(connection: Connection, options: PublisherOptions): Promise<Publisher> {
  const { exchange, topic, maxBytes, ready } = options;
  /** In the order in which they were sent. */
  const under = new Set<Sent>();
  let last = 0;
  let heard = 0;
  let pending = 0;
  const settle = (sent: Sent, i: number, fate: MessageFate): void => {
    if (sent.open[i] !== 1) return;
    sent.open[i] = 0;
    pending -= 1;
    sent.take(fate, i);
    if (--sent.left > 0) return;
    under.delete(sent);
    sent.land();
  };
  const confirm = (sent: Sent, i: number, isNack: boolean): void => {
    if (sent.open[i] !== 1) return;
    heard += 1;
    const why = sent.returned.get(i);
    settle(sent, i, isNack ? nacked : why === undefined ? stored : { is: "returned", why });
  };
  const listener: Listener = {
    confirmed({ as, tag, multiple }) {
      for (const sent of under) {
        const end = Math.min(sent.ids.length, tag - sent.first + 1);
        if (end <= 0) return;
        if (!multiple && end === tag - sent.first + 1) return confirm(sent, end - 1, as === "nack");
        if (multiple) for (; sent.from < end; sent.from++) confirm(sent, sent.from, as === "nack");
      }
    },
    // It comes before the message's own confirmation. Two with one id go to one topic, so that neither has a queue.
    returned(messageId, why) {
      for (const sent of under) {
        const i = sent.ids.findIndex((id, at) => id === messageId && sent.open[at] === 1 && !sent.returned.has(at));
        if (i >= 0) return void sent.returned.set(i, why);
      }
    },
  };
  const channel = await connection.openPublishing(listener);
  const lose = (error: Error): void => {
    const fate: MessageFate = { is: "lost", error, alone: pending === 1, fresh: heard === 0 };
    for (const sent of under) for (let i = sent.from; i < sent.ids.length; i++) settle(sent, i, fate);
  };
  const over = shared(new AbortController());
  const end = (why: Error): void => {
    over.abort(why);
    lose(why);
  };
  channel.ended.addEventListener("abort", () => end(channel.ended.reason as Error), { once: true });
  await ready(channel);
  const route = { channel: channel.number, frameMax: channel.frameMax, exchange, topic, maxBytes };
  return {
    ended: over.signal,
    end(why) {
      end(why);
      void channel.close();
    },
    get pending() {
      return pending;
    },
    get heard() {
      return heard;
    },
    async fly(messages, take) {
      const fit = new Uint8Array(messages.length).fill(1);
      const frames = framesOf(route, messages, (place, error) => {
        fit[place] = 0;
        take({ is: "unfit", error }, place);
      });
      const places = Array.from(messages.keys()).filter((place) => fit[place] === 1);
      if (places.length === 0) return;
      try {
        over.signal.throwIfAborted();
        channel.write(frames);
      } catch (error) {
        return places.forEach((place) => take({ is: "unsent", error: asError(error) }, place));
      }
      const answered = connection.await();
      await new Promise<void>((land) => {
        const ids = places.map((place) => messages[place]!.envelope.id);
        const numbers = { first: last + 1, from: 0, left: ids.length, open: new Uint8Array(ids.length).fill(1) };
        under.add({ ...numbers, ids, returned: new Map(), take: (fate, i) => take(fate, places[i]!), land });
        last += ids.length;
        pending += ids.length;
      });
      answered();
    },
  };
}
