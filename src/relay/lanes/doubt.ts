import type { LaneTable } from "../../contracts/lease-store.ts";

/** For how many leases an owner may be spared. */
const doubtLeases = 3;

/** What a relay saw of the other relays at its last look. */
export interface Sight {
  readonly table: LaneTable;
  looked(table: LaneTable, now: number): void;
  /** The table, with the spared owners among the live relays. */
  sparing(now: number): LaneTable;
}

/**
 * A relay looks often. When a look is late, the same slow store may have kept the other relays from renewing. So this relay spares
 * them for a while before it takes them for dead. It does not spare them for ever: a store that is always slow must not keep
 * a dead relay's lanes. A look is late after a quarter of the lease: a relay renews when a third has passed, so a store that is slow enough
 * to let a lease expire delays the looks by more than that.
 */
export function createSight(leaseMs: number, firstLookBy: number): Sight {
  let table: LaneTable = { lanes: [], live: [], strategies: new Map() };
  let dueBy = firstLookBy;
  let doubtfulUntil = -Infinity;
  /** Owners that seem to be dead, since when that is doubtful, and their strategy in the look before. */
  const spared = new Map<string, { readonly since: number; readonly told: string | undefined }>();

  return {
    get table() {
      return table;
    },
    looked(seen, now) {
      const { strategies } = table;
      table = seen;
      if (now > dueBy) doubtfulUntil = now + leaseMs / 3;
      dueBy = now + leaseMs / 4;
      const live = new Set(table.live);
      const dead = new Set(table.lanes.flatMap(({ owner }) => (owner === null || live.has(owner) ? [] : [owner])));
      for (const owner of spared.keys()) if (!dead.has(owner)) spared.delete(owner);
      if (now >= doubtfulUntil) return;
      for (const owner of dead) if (!spared.has(owner)) spared.set(owner, { since: now, told: strategies.get(owner) });
    },
    sparing(now) {
      const doubtful = [...spared].filter(([, { since }]) => now < doubtfulUntil && now - since < doubtLeases * leaseMs);
      const told = doubtful.flatMap(([owner, { told }]) => (told === undefined ? [] : [[owner, told] as const]));
      return {
        lanes: table.lanes,
        live: [...table.live, ...doubtful.map(([owner]) => owner)],
        strategies: new Map([...table.strategies, ...told]),
      };
    },
  };
}
