import type { Coordinator, Work } from "../../contracts/coordinator.ts";
import type { LaneTable, LeaseStore } from "../../contracts/lease-store.ts";
import type { Clock } from "../../core/clock.ts";
import { asError, isWaybillError } from "../../core/errors.ts";
import type { Failpoints } from "../../core/failpoints.ts";
import type { Observe } from "../../core/path-events.ts";
import { LANES } from "../../core/lane.ts";
import type { Random } from "../../core/random.ts";
import { type Self, shares, type Strategy } from "./strategies.ts";

export interface LeasesOptions {
  readonly leases: LeaseStore;
  readonly relay: string;
  readonly strategy: Strategy;
  readonly leaseMs: number;
  /** How many events the relay may have claimed and not settled at once; shown in status. */
  readonly window: number;
  readonly clock: Clock;
  readonly random: Random;
  readonly failpoints: Failpoints;
  readonly observe: Observe;
}

/** Lanes given back by a clean stop are noticed within this share of the lease. */
const looksPerLease = 40;
/** Where lanes are had in turns, a turn is at least this share of the lease. */
const turnsPerLease = 20;
/** For how many leases an owner may be spared. */
const doubtLeases = 3;

/**
 * Expiry is judged by the database's clock. Trust in one's own lease is judged by the monotonic clock, counted from
 * before the renewal was sent and ending a fifth of the lease early, so that this side always gives up first.
 */
export function createLeases(options: LeasesOptions): Coordinator {
  const { leases, relay, strategy, leaseMs, clock, observe } = options;
  const lanes = new Map<number, bigint>();
  const wonAt = new Map<number, number>();
  const leavingLanes = new Set<number>();
  let trustedUntil = -Infinity;
  let renewedUntil = -Infinity;
  let renewedAt = -Infinity;
  let table: LaneTable = { lanes: [], live: [], strategies: new Map() };
  let lookDueBy = Infinity;
  let doubtfulUntil = -Infinity;
  /** Owners that seem to be dead, since when that is doubtful, and the strategy they had told. */
  const spared = new Map<string, { readonly since: number; readonly told: string | undefined }>();
  let from = Math.floor(options.random.next() * LANES);

  const drop = (gone: readonly number[]): void => {
    const held = gone.filter((lane) => lanes.delete(lane) || leavingLanes.has(lane));
    for (const lane of held) leavingLanes.delete(lane);
    if (held.length > 0) observe({ type: "lanes.lost", relay, lanes: held });
  };

  const renew = async (): Promise<void> => {
    await options.failpoints.hit("before-renew", []);
    const asked = clock.monotonic();
    await leases.renew(relay, leaseMs, options.window, strategy.name);
    renewedAt = asked;
    renewedUntil = asked + leaseMs * 0.8;
  };

  /**
   * Looks follow each other closely. When one is late, whatever kept this relay from the store may have kept the
   * others from renewing: they get the time to do it before they are taken for dead, but not for ever, since a store
   * that is always slow must not keep a dead relay's lanes. What keeps everybody from renewing until a lease has run
   * out, of which a third had passed when it was to be renewed, delays everybody's looks by a quarter of it at least.
   */
  const look = async (): Promise<void> => {
    const { strategies } = table;
    table = await leases.look();
    const now = clock.monotonic();
    if (now > lookDueBy) doubtfulUntil = now + leaseMs / 3;
    lookDueBy = now + leaseMs / 4;
    const live = new Set(table.live);
    const dead = new Set(table.lanes.flatMap(({ owner }) => (owner === null || live.has(owner) ? [] : [owner])));
    for (const owner of spared.keys()) if (!dead.has(owner)) spared.delete(owner);
    if (now < doubtfulUntil)
      for (const owner of dead) if (!spared.has(owner)) spared.set(owner, { since: now, told: strategies.get(owner) });
  };

  /** The table, with those who are spared among the living. */
  const sparing = (): LaneTable => {
    const now = clock.monotonic();
    const doubtful = [...spared].filter(([, { since }]) => now < doubtfulUntil && now - since < doubtLeases * leaseMs);
    const told = doubtful.flatMap(([owner, { told }]) => (told === undefined ? [] : [[owner, told] as const]));
    return {
      lanes: table.lanes,
      live: [...table.live, ...doubtful.map(([owner]) => owner)],
      strategies: new Map([...table.strategies, ...told]),
    };
  };

  const self = (): Self => {
    const now = clock.monotonic();
    const turnMs = leaseMs / turnsPerLease;
    return { relay, from, turns: new Map([...lanes.keys()].map((lane) => [lane, (now - wonAt.get(lane)!) / turnMs])) };
  };

  const reconcile = async (work: Work): Promise<void> => {
    await look();
    const mine = new Map(table.lanes.filter(({ owner }) => owner === relay).map(({ lane, epoch }) => [lane, epoch]));
    drop([...lanes.keys()].filter((lane) => mine.get(lane) !== lanes.get(lane)));
    for (const lane of leavingLanes) if (!mine.has(lane)) leavingLanes.delete(lane);
    trustedUntil = renewedUntil; // not before: a renewal after a lapse says nothing of the lanes
    // Won by a take whose answer was lost: nothing was ever claimed from them, so they are given back and won anew.
    const unknown = [...mine.keys()].filter((lane) => !lanes.has(lane) && !leavingLanes.has(lane));
    if (unknown.length > 0) {
      await leases.give(relay, unknown);
      await look();
    }
    const { take, give, turn } = strategy.decide(sparing(), self());
    // First out of the holding, so that nothing more is claimed from them; out of the table once nothing is under way.
    for (const lane of give) if (lanes.delete(lane)) leavingLanes.add(lane);
    const inUse = work.lanesInUse();
    const idle = [...leavingLanes].filter((lane) => !inUse.has(lane));
    if (idle.length > 0) {
      await leases.give(relay, idle);
      for (const lane of idle) leavingLanes.delete(lane);
      observe({ type: "lanes.given", relay, lanes: idle, turn });
    }
    if (take.length > 0 && trustedUntil > clock.monotonic()) {
      from = (take.at(-1)! + 1) % LANES;
      const won = await leases.take(relay, take);
      for (const [lane, epoch] of won) {
        lanes.set(lane, epoch);
        wonAt.set(lane, clock.monotonic());
      }
      if (won.size > 0) {
        observe({ type: "lanes.won", relay, lanes: [...won.keys()], turn });
        await look();
      }
    }
  };

  /** A store that is away for a moment must not keep the lanes from the others for a whole lease. */
  const leave = async (): Promise<void> => {
    const until = clock.monotonic() + leaseMs;
    for (;;) {
      try {
        return await leases.leave(relay);
      } catch (error) {
        if (clock.monotonic() >= until) throw error;
        await clock.sleep(leaseMs / looksPerLease);
      }
    }
  };

  return {
    holding: { relay, lanes },
    trustedForMs: () => trustedUntil - clock.monotonic(),
    settledIn() {
      // A lane of another is still to come, unless that is one who gives nothing to those who share.
      const stays = (owner: string): boolean => owner === relay || (shares(strategy.name) && !shares(table.strategies.get(owner)));
      const given = table.lanes.map((lane) => (lane.owner === null || stays(lane.owner) ? lane : { ...lane, owner: null }));
      const { take, give } = strategy.decide({ ...table, lanes: given }, self());
      return table.lanes.length > 0 && take.length === 0 && give.length === 0;
    },
    lost: drop,
    async run(work, { leaving, stopping }, ready) {
      lookDueBy = clock.monotonic() + leaseMs / looksPerLease;
      // The first look must succeed: a relay that cannot reach its store says so when it starts.
      await renew();
      await reconcile(work);
      ready();
      const ended = AbortSignal.any([leaving, stopping]);
      while (!ended.aborted) {
        await clock.sleep(leaseMs / looksPerLease, ended);
        if (ended.aborted) break;
        try {
          if (clock.monotonic() - renewedAt >= leaseMs / 3 && work.progress()) await renew();
          await reconcile(work);
        } catch (cause) {
          const error = asError(cause);
          observe({ type: "relay.trouble", relay, step: "renew", error: error.message, code: isWaybillError(error) ? error.code : null });
        }
      }
      if (stopping.aborted) return;
      const held = [...lanes.keys(), ...leavingLanes];
      lanes.clear();
      leavingLanes.clear();
      await leave();
      observe({ type: "lanes.given", relay, lanes: held, turn: false });
    },
  };
}
