import type { Sink } from "../../contracts/sink.ts";
import type { Source } from "../../contracts/source.ts";
import { systemClock, type Clock } from "../../core/clock.ts";
import { WaybillError } from "../../core/errors.ts";
import { checkOptions, whole } from "../../core/options.ts";
import { shared } from "../../core/time.ts";
import { createLog, purge, type Log, type Message } from "./log.ts";
import { createSink } from "./sink.ts";
import { createSource } from "./source.ts";

export type { Message };

export interface MemoryBrokerOptions {
  readonly clock?: Clock;
  /** Creates a topic with its first message. @default true */
  readonly provision?: boolean;
  /** The largest message, attributes and headers included. @default 1048576 */
  readonly maxBytes?: number;
}

export interface MemoryBroker extends Sink, Source {
  readonly can: { readonly maxBytes: number; readonly assign: false };
  /** What the topic holds, oldest first. */
  messages(topic: string): readonly Message[];
  /** Another handle on the same messages and offsets, as another process would have it; closing one leaves the others open. */
  reopen(): MemoryBroker;
  provision(topics: readonly string[]): Promise<void>;
  /** Deletes messages older than `before`, and answers how many. It keeps what a known consumer has still to acknowledge. */
  purge(before: Date): Promise<number>;
}

/** Behaves like the embedded broker within one process, for tests and simulations. Nothing is durable. */
export function memoryBroker(options: MemoryBrokerOptions = {}): MemoryBroker {
  checkOptions("memoryBroker", options, ["clock", "provision", "maxBytes"]);
  return handle(createLog(), {
    clock: options.clock ?? systemClock,
    provision: options.provision ?? true,
    maxBytes: whole("maxBytes", options.maxBytes ?? 1024 * 1024),
  });
}

interface Settings {
  readonly clock: Clock;
  readonly provision: boolean;
  readonly maxBytes: number;
}

function handle(log: Log, settings: Settings): MemoryBroker {
  const closing = shared(new AbortController());
  return {
    name: "memory",
    can: { maxBytes: settings.maxBytes, assign: false },
    ...createSink({ log, ...settings, closing: closing.signal }),
    ...createSource({ log, clock: settings.clock, closing: closing.signal }),
    async connect(signal) {
      if (closing.signal.aborted || signal.aborted)
        throw new WaybillError("STOPPED", "the memory broker has been closed, or the signal aborted");
    },
    messages: (topic) => [...(log.topics.get(topic) ?? [])],
    reopen: () => handle(log, settings),
    async provision(topics) {
      for (const topic of topics) if (!log.topics.has(topic)) log.topics.set(topic, []);
    },
    purge: async (before) => purge(log, before),
    async [Symbol.asyncDispose]() {
      closing.abort();
    },
  };
}
