import type { LaneTable } from "../../contracts/lease-store.ts";
import { WaybillError } from "../../core/errors.ts";
import { LANES } from "../../core/lane.ts";

/** What a relay knows of itself when it looks at the lanes. */
export interface Self {
  readonly relay: string;
  /** The lanes that it claims from, the one it won first coming first, and for how many turns it has had each. */
  readonly turns: ReadonlyMap<number, number>;
  /** Where it begins to take. It goes round, so that no lane is passed over for ever. */
  readonly from: number;
}

interface Moves {
  readonly take: readonly number[];
  readonly give: readonly number[];
  /** Lanes change hands as a matter of course. */
  readonly turn: boolean;
}

/** What to take and what to give up, from one look at the lanes. Pure; the store decides who wins a race. */
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

/** Those who share take free lanes up to their share, and give up what they have beyond it. */
export const shares = (strategy: string | undefined): boolean => strategy === "partitioned" || strategy === "competing";

/**
 * Among those who share, nobody needs more lanes than this. What live relays that do not share own is not counted in,
 * and they themselves are not: while any lane is free, somebody who shares has less than the share and takes it.
 */
function shareOf(table: LaneTable, me: string): number {
  const live = new Set(table.live);
  const sharing = new Set([me, ...table.live.filter((relay) => shares(table.strategies.get(relay)))]);
  const kept = table.lanes.filter(({ owner }) => owner !== null && live.has(owner) && !sharing.has(owner)).length;
  return Math.ceil((LANES - kept) / sharing.size);
}

/** All who share have about the same number of lanes. */
function partitioned(table: LaneTable, { relay }: Self): Moves {
  const { mine, free } = sides(table, relay);
  const share = shareOf(table, relay);
  return { take: free.slice(0, Math.max(0, share - mine.length)), give: mine.slice(share), turn: false };
}

/**
 * One relay has everything: whoever of its kind owns the lowest lane leads, and takes the rest as it comes free. While
 * nobody leads, the first lane that is not kept by one who neither leads nor shares decides who does.
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

/** This part of the share changes hands at once; the rest goes on meanwhile. */
const inTurn = 1 / 4;

/**
 * Lanes are had for a turn and then given back, as long as somebody else might take them, so that they come to
 * whoever has time: a slow relay is late with what it has, and takes nothing new before it has given that back.
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

/** Only of one that is partitioned can it be seen that it has all it takes. */
function mightTake(table: LaneTable, other: string, share: number): boolean {
  return table.strategies.get(other) !== "partitioned" || table.lanes.filter(({ owner }) => owner === other).length < share;
}

function sides(table: LaneTable, me: string): { mine: number[]; free: number[] } {
  const live = new Set(table.live);
  const mine = table.lanes.filter(({ owner }) => owner === me).map(({ lane }) => lane);
  const free = table.lanes.filter(({ owner }) => owner === null || (owner !== me && !live.has(owner))).map(({ lane }) => lane);
  return { mine, free };
}
