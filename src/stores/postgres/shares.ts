import type { Claim } from "../../contracts/outbox-store.ts";
import { leastShare } from "./claim.ts";

/** How many rows of each lane a claim looks at: an equal share first, and more where a lane had more than its share. */
interface Shares {
  of(lanes: readonly number[], limit: number): ReadonlyMap<number, number>;
  learn(claims: readonly Claim[], wants: ReadonlyMap<number, number>): void;
}

export function createShares(): Shares {
  const larger = new Map<number, number>();
  return {
    of(lanes, limit) {
      const equal = Math.max(leastShare, Math.ceil(limit / lanes.length));
      return new Map(lanes.map((lane) => [lane, Math.min(limit, larger.get(lane) ?? equal)]));
    },
    learn(claims, wants) {
      const found = new Map<number, number>();
      for (const { lane } of claims) found.set(lane, (found.get(lane) ?? 0) + 1);
      for (const [lane, want] of wants) {
        if ((found.get(lane) ?? 0) >= want) larger.set(lane, want * 2);
        else larger.delete(lane);
      }
    },
  };
}
