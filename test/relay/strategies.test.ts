import { describe, expect, test } from "vitest";
import type { LaneTable } from "../../src/contracts/lease-store.ts";
import { type Self, type Strategy, strategyOf } from "../../src/relay/lanes/strategies.ts";
import { LANES } from "../../src/core/lane.ts";
import { seededRandom } from "../../src/core/random.ts";

const range = (from: number, to: number): number[] => Array.from({ length: to - from }, (_, i) => from + i);
const every = range(0, LANES);

/** Lanes by owner; the rest has none. Live relays are partitioned unless it is said otherwise. */
function table(
  owners: Readonly<Record<string, readonly number[]>>,
  live: readonly string[],
  strategies: Readonly<Record<string, string>> = {},
): LaneTable {
  const ownerOf = new Map(Object.entries(owners).flatMap(([owner, lanes]) => lanes.map((lane) => [lane, owner] as const)));
  return {
    live,
    strategies: new Map(live.map((relay) => [relay, strategies[relay] ?? "partitioned"])),
    lanes: every.map((lane) => ({ lane, owner: ownerOf.get(lane) ?? null, epoch: 1n })),
  };
}

const self = (relay: string, more: Partial<Self> = {}): Self => ({ relay, turns: new Map(), from: 0, ...more });

interface Player {
  readonly name: string;
  readonly strategy: Strategy;
  from: number;
}
const player = (name: string, strategy: Strategy): Player => ({ name, strategy, from: 0 });

/** Relays that look at the lanes in any order, each once a round, and do what they decide. */
function game(players: readonly Player[], owners: Map<number, string>, random = seededRandom(1)) {
  const hadSince = new Map<string, number>();
  const servedBy = new Map<number, Set<string>>();
  let round = 0;
  const own = (lane: number, name: string): void => {
    owners.set(lane, name);
    hadSince.set(`${name} ${lane}`, round);
    servedBy.set(lane, (servedBy.get(lane) ?? new Set()).add(name));
  };
  return {
    owners,
    servedBy,
    countOf: (name: string): number => [...owners.values()].filter((owner) => owner === name).length,
    /** Says how many moves the rounds had, and for how many rounds a lane was free at most. */
    play(rounds: number, live: readonly Player[] = players): { moves: number; longestFree: number } {
      let moves = 0;
      let longestFree = 0;
      const freeFor = new Map<number, number>();
      for (const end = round + rounds; round < end; round++) {
        for (const me of [...live].sort(() => random.next() - 0.5)) {
          const now: LaneTable = {
            live: live.map(({ name }) => name),
            strategies: new Map(live.map(({ name, strategy }) => [name, strategy.name])),
            lanes: every.map((lane) => ({ lane, owner: owners.get(lane) ?? null, epoch: 1n })),
          };
          const mine = every.filter((lane) => owners.get(lane) === me.name);
          const since = (lane: number): number => hadSince.get(`${me.name} ${lane}`) ?? 0;
          // A turn is two looks.
          const turns = new Map(mine.sort((a, b) => since(a) - since(b)).map((lane) => [lane, (round - since(lane)) / 2]));
          const { take, give } = me.strategy.decide(now, { relay: me.name, turns, from: me.from });
          for (const lane of give) owners.delete(lane);
          for (const lane of take) own(lane, me.name);
          if (take.length > 0) me.from = (take.at(-1)! + 1) % LANES;
          moves += take.length + give.length;
        }
        for (const lane of every) {
          freeFor.set(lane, owners.has(lane) ? 0 : (freeFor.get(lane) ?? 0) + 1);
          longestFree = Math.max(longestFree, freeFor.get(lane)!);
        }
      }
      return { moves, longestFree };
    },
  };
}

const all = (name: string): Map<number, string> => new Map(every.map((lane) => [lane, name]));

describe("partitioned", () => {
  test.each([1, 2, 3, 5, 7, 64, 70])("%d relays own every lane, none more than its share", (count) => {
    const relays = range(0, count).map((i) => player(`r${i}`, strategyOf("partitioned", undefined)));
    const { play, countOf } = game(relays, all("r0"));
    play(10);
    const counts = relays.map(({ name }) => countOf(name));
    expect(counts.reduce((sum, n) => sum + n, 0)).toBe(LANES);
    expect(Math.max(...counts)).toBeLessThanOrEqual(Math.ceil(LANES / count));
    expect(play(10).moves).toBe(0);
  });

  test("takes the lanes of a relay that is not alive, and leaves those of one that is", () => {
    const { take, give } = strategyOf("partitioned", undefined).decide(
      table({ dead: range(0, 20), living: range(20, 40) }, ["living", "me"]),
      self("me"),
    );
    expect(give).toEqual([]);
    expect(take).toHaveLength(32);
    for (const lane of take) expect(range(20, 40)).not.toContain(lane);
  });

  test("relays that do not share, or of whom nothing is known, count by the lanes they own", () => {
    const { decide } = strategyOf("partitioned", undefined);
    const others = { standby: "leader", fixed: "static", stranger: "of a later version" };
    const now = table({ fixed: [1, 2, 3, 4], stranger: [5, 6] }, ["me", ...Object.keys(others)], others);
    expect(decide(now, self("me")).take).toEqual(every.filter((lane) => lane === 0 || lane > 6));
  });
});

describe("leader", () => {
  test("one relay owns everything, and another takes over only when it is gone", () => {
    const [a, b] = [player("a", strategyOf("leader", undefined)), player("b", strategyOf("leader", undefined))];
    const { play, countOf, owners } = game([a, b], new Map([[0, "a"]]));
    play(3);
    expect([countOf("a"), countOf("b")]).toEqual([LANES, 0]);
    owners.clear();
    play(1, [b]);
    expect(countOf("b")).toBe(LANES);
  });

  test("a relay that has lanes but not the first gives them up", () => {
    const now = table({ other: [0], me: [5, 6] }, ["other", "me"], { other: "leader", me: "leader" });
    expect(strategyOf("leader", undefined).decide(now, self("me"))).toMatchObject({ take: [], give: [5, 6] });
  });
});

describe("static", () => {
  test("takes the lanes it is told, when they are free, and no others", () => {
    const strategy = strategyOf("static", [1, 2, 3]);
    expect(strategy.decide(table({ other: [2], me: [9] }, ["other", "me"]), self("me"))).toMatchObject({ take: [1, 3], give: [9] });
  });

  test.each([[undefined], [[]], [[64]], [[-1]], [[1.5]]])("own lanes %j are refused", (own) => {
    expect(() => strategyOf("static", own)).toThrow(/own lanes/);
  });
});

describe("competing", () => {
  const competing = strategyOf("competing", undefined);

  test("one that is alone has every lane, and keeps it", () => {
    const { play, countOf } = game([player("a", competing)], new Map());
    play(1);
    expect(countOf("a")).toBe(LANES);
    expect(play(50).moves).toBe(0);
  });

  test.each([2, 3, 7, 64, 70])("%d relays come to all lanes, and no lane is free for long", (count) => {
    const relays = range(0, count).map((i) => player(`r${i}`, competing));
    const { play, servedBy, countOf } = game(relays, all("r0"));
    play(10);
    const { longestFree } = play(250);
    expect(longestFree).toBeLessThanOrEqual(2);
    expect(new Set([...servedBy.values()].flatMap((names) => [...names])).size).toBe(count);
    for (const lane of every) expect(servedBy.get(lane)!.size, `lane ${lane}`).toBeGreaterThanOrEqual(Math.min(count, 7));
    const share = Math.ceil(LANES / count);
    for (const { name } of relays) expect(countOf(name)).toBeLessThanOrEqual(share);
  });

  test("a newcomer has its share within a few looks", () => {
    const { play, countOf } = game([player("a", competing), player("b", competing)], all("a"));
    play(5);
    expect(countOf("b")).toBeGreaterThan(LANES / 4);
    expect(countOf("a") + countOf("b")).toBeGreaterThan(LANES * 0.7);
  });

  test("gives a quarter of its share at once, what it has had longest first, and no more before that is gone", () => {
    const turns = new Map(every.slice(0, 32).map((lane) => [31 - lane, lane < 20 ? 1.5 : 0.5]));
    const live = { me: "competing", other: "competing" };
    const now = table({ me: range(0, 32), other: range(32, 64) }, ["me", "other"], live);
    expect(competing.decide(now, self("me", { turns })).give).toEqual([31, 30, 29, 28, 27, 26, 25, 24]);
    const rest = new Map([...turns].slice(6)); // two are given up and in use
    const later = table({ me: [...range(0, 26), 30, 31], other: range(32, 64) }, ["me", "other"], live);
    expect(competing.decide(later, self("me", { turns: rest })).give).toEqual([25, 24, 23, 22, 21, 20]);
  });

  test("beside partitioned relays that have their share, it keeps its own", () => {
    const relays = [player("c", competing), player("p", strategyOf("partitioned", undefined))];
    const { play, countOf } = game(relays, all("c"));
    play(20);
    expect([countOf("c"), countOf("p")]).toEqual([32, 32]);
    expect(play(50).moves).toBe(0);
  });
});

describe("mixed", () => {
  const names = ["partitioned", "leader", "static", "competing"] as const;

  test("whatever relays of all strategies come and go, every lane finds an owner, and lanes rest where nobody competes", () => {
    const random = seededRandom(7);
    const pick = <T>(values: readonly T[]): T => values[Math.floor(random.next() * values.length)]!;
    for (let scene = 0; scene < 40; scene++) {
      const pool = range(0, 8).map((i) => {
        const name = pick(names);
        return player(`r${i}`, strategyOf(name, name === "static" ? every.filter(() => random.next() < 0.3).concat(0) : undefined));
      });
      const { play, owners } = game(pool, new Map(), random);
      for (let change = 0; change < 5; change++) {
        const live = pool.filter(() => random.next() < 0.5);
        for (const [lane, owner] of owners) if (!live.some(({ name }) => name === owner)) owners.delete(lane);
        play(40, live);
        const kinds = new Set(live.map(({ strategy }) => strategy.name));
        const described = `scene ${scene}: ${live.map(({ name, strategy }) => `${name} ${strategy.name}`).join(", ")}`;
        const { moves, longestFree } = play(40, live);
        const fixedOnly = kinds.size === 0 || (kinds.size === 1 && kinds.has("static"));
        if (!fixedOnly) expect(longestFree, described).toBeLessThanOrEqual(kinds.has("competing") ? 2 : 0);
        if (!kinds.has("competing")) expect(moves, described).toBe(0);
      }
    }
  });
});

test("own lanes without coordination static, and unknown strategies, are refused", () => {
  expect(() => strategyOf("leader", [1])).toThrow(/static/);
  expect(() => strategyOf("none" as "leader", undefined)).toThrow(/partitioned, leader, static, competing/);
});
