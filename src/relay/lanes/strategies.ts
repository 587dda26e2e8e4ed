import type { LaneTable } from "../../contracts/lease-store.ts";
import { WaybillError } from "../../core/errors.ts";
import { LANES } from "../../core/lane.ts";

/** What a relay knows of itself when it looks at the lanes. */
export interface Self {
  readonly relay: string;
  /** The lanes that it claims from, in the order in which it won them, and for how many turns it has owned each. */
  readonly turns: ReadonlyMap<number, number>;
  /** The lane where it begins to take. It moves round all lanes, so that none is passed over for ever. */
  readonly from: number;
}

interface Moves {
  readonly take: readonly number[];
  readonly give: readonly number[];
  /** True when lanes change their owner as a matter of routine. */
  readonly turn: boolean;
}

/** What to take and what to give up, from one look at the lanes. Pure; the store decides which relay wins a race. */
export interface Strategy {
  readonly name: StrategyName;
  decide(table: LaneTable, self: Self): Moves;
}

export const strategyNames = ["partitioned", "leader", "static", "competing"] as const;
export type StrategyName = (typeof strategyNames)[number];

export function strategyOf(name: StrategyName, own: readonly number[] | undefined): Strategy {
  if (own !== undefined && name !== "static") {
    throw new WaybillError("INVALID_OPTION", `own lanes go with coordination "static", not with ${JSON.stringify(name)}`);
  }
  switch (name) {
    case "partitioned":
      return { name, decide: partitioned };
    case "leader":
      return { name, decide: leader };
    case "competing":
      return { name, decide: competing };
    case "static":
      if (own === undefined || own.length === 0 || own.some((lane) => !Number.isInteger(lane) || lane < 0 || lane >= LANES)) {
        throw new WaybillError(
          "INVALID_OPTION",
          `coordination "static" needs own lanes from 0 to ${LANES - 1}, not ${JSON.stringify(own ?? null)}`,
        );
      }
      return { name, decide: fixed(new Set(own)) };
    default:
      throw new WaybillError("INVALID_OPTION", `there is no coordination ${JSON.stringify(name)}: there are ${strategyNames.join(", ")}`);
  }
}

/** Relays that share take free lanes up to their share, and give up lanes beyond it. */
export const shares = (strategy: string | undefined): boolean => strategy === "partitioned" || strategy === "competing";

/**
 * The most lanes that a relay needs among those that share. Live relays that do not share are not counted, and neither are their lanes:
 * while any lane is free, some relay that shares has less than its share and takes it.
 */
function shareOf(table: LaneTable, me: string): number {
  const live = new Set(table.live);
  const sharing = new Set([me, ...table.live.filter((relay) => shares(table.strategies.get(relay)))]);
  const kept = table.lanes.filter(({ owner }) => owner !== null && live.has(owner) && !sharing.has(owner)).length;
  return Math.ceil((LANES - kept) / sharing.size);
}

/** All relays that share own about the same number of lanes. */
function partitioned(table: LaneTable, { relay }: Self): Moves {
  const { mine, free } = sides(table, relay);
  const share = shareOf(table, relay);
  return { take: free.slice(0, Math.max(0, share - mine.length)), give: mine.slice(share), turn: false };
}

/**
 * One relay owns everything. Of the relays with this strategy, the owner of the lowest lane leads, and takes the rest as it comes free.
 * While none leads, the lowest lane decides which one will, leaving out lanes of live relays that neither lead nor share.
 */
function leader(table: LaneTable, { relay }: Self): Moves {
  const { mine, free } = sides(table, relay);
  const live = new Set(table.live);
  const owned = table.lanes.flatMap(({ lane, owner }) => {
    if (owner === relay) return [{ lane, by: "leader" }];
    return owner !== null && live.has(owner) ? [{ lane, by: table.strategies.get(owner) }] : [];
  });
  const led = owned.filter(({ by }) => by === "leader");
  const kept = new Set(owned.filter(({ by }) => !shares(by)).map(({ lane }) => lane));
  const leads = led.length > 0 ? mine.includes(lowest(led)) : free.includes(lowest(table.lanes.filter(({ lane }) => !kept.has(lane))));
  return leads ? { take: free, give: [], turn: false } : { take: [], give: mine, turn: false };
}

const lowest = (lanes: readonly { readonly lane: number }[]): number => Math.min(...lanes.map(({ lane }) => lane));

const fixed =
  (own: ReadonlySet<number>) =>
  (table: LaneTable, { relay }: Self): Moves => {
    const { mine, free } = sides(table, relay);
    return { take: free.filter((lane) => own.has(lane)), give: mine.filter((lane) => !own.has(lane)), turn: false };
  };

/** This part of the share changes its owner at a time; the rest goes on meanwhile. */
const inTurn = 1 / 4;

/**
 * A relay owns a lane for a turn and then gives it back, as long as another relay might take it. So lanes come to relays that have time: a
 * slow relay is late with the lanes it has, and takes no new ones before it has given those back.
 */
function competing(table: LaneTable, { relay, turns, from }: Self): Moves {
  const { mine, free } = sides(table, relay);
  const share = shareOf(table, relay);
  const wanted = table.live.some((other) => other !== relay && mightTake(table, other, share));
  const leaving = mine.filter((lane) => !turns.has(lane)).length;
  const due = Math.max(mine.length - share, wanted ? Math.ceil(share * inTurn) : 0) - leaving;
  const served = [...turns].filter(([, had]) => had >= 1).map(([lane]) => lane);
  const give = served.slice(0, Math.max(0, due));
  const ahead = [...free.filter((lane) => lane >= from), ...free.filter((lane) => lane < from)];
  return { take: ahead.slice(0, Math.max(0, share - mine.length + give.length)), give, turn: wanted };
}

/** Only for a `partitioned` relay does the table show that it has all the lanes it would take. */
function mightTake(table: LaneTable, other: string, share: number): boolean {
  return table.strategies.get(other) !== "partitioned" || table.lanes.filter(({ owner }) => owner === other).length < share;
}

function sides(table: LaneTable, me: string): { mine: number[]; free: number[] } {
  const live = new Set(table.live);
  const mine = table.lanes.filter(({ owner }) => owner === me).map(({ lane }) => lane);
  const free = table.lanes.filter(({ owner }) => owner === null || (owner !== me && !live.has(owner))).map(({ lane }) => lane);
  return { mine, free };
}
