import type { LaneTable } from "../../contracts/lease-store.ts";
import type { Clock } from "../../core/clock.ts";
import type { Cells } from "./status.ts";

/** A lease as its owner wrote it, and as it is read now. */
export interface WrittenLease {
  /** Distinguishes this renewal from the one before. */
  readonly renewal: string;
  /** How much of the lease is left, by the wall clock that it was written by. */
  readonly leftMs: number;
  readonly ttlMs: number;
}

/**
 * Whether other processes' leases have expired. A wall clock may step, so it is read once per renewal, when the renewal is first seen,
 * and believed for at most the lease's ttl. From then on the monotonic clock counts. A clock that steps back keeps no lease alive, and
 * one that steps forward ends no lease that was seen before. A lease that is expired when first seen counts as live for another half
 * of its ttl: its owner may be dead, or the clock has stepped, and a live owner renews within a third.
 */
export interface Expiry {
  isLive(name: string, lease: WrittenLease): boolean;
  /** Forgets all others. */
  keep(names: ReadonlySet<string>): void;
}

export function createExpiry(clock: Clock): Expiry {
  const seen = new Map<string, { readonly renewal: string; readonly endsAt: number }>();
  return {
    isLive(name, { renewal, leftMs, ttlMs }) {
      const now = clock.monotonic();
      let last = seen.get(name);
      if (last?.renewal !== renewal) {
        last = { renewal, endsAt: now + (leftMs > 0 ? Math.min(leftMs, ttlMs) : ttlMs / 2) };
        seen.set(name, last);
      }
      return last.endsAt > now;
    },
    keep(names) {
      for (const name of seen.keys()) if (!names.has(name)) seen.delete(name);
    },
  };
}

/** Keeps the rows of live relays. Forgets relays that have no row any more. */
export function createLiveRelays<Row>(clock: Clock, { text }: Cells<Row>, leaseOf: (row: Row) => WrittenLease): LiveRelays<Row> {
  const expiry = createExpiry(clock);
  return (rows) => {
    expiry.keep(new Set(rows.map((row) => text(row, "relay"))));
    return rows.filter((row) => expiry.isLive(text(row, "relay"), leaseOf(row)));
  };
}

type LiveRelays<Row> = (rows: readonly Row[]) => readonly Row[];

/** Reads rows that are lanes (lane, owner, epoch, now), and rows that are relays (relay, strategy and a lease). */
export function lookOf<Row>(
  rows: readonly Row[],
  { text, textOrNull, number, dateOrNull }: Cells<Row>,
  liveOf: LiveRelays<Row>,
): LaneTable {
  const live = liveOf(rows.filter((row) => textOrNull(row, "relay") !== null));
  const now = rows.map((row) => dateOrNull(row, "now")).find((date) => date !== null);
  return {
    ...(now === undefined ? {} : { now }),
    lanes: rows
      .filter((row) => textOrNull(row, "relay") === null)
      .map((row) => ({ lane: number(row, "lane"), owner: textOrNull(row, "owner"), epoch: BigInt(text(row, "epoch")) })),
    live: live.map((row) => text(row, "relay")),
    strategies: new Map(
      live.flatMap((row) => (textOrNull(row, "strategy") === null ? [] : [[text(row, "relay"), text(row, "strategy")] as const])),
    ),
  };
}
