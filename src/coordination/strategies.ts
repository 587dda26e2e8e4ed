import type { LaneTable } from "../contracts/lease-store.ts";
import { WaybillError } from "../core/errors.ts";
import { LANES } from "../core/lane.ts";

/** What to take and what to give up, from one look at the lanes. Pure; the store decides who wins a race. */
export type Strategy = (table: LaneTable, me: string) => { readonly take: readonly number[]; readonly give: readonly number[] };

export const strategyNames = ["partitioned", "leader", "static"] as const;
export type StrategyName = (typeof strategyNames)[number];

export function strategyOf(name: StrategyName, own: readonly number[] | undefined): Strategy {
  if (own !== undefined && name !== "static") {
    throw new WaybillError("INVALID_OPTION", `own lanes go with coordination "static", not with ${JSON.stringify(name)}`);
  }
  switch (name) {
    case "partitioned":
      return partitioned;
    case "leader":
      return leader;
    case "static":
      if (own === undefined || own.length === 0 || own.some((lane) => !Number.isInteger(lane) || lane < 0 || lane >= LANES)) {
        throw new WaybillError(
          "INVALID_OPTION",
          `coordination "static" needs own lanes from 0 to ${LANES - 1}, not ${JSON.stringify(own ?? null)}`,
        );
      }
      return fixed(new Set(own));
    default:
      throw new WaybillError("INVALID_OPTION", `there is no coordination ${JSON.stringify(name)}: there are ${strategyNames.join(", ")}`);
  }
}

/** How many lanes each live relay should have at most. */
export const shareOf = (live: number): number => Math.ceil(LANES / Math.max(1, live));

/** All live relays have about the same number of lanes. */
const partitioned: Strategy = (table, me) => {
  const { mine, free } = sides(table, me);
  const share = shareOf(new Set([...table.live, me]).size);
  return { take: free.slice(0, Math.max(0, share - mine.length)), give: mine.slice(share) };
};

/** One relay has everything: whoever holds lane 0 takes the rest as it comes free. */
const leader: Strategy = (table, me) => {
  const { mine, free } = sides(table, me);
  return mine.includes(0) || free.includes(0) ? { take: free, give: [] } : { take: [], give: mine };
};

const fixed =
  (own: ReadonlySet<number>): Strategy =>
  (table, me) => {
    const { mine, free } = sides(table, me);
    return { take: free.filter((lane) => own.has(lane)), give: mine.filter((lane) => !own.has(lane)) };
  };

function sides(table: LaneTable, me: string): { mine: number[]; free: number[] } {
  const live = new Set(table.live);
  const mine = table.lanes.filter(({ owner }) => owner === me).map(({ lane }) => lane);
  const free = table.lanes.filter(({ owner }) => owner === null || (owner !== me && !live.has(owner))).map(({ lane }) => lane);
  return { mine, free };
}
