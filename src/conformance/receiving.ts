import assert from "node:assert/strict";
import type { Delivery, Source, Subscription } from "../contracts/source.ts";
import type { Envelope } from "../core/event.ts";
import { sampleEvent, within } from "./corpus.ts";

export interface SourceHarness {
  /** Another source on the same broker, as a new process would have it; not connected yet. */
  open(): Promise<Source>;
  /** Two topics that are there, and empty. */
  readonly topics: readonly [string, string];
  /** Stores these events, in this order. */
  readonly store: (topic: string, events: readonly Envelope[]) => Promise<void>;
  /** Removes everything. */
  close(): Promise<void>;
}

export interface Receiving {
  /** The next `count`, or a failure when they do not come. */
  readonly take: (count: number) => Promise<readonly Delivery[]>;
  /** The next one, however long it takes; undefined at the end. */
  readonly next: () => Promise<Delivery | undefined>;
  return(): Promise<unknown>;
  /** Ends the iteration and closes the source, as a clean stop does. */
  close(): Promise<void>;
  readonly source: Source;
}

/** A harness, and how a test receives from it. */
export interface SourceBench extends SourceHarness {
  /** The first of the topics. */
  readonly topic: string;
  /** Opens, receives, and closes at the end of the test. */
  readonly receive: (subscription: Partial<Subscription>, signal?: AbortSignal) => Promise<Receiving>;
}

/** How long a test waits before it concludes that nothing comes. */
export const quietMs = 200;

export const many = (count: number): readonly Envelope[] => Array.from({ length: count }, () => sampleEvent());

export const eventIds = (events: readonly Envelope[]): string[] => events.map(({ id }) => id);

export const ids = (deliveries: readonly Delivery[]): string[] => eventIds(deliveries.map(({ envelope }) => envelope));

/** Connects, and receives what is asked for. */
export async function begin(
  source: Source,
  subscription: Subscription,
  signal: AbortSignal,
  { soonMs, againMs }: { readonly soonMs: number; readonly againMs: number },
): Promise<Receiving> {
  await within(soonMs, "connect", source.connect(new AbortController().signal));
  const iterator = source.receive(subscription, signal)[Symbol.asyncIterator]();
  const next = async (): Promise<Delivery | undefined> => {
    const result = await iterator.next();
    return result.done === true ? undefined : result.value;
  };
  const leave = async (): Promise<unknown> => iterator.return?.();
  return {
    source,
    next,
    return: leave,
    async take(count) {
      const taken: Delivery[] = [];
      while (taken.length < count) {
        const delivery = await within(againMs, `delivery ${taken.length + 1} of ${count}`, next());
        assert.ok(delivery !== undefined, `the iteration ended after ${taken.length} of ${count}`);
        taken.push(delivery);
      }
      return taken;
    },
    async close() {
      await within(soonMs, "return", leave());
      await within(soonMs, "close", source[Symbol.asyncDispose]());
    },
  };
}
