import { createAckLedger } from "../../core/ack-ledger.ts";
import type { Channel } from "./driver.ts";

/** The acknowledgements of one channel. Those that come up together, and leave no gap behind them, are one. */
export interface Acks {
  /** Notes what has arrived; the answer acknowledges it. */
  note(tag: number): () => void;
  /** It was rejected, and needs no acknowledgement. */
  pass(tag: number): void;
}

export function createAcks(channel: Pick<Channel, "ack">): Acks {
  const ledger = createAckLedger<number>();
  const marks = new Map<number, () => void>();
  let fresh: number[] = [];

  const flush = (): void => {
    const [tags, upTo] = [fresh.sort((a, b) => a - b), ledger.settled ?? 0];
    fresh = [];
    const whole = tags.filter((tag) => tag <= upTo);
    const last = whole.at(-1);
    // The tag that is named must be one that the server still waits for; those below it may have been acknowledged before.
    if (last !== undefined) channel.ack(last, whole.length > 1);
    for (const tag of tags.slice(whole.length)) channel.ack(tag, false);
  };
  const mark = (tag: number): boolean => {
    const known = marks.get(tag);
    marks.delete(tag);
    known?.();
    return known !== undefined;
  };

  return {
    note(tag) {
      const settle = ledger.open(tag);
      marks.set(tag, () => void settle());
      return () => {
        if (!mark(tag)) return;
        if (fresh.push(tag) === 1) queueMicrotask(flush);
      };
    },
    pass: (tag) => void mark(tag),
  };
}
