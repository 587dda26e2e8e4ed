import type { Clock } from "../../core/clock.ts";
import type { Run } from "./connection.ts";
import { errnoOf } from "./driver.ts";
import type { Names } from "./names.ts";
import { bigOrNull, isSet, least } from "./rows.ts";

/** A lane as its row says, under lock. */
export interface LockedLane {
  readonly epoch: bigint;
  /** How often an operator has put rows back into it. */
  readonly reopened: bigint;
}

export interface Facts {
  /** Another one after each reconnection. */
  readonly link: object;
  /** Tells one server from another behind the same link. */
  readonly server: string;
  readonly lanes: ReadonlyMap<number, LockedLane>;
}

/** Where each lane's scan may begin. */
export interface Floors {
  /** Under the lanes' locks: forgets what another owner, server or link, or an operator, have made doubtful. */
  enter(facts: Facts): void;
  of(lane: number): bigint;
  /** False when an operator has put rows back into one of these lanes since they were last locked here. */
  current(lanes: Iterable<number>, reopened: bigint): boolean;
  /** Floors that a claim without any work would raise: an idle relay must not look over the same dead rows for ever. */
  moving(lanes: Iterable<number>): boolean;
  /** Looks at what is open now, if it is time to. Comes before the scan whose rows `raise` is told of. */
  look(run: Run, n: Names, nonce: string): Promise<void>;
  /** Rows came back into the lane; this is the lowest. */
  lower(lane: number, seq: bigint): void;
  /** The lane was scanned from its floor, and `lowest` is the lowest row that is not settled, be it met or in flight. */
  raise(lane: number, lowest: bigint | null): void;
  reset(): void;
}

interface Floor extends LockedLane {
  at: bigint;
}

/** Up to `drawn`, every number had been drawn. */
interface Pair {
  readonly drawn: bigint;
  readonly since: number;
  looks: number;
  /** The youngest transaction that may have drawn one of them and is not over; 0 for none, null while it is too early to tell. */
  newest: bigint | null;
}

const lookEveryMs = 100;
const idleLookEveryMs = 250;
/** A thread draws its number a few instructions before its transaction has an id. Nobody is off the processor for so long, and over so many looks. */
const marginMs = 1_000;
const marginLooks = 5;
const pairsKept = 100;
/** However a row came to lie below a floor, be it by somebody's hand, it is met within this time. */
const sweepMs = 300_000;
/** How long not to ask again once the right to see transactions was refused. */
const refusedMs = 600_000;

/**
 * A scan must not walk over the index entries of everything that was ever published, which stay for as long as any
 * transaction holds the purge back. Once all transactions are over that were open a while after number N had been drawn,
 * no row up to N can appear any more. A floor moves up to such an N, and never past a row that is not settled.
 */
export function createFloors(clock: Clock): Floors {
  const floors = new Map<number, Floor>();
  /** A link that still works leads to the server it always led to. */
  const links = new WeakSet();
  let server = "";
  let pairs: Pair[] = [];
  let proven = 0n;
  /** What was proven a look ago: by now whatever was being committed then is visible to every snapshot. */
  let usable = 0n;
  let drawn = 0n;
  let lookedAt = -Infinity;
  let sweptAt = clock.monotonic();

  const reset = (): void => {
    floors.clear();
    pairs = [];
    proven = usable = drawn = 0n;
  };

  const sweep = (): void => {
    if (clock.monotonic() - sweptAt < sweepMs) return;
    sweptAt = clock.monotonic();
    for (const floor of floors.values()) floor.at = 0n;
  };

  return {
    reset,
    enter(facts) {
      if (facts.server !== server || !links.has(facts.link)) reset();
      server = facts.server;
      links.add(facts.link);
      for (const [lane, { epoch, reopened }] of facts.lanes) {
        const known = floors.get(lane);
        if (known?.epoch !== epoch || known.reopened !== reopened) floors.set(lane, { epoch, reopened, at: 0n });
      }
      sweep();
    },
    of: (lane) => floors.get(lane)?.at ?? 0n,
    current(lanes, reopened) {
      let known = 0n;
      for (const lane of lanes) known += floors.get(lane)?.reopened ?? 0n;
      return known === reopened;
    },
    moving(lanes) {
      if (clock.monotonic() - lookedAt < idleLookEveryMs) return false;
      for (const lane of lanes) if ((floors.get(lane)?.at ?? drawn) < drawn) return true;
      return false;
    },
    async look(run, n, nonce) {
      const now = clock.monotonic();
      if (now - lookedAt < lookEveryMs) return;
      lookedAt = now;
      const listing = await listTransactions(run, n, nonce);
      if (listing === "refused") {
        reset();
        lookedAt = now + refusedMs;
        return;
      }
      if (listing.highest !== null && [...floors.values()].some(({ at }) => at > listing.highest!)) reset(); // the numbers begin anew
      if (!listing.fresh) return;
      usable = proven;
      for (const pair of pairs) {
        if (pair.newest === null && ++pair.looks >= marginLooks && now - pair.since >= marginMs) pair.newest = listing.newest ?? 0n;
      }
      const open = pairs.filter(({ newest }) => newest === null || (listing.oldest !== null && listing.oldest <= newest));
      for (const pair of pairs) if (!open.includes(pair) && pair.drawn > proven) proven = pair.drawn;
      pairs = open;
      if (listing.highest === null) return;
      if (listing.highest > drawn) drawn = listing.highest;
      if (pairs.length < pairsKept) pairs.push({ drawn: listing.highest, since: now, looks: 0, newest: null });
    },
    lower(lane, seq) {
      const floor = floors.get(lane);
      if (floor !== undefined && floor.at >= seq) floor.at = seq - 1n;
    },
    raise(lane, lowest) {
      const floor = floors.get(lane);
      const limit = lowest === null ? usable : least(usable, lowest - 1n);
      if (floor !== undefined && limit > floor.at) floor.at = limit;
    },
  };
}

interface Listing {
  /** Of the transactions that may have written. */
  readonly oldest: bigint | null;
  readonly newest: bigint | null;
  readonly highest: bigint | null;
  /** The server gives everybody the same list for a while: it is of now only if it has this very statement in it. */
  readonly fresh: boolean;
}

/** Needs the privilege PROCESS. A transaction that has not written has the number 0, or one beyond 2^48. */
async function listTransactions(run: Run, n: Names, nonce: string): Promise<Listing | "refused"> {
  const wrote = "trx_id > 0 AND trx_id < 281474976710656 AND trx_mysql_thread_id <> CONNECTION_ID()";
  try {
    const [row] = await run(
      `SELECT MAX(trx_mysql_thread_id = CONNECTION_ID() AND LOCATE('${nonce}', trx_query) > 0) AS fresh,
         MIN(CASE WHEN ${wrote} THEN trx_id END) AS oldest, MAX(CASE WHEN ${wrote} THEN trx_id END) AS newest,
         (SELECT MAX(seq) FROM ${n.outbox}) AS highest, @@auto_increment_increment = 1 AS single
       FROM information_schema.INNODB_TRX`,
    );
    return {
      oldest: bigOrNull(row!, "oldest"),
      newest: bigOrNull(row!, "newest"),
      highest: bigOrNull(row!, "highest"),
      // Where several servers draw numbers, a lower one may come after a higher one.
      fresh: isSet(row, "fresh") && isSet(row, "single"),
    };
  } catch (error) {
    if (errnoOf(error) === 1227) return "refused";
    throw error;
  }
}
