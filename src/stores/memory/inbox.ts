import type { Applied, Inbox, InboxKey, Seat } from "../../contracts/inbox.ts";
import type { Clock } from "../../core/clock.ts";
import { marksEvent, parkedVersion } from "../kit/letters.ts";
import { onceBy } from "../kit/once.ts";
import type { Database, MemoryTx } from "./database.ts";
import { keepLetter } from "./letters.ts";
import type { Tables } from "./tables.ts";

interface Mark {
  readonly handledAt: number;
  readonly handlerVersion: number;
}

export interface SeatRow {
  readonly consumer: string;
  readonly topic: string;
  /** Empty once it was left. */
  readonly owner: string;
  /** By the monotonic clock: all of this store is in one process, and a wall clock may step. */
  readonly endsAt: number;
  readonly seenAt: number;
}

export interface InboxTables {
  /** By consumer and topic. */
  readonly seats: Map<string, SeatRow>;
  /** By consumer and id. */
  readonly marks: Map<string, Mark>;
  readonly failures: Map<string, { readonly count: number; readonly lastError: string; readonly failedAt: number }>;
}

export function createInbox(database: Database, clock: Clock, tables: Tables, { seats, marks, failures }: InboxTables): Inbox<MemoryTx> {
  const { letters } = tables;

  return {
    once: onceBy(({ consumer, ids }, handlerVersion, work, letter) =>
      database.db.transaction(async (tx) => {
        if (letter !== undefined && (letters.get(letter)?.redrivenAt ?? null) === null) return ["seen"];
        const before = ids.map((id): Applied => {
          const mark = marks.get(nameOf({ consumer, id }));
          if (mark === undefined) return "done";
          if (mark.handlerVersion !== parkedVersion) return "seen";
          return letter === undefined ? "parked" : "done";
        });
        const fresh = new Set(ids.filter((_, at) => before[at] === "done"));
        if (fresh.size > 0) await work(tx, fresh, () => tx);
        database.changesOf(tx).marks.push(() => {
          for (const id of ids) {
            const name = nameOf({ consumer, id });
            if (fresh.has(id)) marks.set(name, { handledAt: clock.now(), handlerVersion });
            failures.delete(name);
          }
          if (letter !== undefined) letters.delete(letter);
        });
        return before;
      }),
    ),
    failed: async (key, error) => {
      const count = (failures.get(nameOf(key))?.count ?? 0) + 1;
      failures.set(nameOf(key), { count, lastError: error, failedAt: clock.now() });
      return count;
    },
    park: async (letter) => {
      keepLetter(tables, letter, clock.now());
      if (!marksEvent(letter)) return;
      const mark = nameOf({ consumer: letter.consumer, id: letter.envelope.id });
      failures.delete(mark);
      if (!marks.has(mark)) marks.set(mark, { handledAt: clock.now(), handlerVersion: parkedVersion });
    },
    forget: async (before, limit, consumer) => {
      const drop = <Kept>(from: Map<string, Kept>, at: (kept: Kept) => number): number => {
        const old = [...from].filter(([name, kept]) => at(kept) < before.getTime() && (consumer === undefined || isOf(name, consumer)));
        for (const [name] of old.slice(0, limit)) from.delete(name);
        return Math.min(old.length, limit);
      };
      return drop(marks, ({ handledAt }) => handledAt) + drop(failures, ({ failedAt }) => failedAt);
    },
    sit: async (seat, ttlMs) => {
      const now = clock.monotonic();
      const taken = seats.get(placeOf(seat));
      if (taken !== undefined && !["", seat.owner].includes(taken.owner) && taken.endsAt > now) return false;
      seats.set(placeOf(seat), { ...seat, endsAt: now + ttlMs, seenAt: clock.now() });
      return true;
    },
    leave: async (seat) => {
      if (seats.get(placeOf(seat))?.owner === seat.owner) seats.set(placeOf(seat), { ...seat, owner: "", endsAt: 0, seenAt: clock.now() });
    },
  };
}

const nameOf = ({ consumer, id }: InboxKey): string => `${consumer}\0${id}`;
const isOf = (name: string, consumer: string): boolean => name.startsWith(`${consumer}\0`);
const placeOf = ({ consumer, topic }: Seat): string => `${consumer}\0${topic}`;
