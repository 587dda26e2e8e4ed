import type { Inbox, InboxKey, Seat } from "../../contracts/inbox.ts";
import type { Clock } from "../../core/clock.ts";
import { letterRow, type LetterRow } from "../../core/letter.ts";
import type { Database, MemoryTx } from "./database.ts";

interface Mark {
  readonly handledAt: number;
  readonly handlerVersion: number;
}

export function createInbox(database: Database, clock: Clock, letters: Map<string, LetterRow>): Inbox<MemoryTx> {
  const marks = new Map<string, Mark>();
  const failures = new Map<string, { count: number; lastError: string; failedAt: number }>();
  /** By the monotonic clock: all of this store is in one process, and a wall clock may step. */
  const seats = new Map<string, { owner: string; endsAt: number }>();

  return {
    once: (key, handlerVersion, work) =>
      database.db.transaction(async (tx) => {
        const name = nameOf(key);
        if (marks.has(name)) return "seen";
        await work(tx);
        database.changesOf(tx).marks.push(() => {
          marks.set(name, { handledAt: clock.now(), handlerVersion });
          failures.delete(name);
        });
        return "done";
      }),
    failed: async (key, error) => {
      const count = (failures.get(nameOf(key))?.count ?? 0) + 1;
      failures.set(nameOf(key), { count, lastError: error, failedAt: clock.now() });
      return count;
    },
    park: async (letter) => {
      const row = letterRow(letter);
      const name = JSON.stringify([row.consumer, row.topic, row.id, row.digest]);
      if (letters.has(name)) return;
      letters.set(name, { ...row, data: Uint8Array.from(row.data), raw: row.raw === null ? null : Uint8Array.from(row.raw) });
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
