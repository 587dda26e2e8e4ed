import type { Coordinator, Work } from "../../contracts/coordinator.ts";
import type { LeaseStore } from "../../contracts/lease-store.ts";
import type { Clock } from "../../core/clock.ts";
import type { Failpoints } from "../../core/failpoints.ts";
import { type Observe, relayTroubles } from "../../core/path-events.ts";
import { LANES } from "../../core/lane.ts";
import type { Random } from "../../core/random.ts";
import { follow, persist } from "../../core/time.ts";
import { createSight } from "./doubt.ts";
import { createHeldLanes } from "./held.ts";
import { createStoreClock } from "./store-clock.ts";
import { type Self, shares, type Strategy } from "./strategies.ts";

interface LeasesOptions {
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
/** Where relays own lanes in turns, a turn is at least this share of the lease. */
const turnsPerLease = 20;

/**
 * Expiry is judged by the database's clock. A relay's trust in its own lease is judged by the monotonic clock. It counts from before the
 * renewal was sent and ends a fifth of the lease early, so that the relay always gives up first.
 */
export function createLeases(options: LeasesOptions): Coordinator {
  const { leases, relay, strategy, leaseMs, clock, observe } = options;
  const troubles = relayTroubles(observe, relay, clock);
  const held = createHeldLanes();
  let sight = createSight(leaseMs, Infinity);
  const storeClock = createStoreClock();
  let trustedUntil = -Infinity;
  let renewedUntil = -Infinity;
  let renewedAt = -Infinity;
  let from = Math.floor(options.random.next() * LANES);

  const drop = (lanes: readonly number[]): void => {
    const lost = held.gone(lanes);
    if (lost.length > 0) observe({ type: "lanes.lost", relay, lanes: lost });
  };

  const renew = async (): Promise<void> => {
    await options.failpoints.hit("before-renew", []);
    const asked = clock.monotonic();
    await leases.renew(relay, leaseMs, options.window, strategy.name);
    renewedAt = asked;
    renewedUntil = asked + leaseMs * 0.8;
  };

  const look = async (): Promise<void> => {
    const asked = clock.monotonic();
    const table = await leases.look();
    const answered = clock.monotonic();
    sight.looked(table, answered);
    if (table.now !== undefined) storeClock.told(table.now.getTime(), asked, answered);
  };

  const self = (): Self => {
    const turnMs = leaseMs / turnsPerLease;
    return { relay, from, turns: new Map([...held.ages(clock.monotonic())].map(([lane, age]) => [lane, age / turnMs])) };
  };

  const reconcile = async (work: Work): Promise<void> => {
    await look();
    const mine = new Map(sight.table.lanes.filter(({ owner }) => owner === relay).map(({ lane, epoch }) => [lane, epoch]));
    const { lost, unknown } = held.compared(mine);
    drop(lost);
    trustedUntil = renewedUntil; // not before: after a lapse, a renewal alone says nothing about the lanes
    // Won by a take whose answer was lost: nothing was ever claimed from them, so they are given back and taken again.
    if (unknown.length > 0) {
      await leases.give(relay, unknown);
      await look();
    }
    const { take, give, turn } = strategy.decide(sight.sparing(clock.monotonic()), self());
    // Lanes leave the holding first, so that nothing more is claimed from them. They leave the table once nothing is under way.
    held.leave(give);
    const idle = held.idle(work.lanesInUse());
    if (idle.length > 0) {
      await leases.give(relay, idle);
      held.gone(idle);
      observe({ type: "lanes.given", relay, lanes: idle, turn });
    }
    if (take.length > 0 && trustedUntil > clock.monotonic()) {
      from = (take.at(-1)! + 1) % LANES;
      const won = await leases.take(relay, take);
      held.won(won, clock.monotonic());
      if (won.size > 0) {
        observe({ type: "lanes.won", relay, lanes: [...won.keys()], turn });
        await look();
      }
    }
  };

  /** Retries: a short outage of the store must not keep the lanes from the other relays for a whole lease. */
  const leave = (): Promise<void> => {
    const until = clock.monotonic() + leaseMs;
    return persist(
      () => leases.leave(relay),
      () => (clock.monotonic() >= until ? null : clock.sleep(leaseMs / looksPerLease)),
    );
  };

  return {
    holding: { relay, lanes: held.lanes },
    trustedForMs: () => trustedUntil - clock.monotonic(),
    storeNow: () => storeClock.at(clock.monotonic()),
    settledIn() {
      // Another relay's lane may still come, unless this relay shares and the owner does not: such an owner gives it nothing.
      const stays = (owner: string): boolean => owner === relay || (shares(strategy.name) && !shares(sight.table.strategies.get(owner)));
      const given = sight.table.lanes.map((lane) => (lane.owner === null || stays(lane.owner) ? lane : { ...lane, owner: null }));
      const { take, give } = strategy.decide({ ...sight.table, lanes: given }, self());
      return sight.table.lanes.length > 0 && take.length === 0 && give.length === 0;
    },
    lost: drop,
    async run(work, { leaving, stopping }, ready) {
      sight = createSight(leaseMs, clock.monotonic() + leaseMs / looksPerLease);
      // The first look must succeed: the relay tries again, or ends.
      await renew();
      await reconcile(work);
      ready();
      const { signal: ended, release } = follow(leaving, stopping);
      while (!ended.aborted) {
        await clock.sleep(leaseMs / looksPerLease, ended);
        if (ended.aborted) break;
        try {
          if (clock.monotonic() - renewedAt >= leaseMs / 3 && work.progress()) await renew();
          await reconcile(work);
          troubles.over("renew");
        } catch (error) {
          troubles.met("renew", error);
        }
      }
      release();
      if (stopping.aborted) return;
      const lanes = held.clear();
      await leave();
      observe({ type: "lanes.given", relay, lanes, turn: false });
    },
  };
}
