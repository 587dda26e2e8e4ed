import type { Outgoing, PublishResult } from "../../../contracts/sink.ts";
import { aggregateKey } from "../../../core/event.ts";
import { skipped, stored } from "../../kit/results.ts";

/**
 * What a publish still has to do. A message has its result, or waits, or is skipped because an earlier one of its aggregate was not stored.
 * While everything is stored, no aggregate is looked at: see `loadFlights` for what keeps them in order.
 */
export interface Remainder {
  readonly results: readonly PublishResult[];
  /** The places of the messages that wait, in the order given. */
  waiting(): readonly number[];
  isWaiting(index: number): boolean;
  store(indexes: readonly number[]): void;
  /** It was not stored: later messages of its aggregate will not be sent. */
  stop(index: number, result: PublishResult): void;
  /** Nothing more can be sent. */
  stopAll(result: PublishResult): void;
}

export function createRemainder(messages: readonly Outgoing[]): Remainder {
  const results = messages.map(() => skipped);
  /** By aggregate: the first of its messages that was not stored. */
  const stops = new Map<string, number>();
  let left: readonly number[] = messages.map((_, index) => index);

  const keyOf = (index: number): string => aggregateKey(messages[index]!.envelope);
  const isBehind = (index: number): boolean => stops.size > 0 && index > (stops.get(keyOf(index)) ?? Infinity);
  const isWaiting = (index: number): boolean => results[index] === skipped && !isBehind(index);
  const stop = (index: number, result: PublishResult): void => {
    results[index] = result;
    const aggregate = keyOf(index);
    const known = stops.get(aggregate);
    if (known !== undefined && known < index) return;
    // A later message was refused before it was sent, while this one was under way: its turn never comes.
    if (known !== undefined && known > index) results[known] = skipped;
    stops.set(aggregate, index);
  };

  return {
    ...{ results, isWaiting, stop },
    waiting: () => (left = left.filter(isWaiting)),
    store(indexes) {
      for (const index of indexes) results[index] = stored;
    },
    stopAll(result) {
      for (const index of left) if (isWaiting(index)) stop(index, result);
    },
  };
}
