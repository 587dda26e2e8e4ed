import type { Coordinator, Work } from "../contracts/coordinator.ts";
import type { LaneTable, LeaseStore } from "../contracts/lease-store.ts";
import type { Clock } from "../core/clock.ts";
import { asError, isWaybillError } from "../core/errors.ts";
import type { Failpoints } from "../core/failpoints.ts";
import type { Observe } from "../core/path-events.ts";
import type { Strategy } from "./strategies.ts";

export interface LeasesOptions {
  readonly leases: LeaseStore;
  readonly relay: string;
  readonly strategy: Strategy;
  readonly leaseMs: number;
  /** How many events the relay may have claimed and not settled at once; shown in status. */
  readonly window: number;
  readonly clock: Clock;
  readonly failpoints: Failpoints;
  readonly observe: Observe;
}

/** Lanes given back by a clean stop are noticed within this share of the lease. */
const looksPerLease = 40;

/**
 * Expiry is judged by the database's clock. Trust in one's own lease is judged by the monotonic clock, counted from
 * before the renewal was sent and ending a fifth of the lease early, so that this side always gives up first.
 */
export function createLeases(options: LeasesOptions): Coordinator {
  const { leases, relay, strategy, leaseMs, clock, observe } = options;
  const lanes = new Map<number, bigint>();
  const leavingLanes = new Set<number>();
  let trustedUntil = -Infinity;
  let renewedUntil = -Infinity;
  let renewedAt = -Infinity;
  let patientUntil = -Infinity;
  let table: LaneTable = { lanes: [], live: [] };

  const drop = (gone: readonly number[]): void => {
    const held = gone.filter((lane) => lanes.delete(lane) || leavingLanes.has(lane));
    for (const lane of held) leavingLanes.delete(lane);
    if (held.length > 0) observe({ type: "lanes.lost", relay, lanes: held });
  };

  const renew = async (): Promise<void> => {
    await options.failpoints.hit("before-renew", []);
    const asked = clock.monotonic();
    await leases.renew(relay, leaseMs, options.window);
    // Whatever kept this relay from renewing may have kept the others: they get the time to do it before they are taken for dead.
    if (clock.monotonic() - renewedAt > leaseMs && renewedAt > -Infinity) patientUntil = clock.monotonic() + leaseMs / 3;
    renewedAt = asked;
    renewedUntil = asked + leaseMs * 0.8;
  };

  const ownerless = (lane: number): boolean => table.lanes[lane]?.owner === null;

  const reconcile = async (work: Work): Promise<void> => {
    table = await leases.look();
    const mine = new Map(table.lanes.filter(({ owner }) => owner === relay).map(({ lane, epoch }) => [lane, epoch]));
    drop([...lanes.keys()].filter((lane) => mine.get(lane) !== lanes.get(lane)));
    for (const lane of leavingLanes) if (!mine.has(lane)) leavingLanes.delete(lane);
    trustedUntil = renewedUntil; // not before: a renewal after a lapse says nothing of the lanes
    // Won by a take whose answer was lost: nothing was ever claimed from them, so they are given back and won anew.
    const unknown = [...mine.keys()].filter((lane) => !lanes.has(lane) && !leavingLanes.has(lane));
    if (unknown.length > 0) {
      await leases.give(relay, unknown);
      table = await leases.look();
    }
    const { take, give } = strategy(table, relay);
    // First out of the holding, so that nothing more is claimed from them; out of the table once nothing is under way.
    for (const lane of give) if (lanes.delete(lane)) leavingLanes.add(lane);
    const inUse = work.lanesInUse();
    const idle = [...leavingLanes].filter((lane) => !inUse.has(lane));
    if (idle.length > 0) {
      await leases.give(relay, idle);
      for (const lane of idle) leavingLanes.delete(lane);
      observe({ type: "lanes.given", relay, lanes: idle });
    }
    const free = clock.monotonic() < patientUntil ? take.filter((lane) => ownerless(lane)) : take;
    if (free.length > 0 && trustedUntil > clock.monotonic()) {
      const won = await leases.take(relay, free);
      for (const [lane, epoch] of won) lanes.set(lane, epoch);
      if (won.size > 0) {
        observe({ type: "lanes.won", relay, lanes: [...won.keys()] });
        table = await leases.look();
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
      const { take, give } = strategy(
        { lanes: table.lanes.map((lane) => ({ ...lane, owner: lane.owner === relay ? relay : null })), live: table.live },
        relay,
      );
      return table.lanes.length > 0 && take.length === 0 && give.length === 0;
    },
    lost: drop,
    async run(work, { leaving, stopping }, ready) {
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
      observe({ type: "lanes.given", relay, lanes: held });
    },
  };
}
