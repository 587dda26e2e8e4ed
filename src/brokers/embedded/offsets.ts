import type { Clock } from "../../core/clock.ts";
import { asError } from "../../core/errors.ts";
import { createMutex } from "../../core/queue.ts";
import { bytesOf, type Statements } from "../../drivers/sqlite/connection.ts";
import type { Log } from "./log.ts";
import type { Mark, ReaderPlace, AckedRange } from "./place.ts";

/** Where each consumer stands. Notes are written soon, many in one transaction, never one each. */
export interface Offsets {
  /** Where a consumer continues in each topic. From its first call on, retention keeps messages that it has not acknowledged. */
  start(consumer: string, topics: readonly string[]): Promise<ReadonlyMap<string, Mark>>;
  /** How many messages of the topic the consumer has not acknowledged, by durable acks; null for a consumer unknown there. */
  undone(consumer: string, topic: string): Promise<number | null>;
  /** The mark of `place` has changed. */
  note(consumer: string, topic: string, place: Pick<ReaderPlace, "mark">): void;
  /** Resolves when everything noted so far is durable. */
  flush(): Promise<void>;
  /** Why the last write failed. Its notes are kept and written with the next. */
  readonly failure: Error | null;
}

interface Noted {
  readonly consumer: string;
  readonly topic: string;
}

const flushMs = 20;

export function createOffsets(log: Log, clock: Clock, closing: AbortSignal): Offsets {
  const mutex = createMutex();
  let acked = new Map<Pick<ReaderPlace, "mark">, Noted>();
  let scheduled = false;
  let failure: Error | null = null;

  const write = async (): Promise<void> => {
    if (acked.size === 0) return;
    const places = acked;
    const marks = [...places].map(([place, noted]) => ({ ...noted, ...place.mark() }));
    acked = new Map();
    try {
      const at = new Date(clock.now()).toISOString();
      await log.write((statements) => {
        for (const { consumer, topic, offset, beyond } of marks) {
          statements.run(advance, [consumer, topic, offset, JSON.stringify(beyond), at]);
        }
      });
      failure = null;
    } catch (error) {
      acked = new Map([...places, ...acked]);
      failure = asError(error);
      throw error;
    }
  };
  const flush = (): Promise<void> => mutex.run(write);
  const schedule = (): void => {
    if (scheduled) return;
    scheduled = true;
    const later = clock.sleep(flushMs, closing).then(() => {
      scheduled = false;
      return flush();
    });
    later.catch(() => undefined); // kept as `failure`, which every receiver throws
  };

  return {
    get failure() {
      return failure;
    },
    async start(consumer, topics) {
      await flush();
      const known = await log.read((statements) => positions(statements, consumer, topics));
      if (known.size === topics.length) return known;
      return log.write((statements) => {
        const at = new Date(clock.now()).toISOString();
        for (const topic of topics) statements.run(register, [consumer, topic, at]);
        return positions(statements, consumer, topics);
      });
    },
    undone: (consumer, topic) =>
      log.read((statements) => {
        const mark = positions(statements, consumer, [topic]).get(topic);
        if (mark === undefined) return null;
        const within = (from: number, to: number): number => Number(statements.get(count, [topic, from, to])!["messages"]);
        return mark.beyond.reduce((left, run) => left - within(...run), within(mark.offset + 1, Number.MAX_SAFE_INTEGER));
      }),
    note(consumer, topic, place) {
      acked.set(place, { consumer, topic });
      schedule();
    },
    flush,
  };
}

const count = `SELECT count(*) AS messages FROM waybill_broker_messages WHERE topic = ? AND "offset" BETWEEN ? AND ?`;

const register = `INSERT OR IGNORE INTO waybill_broker_consumers (consumer, topic, "offset", updated_at) VALUES (?, ?, 0, ?)`;

// Two readers of one consumer may overlap for a moment; the one that is behind must not move the offset back.
const advance = `INSERT INTO waybill_broker_consumers (consumer, topic, "offset", beyond, updated_at) VALUES (?, ?, ?, ?, ?)
  ON CONFLICT (consumer, topic) DO UPDATE SET "offset" = excluded."offset", beyond = excluded.beyond, updated_at = excluded.updated_at
  WHERE excluded."offset" >= "offset"`;

function positions(statements: Statements, consumer: string, topics: readonly string[]): Map<string, Mark> {
  const found = new Map<string, Mark>();
  for (const topic of topics) {
    const row = statements.get(
      `SELECT "offset", CAST(beyond AS BLOB) AS beyond FROM waybill_broker_consumers WHERE consumer = ? AND topic = ?`,
      [consumer, topic],
    );
    if (row !== undefined) found.set(topic, { offset: Number(row["offset"]), beyond: runsIn(row["beyond"]) });
  }
  return found;
}

/** Empty when it cannot be read: then more messages than necessary are delivered again, and none is lost. */
function runsIn(json: unknown): readonly AckedRange[] {
  try {
    const runs = JSON.parse(Buffer.from(bytesOf(json)).toString()) as readonly AckedRange[];
    let last = -Infinity;
    for (const [from, to] of runs) {
      if (!Number.isSafeInteger(from) || !Number.isSafeInteger(to) || from <= last || to < from) return [];
      last = to;
    }
    return runs;
  } catch {
    return [];
  }
}
