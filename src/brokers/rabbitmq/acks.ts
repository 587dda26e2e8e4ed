import { createAckLedger } from "../kit/ack-ledger.ts";
import type { Channel } from "./driver.ts";

/** The acknowledgements of one channel. Those that come together, with no unacknowledged tag below them, are sent as one. */
interface Acks {
  /** Notes a delivery. The returned function acknowledges it. */
  note(tag: number): () => void;
}

export function createAcks(channel: Pick<Channel, "ack">): Acks {
  const ledger = createAckLedger<number>();
  let fresh: number[] = [];

  const flush = (): void => {
    const [tags, upTo] = [fresh.sort((a, b) => a - b), ledger.settled ?? 0];
    fresh = [];
    const whole = tags.filter((tag) => tag <= upTo);
    const last = whole.at(-1);
    // The tag that is sent must be one that the server still waits for. Tags below it may have been acknowledged before.
    if (last !== undefined) channel.ack(last, whole.length > 1);
    for (const tag of tags.slice(whole.length)) channel.ack(tag, false);
  };

  return {
    note(tag) {
      const settle = ledger.open(tag);
      let open = true;
      return () => {
        if (!open) return;
        open = false;
        settle();
        if (fresh.push(tag) === 1) queueMicrotask(flush);
      };
    },
  };
}
