import type { Inbox, InboxKey, Seat } from "../../contracts/inbox.ts";
import type { Clock } from "../../core/clock.ts";
import { marksEvent, parkedVersion } from "../kit/letters.ts";
import type { Database, MemoryTx } from "./database.ts";
import { keepLetter } from "./letters.ts";
import type { Tables } from "./tables.ts";

interface Mark {
  readonly handledAt: number;
  readonly handlerVersion: number;
}

export function createInbox(database: Database, clock: Clock, tables: Tables): Inbox<MemoryTx> {
  const { letters } = tables;
  const marks = new Map<string, Mark>();
  const failures = new Map<string, { count: number; lastError: string; failedAt: number }>();
  /** By the monotonic clock: all of this store is in one process, and a wall clock may step. */
  const seats = new Map<string, { owner: string; endsAt: number }>();

  return {
    once: (key, handlerVersion, work, letter) =>
      database.db.transaction(async (tx) => {
        const name = nameOf(key);
        const mark = marks.get(name);
        if (letter === undefined && mark?.handlerVersion === parkedVersion) return "parked";
        if (letter !== undefined && (letters.get(letter)?.redrivenAt ?? null) === null) return "seen";
        const first = mark === undefined || mark.handlerVersion === parkedVersion;
        if (first) await work(tx);
        database.changesOf(tx).marks.push(() => {
          if (first) marks.set(name, { handledAt: clock.now(), handlerVersion });
          if (letter !== undefined) letters.delete(letter);
          failures.delete(name);
        });
        return first ? "done" : "seen";
      }),
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
      if (taken !== undefined && taken.owner !== seat.owner && taken.endsAt > now) return false;
      seats.set(placeOf(seat), { owner: seat.owner, endsAt: now + ttlMs });
      return true;
    },
    leave: async (seat) => {
      if (seats.get(placeOf(seat))?.owner === seat.owner) seats.delete(placeOf(seat));
    },
  };
}

const nameOf = ({ consumer, id }: InboxKey): string => `${consumer}\0${id}`;
const isOf = (name: string, consumer: string): boolean => name.startsWith(`${consumer}\0`);
const placeOf = ({ consumer, topic }: Seat): string => `${consumer}\0${topic}`;
