import { WaybillError } from "../../../core/errors.ts";
import { orAborted } from "../../../core/time.ts";
import type { Link } from "../link.ts";
import type { Identity } from "../reading/transactions.ts";
import { openProducer, type Producer } from "./producer.ts";

/** Each publish has a producer to itself, so it cannot disturb the sequence numbers of other publishes. */
export interface Producers {
  /** An idle producer, or a new one; waits while too many are in use. */
  take(signal: AbortSignal): Promise<Producer>;
  give(producer: Producer): void;
  close(): void;
}

interface ProducersOptions {
  readonly link: Link;
  /** Null without transactions. The names of our transactions begin with `prefix`, which no other client uses. */
  readonly transactions: { readonly prefix: string; readonly timeoutMs: number } | null;
}

/** Each has a connection to every broker that it writes to. */
const most = 32;

export function createProducers({ link, transactions }: ProducersOptions): Producers {
  const idle: { readonly slot: number; readonly producer: Producer }[] = [];
  const used = new Map<Producer, number>();
  /** No more than there were producers at once: each new one takes one of them first. */
  const heirs: Identity[] = [];
  const taken = new Set<number>();
  const waiting = new Set<() => void>();
  let closed = false;

  const free = (slot: number): void => {
    taken.delete(slot);
    for (const go of waiting) go();
  };
  const room = async (signal: AbortSignal): Promise<void> => {
    while (idle.length === 0 && taken.size >= most && !closed) {
      let go = (): void => undefined;
      const freed = new Promise<void>((resolve) => waiting.add((go = resolve)));
      await orAborted(freed, signal, () => {
        throw new WaybillError("DESTINATION_UNAVAILABLE", `${most} other publishes to ${link.shown} have not ended`);
      }).finally(() => waiting.delete(go));
    }
  };

  return {
    async take(signal) {
      await room(signal);
      if (closed) throw new WaybillError("STOPPED", `the connection to ${link.shown} was closed`);
      const ready = idle.pop();
      if (ready !== undefined) {
        used.set(ready.producer, ready.slot);
        return ready.producer;
      }
      // The next producer of a slot has the same name: it ends a transaction left open, and fences requests that may still arrive for it.
      let slot = 0;
      while (taken.has(slot)) slot += 1;
      taken.add(slot);
      try {
        const own = transactions === null ? null : { name: `${transactions.prefix}-${slot}`, timeoutMs: transactions.timeoutMs };
        const producer = await openProducer(link, own, signal, heirs.pop());
        used.set(producer, slot);
        return producer;
      } catch (error) {
        free(slot);
        throw error;
      }
    },
    give(producer) {
      const slot = used.get(producer);
      if (slot === undefined) return;
      used.delete(producer);
      if (producer.spent || closed) {
        producer.end();
        if (producer.heir !== null) heirs.push(producer.heir);
        free(slot);
      } else {
        idle.push({ slot, producer });
        for (const go of waiting) go();
      }
    },
    close() {
      closed = true;
      for (const { producer } of idle.splice(0)) producer.end();
      for (const producer of used.keys()) producer.end();
      for (const go of waiting) go();
    },
  };
}
