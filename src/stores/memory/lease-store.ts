import { inFlight } from "./claim.ts";
import type { LeaseStore } from "../../contracts/lease-store.ts";
import type { Clock } from "../../core/clock.ts";
import { closeLane, isFinal, isLive, type OpenWindow, type Tables } from "./tables.ts";

export function createLeaseStore(tables: Tables, clock: Clock): LeaseStore {
  const give = (relay: string, lanes: Iterable<number>): void => {
    for (const lane of lanes) {
      const state = tables.lanes[lane];
      if (state === undefined || state.owner !== relay) continue;
      state.owner = null;
      for (const window of windowsIn(tables, lane)) closeLane(tables, window, lane);
    }
  };

  return {
    look: async () => {
      const live = [...tables.relays].filter(([relay]) => isLive(tables, relay, clock));
      return {
        now: new Date(clock.now()),
        lanes: tables.lanes.map(({ lane, owner, epoch }) => ({ lane, owner, epoch })),
        live: live.map(([relay]) => relay),
        strategies: new Map(live.flatMap(([relay, { strategy }]) => (strategy === undefined ? [] : [[relay, strategy]]))),
      };
    },
    renew: async (relay, ttlMs, window = 0, strategy) => {
      tables.relays.set(relay, { endsAt: clock.monotonic() + ttlMs, window, strategy });
    },
    take: async (relay, lanes) => {
      const won = new Map<number, bigint>();
      const widths = new Map(
        [...tables.windows.values()].map((window) => [window, Math.max(window.width, inFlight(tables, window.relay))]),
      );
      for (const lane of new Set(lanes)) {
        const state = tables.lanes[lane];
        if (state === undefined || (state.owner !== null && isLive(tables, state.owner, clock))) continue;
        state.owner = relay;
        state.epoch += 1n;
        for (const window of windowsIn(tables, lane)) suspect(tables, window, lane, widths.get(window)!);
        won.set(lane, state.epoch);
      }
      return won;
    },
    give: async (relay, lanes) => give(relay, lanes),
    leave: async (relay) => {
      give(relay, tables.lanes.keys());
      tables.relays.delete(relay);
    },
  };
}

const windowsIn = (tables: Tables, lane: number): OpenWindow[] => [...tables.windows.values()].filter((window) => window.lanes.has(lane));

/** A dead relay left this window open: its unsettled events are tried again in smaller windows. */
function suspect(tables: Tables, window: OpenWindow, lane: number, width: number): void {
  for (const event of window.lanes.get(lane) ?? []) {
    if (isFinal(event)) continue;
    const before = tables.suspects.get(event.seq)?.deaths ?? 0;
    tables.suspects.set(event.seq, { event, width, deaths: width === 1 ? before + 1 : 0 });
  }
  closeLane(tables, window, lane);
}
