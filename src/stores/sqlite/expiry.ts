import type { Clock } from "../../core/clock.ts";

/** A lease as its owner wrote it: by the wall clock of that moment. */
export interface WrittenLease {
  readonly expiresAt: string;
  readonly ttlMs: number;
}

/**
 * Whether other processes' leases have run out. A wall clock may step, so it is believed once for each renewal, when
 * that is first seen, and for no longer than the lease was made for; from then on the monotonic clock counts. A clock
 * that steps back keeps nobody's lease, and one that steps forward ends none that was seen before.
 */
export interface Expiry {
  isLive(name: string, lease: WrittenLease): boolean;
  /** Forgets all others. */
  keep(names: ReadonlySet<string>): void;
}

export function createExpiry(clock: Clock): Expiry {
  const seen = new Map<string, { readonly expiresAt: string; readonly endsAt: number }>();
  return {
    isLive(name, { expiresAt, ttlMs }) {
      const now = clock.monotonic();
      let last = seen.get(name);
      // A renewal may by chance be written with the moment of the one before, but not twice in a row, and two are less than a lease.
      if (last?.expiresAt !== expiresAt) {
        last = { expiresAt, endsAt: now + Math.min(Date.parse(expiresAt) - clock.now(), ttlMs) };
        seen.set(name, last);
      }
      return last.endsAt > now;
    },
    keep(names) {
      for (const name of seen.keys()) if (!names.has(name)) seen.delete(name);
    },
  };
}
