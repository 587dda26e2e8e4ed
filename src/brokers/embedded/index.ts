import type { Examination } from "../../contracts/doctor.ts";
import type { Sink } from "../../contracts/sink.ts";
import type { Source } from "../../contracts/source.ts";
import { systemClock, type Clock } from "../../core/clock.ts";
import { WaybillError } from "../../core/errors.ts";
import { checkOptions, positive, whole } from "../../core/options.ts";
import type { Wake } from "../../core/wake.ts";
import type { OpenSqlite } from "../../drivers/sqlite/driver.ts";
import { orAborted, shared } from "../../core/time.ts";
import { createExamination } from "./examine.ts";
import { createLog } from "./log.ts";
import { createOffsets } from "./offsets.ts";
import { purge } from "./retention.ts";
import { addTopics, createSink } from "./sink.ts";
import { createSource } from "./source.ts";

export interface EmbeddedOptions {
  /** The file; may be the outbox's own. Its folder must exist. */
  readonly path: string;
  /** A SQLite client to use instead of the one that is found. */
  readonly open?: OpenSqlite;
  readonly clock?: Clock;
  /** Creates a topic with its first message. @default true */
  readonly provision?: boolean;
  /** The largest message, attributes and headers included. @default 1048576 */
  readonly maxBytes?: number;
  /** How long a source that found nothing waits before it polls again. @default 50 */
  readonly pollIntervalMs?: number;
  /** How long to wait for other processes' locks. @default 5000 */
  readonly lockTimeoutMs?: number;
}

export interface Embedded extends Sink, Source, Examination {
  readonly can: { readonly maxBytes: number; readonly assign: false };
  /** Creates the tables and these topics; existing ones stay as they are. */
  provision(topics: readonly string[]): Promise<void>;
  /**
   * Deletes messages older than `before`, and answers how many. It keeps every message that a known consumer of its topic has still to
   * acknowledge.
   */
  purge(before: Date): Promise<number>;
}

const known = ["path", "open", "clock", "provision", "maxBytes", "pollIntervalMs", "lockTimeoutMs"];

/** A durable log in a SQLite file that several processes may share. Its tables are created on first use. */
export function embedded(options: EmbeddedOptions): Embedded {
  checkOptions("embedded", options, known);
  if (typeof options.path !== "string") throw new WaybillError("INVALID_OPTION", `path must name a file, not ${String(options.path)}`);
  const clock = options.clock ?? systemClock;
  const maxBytes = whole("maxBytes", options.maxBytes ?? 1024 * 1024);
  const pollIntervalMs = positive("pollIntervalMs", options.pollIntervalMs ?? 50);
  const lockTimeoutMs = positive("lockTimeoutMs", options.lockTimeoutMs ?? 5_000);
  const closing = shared(new AbortController());
  const wakes = new Set<Wake>();
  const file = { path: options.path, open: options.open, clock, lockTimeoutMs };
  const log = createLog(file);
  const offsets = createOffsets(log, clock, closing.signal);
  const onStored = (): void => wakes.forEach((wake) => wake.notify());
  const provision = options.provision ?? true;
  const sink = createSink({ log, clock, provision, maxBytes, onStored });
  const source = createSource({ log, offsets, clock, pollIntervalMs, closing: closing.signal, wakes });

  let closed: Promise<void> | null = null;
  const close = async (): Promise<void> => {
    closing.abort();
    try {
      await offsets.flush();
    } finally {
      await log.close();
    }
  };

  return {
    name: "embedded",
    can: { maxBytes, assign: false },
    ...sink,
    ...source,
    ...createExamination(file, provision),
    connect: (signal) =>
      orAborted(log.open(), signal, () => {
        throw new WaybillError("STOPPED", `opening ${options.path} was called off`);
      }),
    async provision(topics) {
      if (topics.some((topic) => typeof topic !== "string" || topic === "")) {
        throw new WaybillError("INVALID_OPTION", `a topic must have a name: ${JSON.stringify(topics)}`);
      }
      const at = new Date(clock.now()).toISOString();
      await log.write((statements) => addTopics(statements, topics, at));
    },
    purge: (before) => purge(log, before),
    [Symbol.asyncDispose]: () => (closed ??= close()),
  };
}
