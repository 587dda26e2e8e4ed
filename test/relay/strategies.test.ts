import { describe, expect, test } from "vitest";
import type { LaneTable } from "../../src/contracts/lease-store.ts";
import { strategyOf } from "../../src/coordination/strategies.ts";
import { LANES } from "../../src/core/lane.ts";

/** Lanes by owner; the rest has none. */
function table(owners: Readonly<Record<string, readonly number[]>>, live: readonly string[]): LaneTable {
  const ownerOf = new Map(Object.entries(owners).flatMap(([owner, lanes]) => lanes.map((lane) => [lane, owner] as const)));
  return { live, lanes: Array.from({ length: LANES }, (_, lane) => ({ lane, owner: ownerOf.get(lane) ?? null, epoch: 1n })) };
}

const range = (from: number, to: number): number[] => Array.from({ length: to - from }, (_, i) => from + i);

/** Lets relays act on the table in turn until nothing changes. */
function settle(name: "partitioned" | "leader", relays: readonly string[], owners: Map<number, string>): Map<string, number> {
  const strategy = strategyOf(name, undefined);
  for (let round = 0; round < 10; round++) {
    for (const me of relays) {
      const now: LaneTable = { live: relays, lanes: range(0, LANES).map((lane) => ({ lane, owner: owners.get(lane) ?? null, epoch: 1n })) };
      const { take, give } = strategy(now, me);
      for (const lane of give) owners.delete(lane);
      for (const lane of take) owners.set(lane, me);
    }
  }
  return new Map(relays.map((me) => [me, [...owners.values()].filter((owner) => owner === me).length]));
}

describe("partitioned", () => {
  test.each([1, 2, 3, 5, 7, 64, 70])("%d relays own every lane, none more than its share", (count) => {
    const relays = range(0, count).map((i) => `r${i}`);
    const owners = new Map(range(0, LANES).map((lane) => [lane, "r0"]));
    const counts = settle("partitioned", relays, owners);
    expect([...counts.values()].reduce((sum, n) => sum + n, 0)).toBe(LANES);
    expect(Math.max(...counts.values())).toBeLessThanOrEqual(Math.ceil(LANES / count));
  });

  test("takes the lanes of a relay that is not alive, and leaves those of one that is", () => {
    const { take, give } = strategyOf("partitioned", undefined)(
      table({ dead: range(0, 20), living: range(20, 40) }, ["living", "me"]),
      "me",
    );
    expect(give).toEqual([]);
    expect(take).toHaveLength(32);
    for (const lane of take) expect(range(20, 40)).not.toContain(lane);
  });
});

describe("leader", () => {
  test("one relay owns everything, and another takes over only when it is gone", () => {
    const owners = new Map<number, string>();
    expect(settle("leader", ["a", "b"], owners)).toEqual(
      new Map([
        ["a", LANES],
        ["b", 0],
      ]),
    );
    expect(settle("leader", ["b"], new Map())).toEqual(new Map([["b", LANES]]));
  });

  test("a relay that has lanes but not the first gives them up", () => {
    expect(strategyOf("leader", undefined)(table({ other: [0], me: [5, 6] }, ["other", "me"]), "me")).toEqual({ take: [], give: [5, 6] });
  });
});

describe("static", () => {
  test("takes the lanes it is told, when they are free, and no others", () => {
    const strategy = strategyOf("static", [1, 2, 3]);
    expect(strategy(table({ other: [2], me: [9] }, ["other", "me"]), "me")).toEqual({ take: [1, 3], give: [9] });
  });

  test.each([[undefined], [[]], [[64]], [[-1]], [[1.5]]])("own lanes %j are refused", (own) => {
    expect(() => strategyOf("static", own)).toThrow(/own lanes/);
  });
});

test("own lanes without coordination static, and unknown strategies, are refused", () => {
  expect(() => strategyOf("leader", [1])).toThrow(/static/);
  expect(() => strategyOf("none" as "leader", undefined)).toThrow(/partitioned, leader, static/);
});
