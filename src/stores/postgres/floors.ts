import type { Claim, Holding } from "../../contracts/outbox-store.ts";
import type { Clock } from "../../core/clock.ts";
import type { Reach } from "./pending.ts";

/** What a claim learnt, to be kept once it is committed. */
export interface Sighting {
  /** The floors' `turn()` when the claim began. */
  readonly turn: number;
  /** Lanes into which rows came back, with the highest floor that each may have. */
  readonly reopened: ReadonlyMap<number, bigint>;
  /** How often an operator has put rows back into each lane. */
  readonly redrives: ReadonlyMap<number, bigint>;
  /** The highest event that the claim took; null where it took none. */
  readonly anchor: Anchor | null;
  /** Null where the claim did not scan from the floors. */
  readonly proof: Proof | null;
}

interface Proof {
  /** The highest number that had been drawn before the claim began. */
  readonly drawn: bigint;
  /** The claim's own transaction id, assigned after `drawn` was read; 0 when the claim took nothing and needed none. */
  readonly xid: bigint;
  /** The oldest transaction that was running when the scan looked. */
  readonly oldest: bigint;
  /** Each lane that the claim scanned, with the number up to which the relay has claimed all rows; null where the claim left none. */
  readonly upTo: ReadonlyMap<number, bigint | null>;
}

/** An event that was claimed, by which its number is known again. */
export interface Anchor {
  readonly seq: bigint;
  readonly id: string;
}

interface Facts {
  /** Another event has the number of an anchor. */
  readonly displaced: boolean;
  /** Distinguishes servers, and restarts of one server. */
  readonly server: string;
  readonly drawn: bigint;
  readonly redrives: ReadonlyMap<number, bigint>;
  readonly reach: Reach;
}

/** What must still be true for the floors to count. */
export interface Expected {
  readonly turn: number;
  readonly server: string;
  /** The highest number that was seen drawn. */
  readonly highest: bigint;
  readonly anchors: readonly Anchor[];
  readonly redrives: ReadonlyMap<number, bigint>;
  readonly floors: ReadonlyMap<number, bigint>;
}

/** Where each lane's scan may begin. */
export interface Floors {
  /** The current floors of these lanes, for a claim that itself checks whether they still count; null when one of them is unknown. */
  expect(holding: Holding): Expected | null;
  /** The highest events of the latest claims. Some may be invisible for a while when their numbers are drawn again, so there are several. */
  anchors(): readonly Anchor[];
  /** Resets floors that a new epoch, server or redrive, or a number that stepped back, makes doubtful; then returns these lanes' floors. */
  of(holding: Holding, facts: Facts): ReadonlyMap<number, bigint>;
  /** Changes when a settle has given rows back, or may have. */
  turn(): number;
  /** By lane: rows above this number may be pending again. */
  reopen(relay: string, lanes: ReadonlyMap<number, bigint>): void;
  /** Rows are about to come back, and no floor rises meanwhile. The answer ends that, and reopens the lanes. */
  reopening(relay: string): (lanes: ReadonlyMap<number, bigint>) => void;
  /** Whether an operator has put rows back into the lane since its floor was last checked. */
  stale(holding: Holding, lane: number, redrives: bigint): boolean;
  learn(holding: Holding, sighting: Sighting): void;
  reset(): void;
}

interface Floor {
  readonly epoch: bigint;
  at: bigint;
  redrives: bigint | null;
}

/** An old row that plain SQL sets back to PENDING is found within this time. */
const trustedForMs = 300_000;
const pairsKept = 1_000;
const anchorsKept = 4;

/**
 * A scan must not walk over the index entries of everything ever published: they stay as long as any transaction holds the vacuum horizon.
 * Each transaction gets its id before it draws a number. Take a claim that began after number N was drawn: once all transactions older than
 * that claim have ended, no row up to N can appear any more. A floor moves only up to such an N, proven by the scan's own snapshot, and
 * never past a row that its relay has not claimed.
 *
 * A floor does move past rows in flight. A row that is given back reopens its lane. A claim that is under way meanwhile may have looked
 * before that, so it must not move a floor.
 */
export function createFloors(clock: Clock): Floors {
  const relays = new Map<string, Map<number, Floor>>();
  let pairs: { readonly drawn: bigint; readonly xid: bigint }[] = [];
  let highest = 0n;
  let anchors: readonly Anchor[] = [];
  let seenServer = "";
  let reached: Reach = { tail: 0n, detour: false };
  let since = clock.monotonic();
  let turn = 0;
  let comingBack = 0;

  const reset = (): void => {
    turn += 1;
    relays.clear();
    pairs = [];
    highest = 0n;
    anchors = [];
    since = clock.monotonic();
  };
  const floorsOf = ({ relay, lanes }: Holding): Map<number, Floor> => {
    const before = relays.get(relay);
    const now = new Map(
      [...lanes].map(([lane, epoch]) => {
        const known = before?.get(lane);
        return [lane, known?.epoch === epoch ? known : { epoch, at: 0n, redrives: null }];
      }),
    );
    // A claim may leave lanes out for a while: their floors stay.
    relays.set(relay, new Map([...(before ?? []), ...now]));
    return now;
  };

  const lower = (floors: ReadonlyMap<number, Floor> | undefined, lanes: ReadonlyMap<number, bigint>): void => {
    for (const [lane, below] of lanes) {
      const floor = floors?.get(lane);
      if (floor !== undefined && floor.at > below) floor.at = below;
    }
  };

  return {
    reset,
    turn: () => turn,
    anchors: () => anchors,
    reopen(relay, lanes) {
      turn += 1;
      lower(relays.get(relay), lanes);
    },
    reopening(relay) {
      turn += 1;
      comingBack += 1;
      return (lanes) => {
        comingBack -= 1;
        turn += 1;
        lower(relays.get(relay), lanes);
      };
    },
    of(holding, { displaced, server, drawn, redrives, reach }) {
      // Above a floor of the table's rows alone, the log's rows may be pending.
      const other = reach.detour !== reached.detour || reach.tail !== reached.tail;
      if (displaced || other || server !== seenServer || drawn < highest || clock.monotonic() - since > trustedForMs) reset();
      seenServer = server;
      reached = reach;
      highest = drawn;
      const floors = floorsOf(holding);
      for (const [lane, floor] of floors) {
        const count = redrives.get(lane) ?? null;
        if (floor.redrives !== count) floor.at = 0n;
        floor.redrives = count;
      }
      return new Map([...floors].map(([lane, { at }]) => [lane, at]));
    },
    expect({ relay, lanes }) {
      if (seenServer === "" || clock.monotonic() - since > trustedForMs) return null;
      const known = relays.get(relay);
      const [redrives, at] = [new Map<number, bigint>(), new Map<number, bigint>()];
      for (const [lane, epoch] of lanes) {
        const floor = known?.get(lane);
        // Below the log's floor, a plain scan would find what is published.
        if (floor?.epoch !== epoch || floor.redrives === null || floor.at < reached.tail || reached.detour) return null;
        redrives.set(lane, floor.redrives);
        at.set(lane, floor.at);
      }
      return { turn, server: seenServer, highest, anchors, redrives, floors: at };
    },
    stale: (holding, lane, redrives) => (relays.get(holding.relay)?.get(lane)?.redrives ?? redrives) !== redrives,
    learn(holding, { turn: began, reopened, redrives, anchor, proof }) {
      if (anchor !== null) anchors = [anchor, ...anchors].slice(0, anchorsKept);
      const floors = floorsOf(holding);
      lower(floors, reopened);
      for (const [lane, count] of redrives) {
        const floor = floors.get(lane);
        if (floor !== undefined) floor.redrives = count;
      }
      if (proof === null) return;
      if (proof.drawn > highest) highest = proof.drawn;
      if (proof.xid !== 0n) pairs.push({ drawn: proof.drawn, xid: proof.xid });
      if (pairs.length > pairsKept) pairs = pairs.filter((_, at) => at % 2 === 1); // a writer stays open: coarser steps will do
      const ended = pairs.filter((pair) => pair.xid <= proof.oldest);
      const proven = ended.at(-1)?.drawn;
      if (proven === undefined) return;
      pairs = pairs.slice(ended.length - 1);
      if (began !== turn || comingBack > 0) return;
      for (const [lane, upTo] of proof.upTo) {
        const floor = floors.get(lane);
        const limit = upTo === null ? proven : least(proven, upTo);
        if (floor !== undefined && limit > floor.at) floor.at = limit;
      }
    },
  };
}

export const least = (...numbers: readonly bigint[]): bigint => numbers.reduce((a, b) => (a < b ? a : b));

/** The id of a row that cannot be carried may be told otherwise than it is stored. */
export const highestOf = (claims: readonly Claim[]): Anchor | null =>
  claims.reduce<Anchor | null>(
    (top, { unreadable, envelope: { seq, id } }) => (unreadable === undefined && (top === null || seq > top.seq) ? { seq, id } : top),
    null,
  );
