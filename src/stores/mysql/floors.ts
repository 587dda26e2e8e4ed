import type { Clock } from "../../core/clock.ts";
import type { Random } from "../../core/random.ts";
import type { Run } from "./connection.ts";
import { errnoOf } from "./driver.ts";
import type { Names } from "./names.ts";
import { bigOrNull, isSet, least, numberOf, textOrNull } from "./rows.ts";

/** A lane's row, read under its lock. */
export interface LockedLane {
  readonly epoch: bigint;
  /** How often an operator has put rows back into it. */
  readonly reopened: bigint;
}

interface Facts {
  /** Another one after each reconnection. */
  readonly link: object;
  /** Tells one server from another behind the same link. */
  readonly server: string;
  readonly lanes: ReadonlyMap<number, LockedLane>;
}

/** Lanes, each with the epoch under which it is held. */
type Held = ReadonlyMap<number, bigint>;

/** Where each lane's scan may begin. What was learnt about a lane under another epoch counts for nothing. */
export interface Floors {
  /** A new link may lead to another server, and the floors are not proven there. */
  meet(link: object): void;
  /** Under the lanes' locks: forgets floors that a new owner, server or link, an operator, or their age has made doubtful. */
  enter(facts: Facts): void;
  of(lane: number, epoch: bigint): bigint;
  /** False when a claim would forget one of these floors: a look from there may have missed rows. */
  current(held: Held, reopened: bigint): boolean;
  /** True when a claim without any work would raise a floor: an idle relay must not scan the same dead rows forever. */
  moving(held: Held): boolean;
  /** Looks at the open transactions, if it is time to. Must come before the scan whose rows are given to `raise`. */
  look(run: Run, n: Names, nonce: string): Promise<void>;
  /** Rows came back into the lane; this is the lowest. */
  lower(lane: number, seq: bigint): void;
  /** The lane was scanned from its floor. `lowest` is the lowest row that is not settled, whether the scan met it or it is in flight. */
  raise(lane: number, lowest: bigint | null): void;
  reset(): void;
}

interface Floor extends LockedLane {
  at: bigint;
  readonly since: number;
}

/**
 * What is known of the numbers that the table has drawn. A number N is first `drawn`. For a few looks it is too early to say which
 * transactions may have drawn it. Then N waits for the youngest transaction of that moment. When it and all older ones are over, no row up
 * to N can appear any more: N is `proven`. One look later N is `usable`: commits that were under way are then visible to every snapshot.
 */
interface Proof {
  readonly drawn: bigint;
  readonly proven: bigint;
  readonly usable: bigint;
  /** The numbers that are not proven yet. */
  readonly waiting: readonly Waiting[];
}

interface Waiting {
  readonly drawn: bigint;
  readonly looks: number;
  /** The youngest transaction that may have drawn a number up to this one; 0 for none, null while it is too early to tell. */
  readonly newest: bigint | null;
}

const unproven: Proof = { drawn: 0n, proven: 0n, usable: 0n, waiting: [] };

/** The step from one look at the open transactions to the next. */
export function proofAfter({ drawn, proven, waiting }: Proof, { oldest, newest, highest }: Reading): Proof {
  const looked = waiting.map((each): Waiting => {
    const looks = each.looks + 1;
    return { ...each, looks, newest: each.newest ?? (looks < marginLooks ? null : (newest ?? 0n)) };
  });
  const isOver = (each: Waiting): boolean => each.newest !== null && (oldest === null || oldest > each.newest);
  const open = looked.filter((each) => !isOver(each));
  return {
    drawn: most(drawn, highest ?? 0n),
    proven: most(proven, ...looked.filter(isOver).map((each) => each.drawn)),
    usable: proven,
    waiting: highest === null || open.length >= waitingKept ? open : [...open, { drawn: highest, looks: 0, newest: null }],
  };
}

const most = (...numbers: readonly bigint[]): bigint => numbers.reduce((a, b) => (a > b ? a : b));

/**
 * The server refreshes its list of transactions only after a tenth of a second without any reader. Readers that come too often keep it old
 * for all of them. So a relay reads it seldom, at no fixed moment, and more seldom after an old list.
 */
const lookEveryMs = 1_000;
const longestWait = 8;
/** A thread draws its number a few instructions before its transaction has an id. No thread is off the processor for so many looks. */
const marginLooks = 3;
const waitingKept = 100;
/** A row that lies below a floor for whatever reason, plain SQL included, is found within this time. */
const sweepMs = 300_000;
/** How long to wait before asking again once the server refused to show transactions. */
const refusedMs = 600_000;
/** The server silently cuts its list off at 16 MiB; a transaction with its locks takes a few KiB at most. */
const longestList = 2_000;

/**
 * A scan must not walk over the index entries of everything that was ever published. They stay for as long as any transaction holds
 * InnoDB's purge back. Once all transactions that were open a while after number N had been drawn are over, no row up to N can appear any
 * more. A floor moves up to such an N, and never past a row that is not settled.
 */
export function createFloors(clock: Clock, random: Random): Floors {
  const floors = new Map<number, Floor>();
  /** Links that were seen before: one that still works leads to the server it always led to. */
  const links = new WeakSet();
  let server = "";
  let proof = unproven;
  let nextLook = -Infinity;
  let wait = 1;

  const reset = (): void => {
    floors.clear();
    proof = unproven;
  };
  const meet = (link: object): void => {
    if (!links.has(link)) reset();
    links.add(link);
  };
  const isOld = ({ since }: Floor): boolean => clock.monotonic() - since >= sweepMs;

  return {
    reset,
    meet,
    enter(facts) {
      meet(facts.link);
      if (facts.server !== server) reset();
      server = facts.server;
      for (const [lane, { epoch, reopened }] of facts.lanes) {
        const known = floors.get(lane);
        if (known?.epoch !== epoch || known.reopened !== reopened || isOld(known))
          floors.set(lane, { epoch, reopened, at: 0n, since: clock.monotonic() });
      }
    },
    of(lane, epoch) {
      const floor = floors.get(lane);
      return floor?.epoch === epoch ? floor.at : 0n;
    },
    current(held, reopened) {
      let known = 0n;
      for (const [lane, epoch] of held) {
        const floor = floors.get(lane);
        if (floor?.epoch !== epoch || isOld(floor)) return false;
        known += floor.reopened;
      }
      return known === reopened;
    },
    moving(held) {
      if (clock.monotonic() < nextLook) return false;
      return [...held.keys()].some((lane) => (floors.get(lane)?.at ?? proof.drawn) < proof.drawn);
    },
    async look(run, n, nonce) {
      const now = clock.monotonic();
      if (now < nextLook) return;
      const later = (): void => void (nextLook = now + wait * lookEveryMs * (1 + random.next()));
      later();
      const listing = await listTransactions(run, n, nonce);
      if (listing === "refused") {
        reset();
        nextLook = now + refusedMs;
        return;
      }
      // The highest row may have been deleted: only the table's own counter shows whether its numbers have restarted.
      if (listing.highest !== null && listing.highest < proof.drawn && (await nextNumber(run, n)) <= proof.drawn) reset();
      wait = listing.fresh ? Math.max(1, wait / 2) : Math.min(longestWait, 2 * wait);
      later();
      if (listing.fresh) proof = proofAfter(proof, listing);
    },
    lower(lane, seq) {
      const floor = floors.get(lane);
      if (floor !== undefined && floor.at >= seq) floor.at = seq - 1n;
    },
    raise(lane, lowest) {
      const floor = floors.get(lane);
      const limit = lowest === null ? proof.usable : least(proof.usable, lowest - 1n);
      if (floor !== undefined && limit > floor.at) floor.at = limit;
    },
  };
}

interface Reading {
  /** Of the transactions that may have written. */
  readonly oldest: bigint | null;
  readonly newest: bigint | null;
  /** The highest row. */
  readonly highest: bigint | null;
}

interface Listing extends Reading {
  /** All readers get one list for a while: it is current only with this very statement in it, and proves something only if it is whole. */
  readonly fresh: boolean;
}

/** Needs the privilege PROCESS. A transaction that has not written has the number 0, or one beyond 2^48. */
async function listTransactions(run: Run, n: Names, nonce: string): Promise<Listing | "refused"> {
  const wrote = "trx_id > 0 AND trx_id < 281474976710656 AND trx_mysql_thread_id <> CONNECTION_ID()";
  try {
    const [row] = await run(
      `SELECT COUNT(*) AS listed, MAX(trx_mysql_thread_id = CONNECTION_ID() AND LOCATE('${nonce}', trx_query) > 0) AS fresh,
         MIN(CASE WHEN ${wrote} THEN trx_id END) AS oldest, MAX(CASE WHEN ${wrote} THEN trx_id END) AS newest,
         (SELECT MAX(seq) FROM ${n.outbox}) AS highest, @@auto_increment_increment = 1 AS single
       FROM information_schema.INNODB_TRX`,
    );
    return {
      oldest: bigOrNull(row!, "oldest"),
      newest: bigOrNull(row!, "newest"),
      highest: bigOrNull(row!, "highest"),
      // Where several servers draw numbers, a lower one may come after a higher one.
      fresh: isSet(row, "fresh") && isSet(row, "single") && numberOf(row!, "listed") <= longestList,
    };
  } catch (error) {
    if (errnoOf(error) === 1227) return "refused";
    throw error;
  }
}

/** The number that the next row will get; 1 where the server does not show it. Statistics may be a day old, this is current. */
async function nextNumber(run: Run, n: Names): Promise<bigint> {
  const [row] = await run(`SHOW CREATE TABLE ${n.outbox}`);
  const [, next] = /^\).*\bAUTO_INCREMENT=(\d+)/m.exec(textOrNull(row!, "Create Table") ?? "") ?? [];
  return BigInt(next ?? 1);
}
