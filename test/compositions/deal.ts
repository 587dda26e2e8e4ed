import { seededRandom } from "../../src/core/random.ts";
import { features, levelsOf, type Cell } from "./features.ts";

type Levels = Readonly<Record<string, readonly string[]>>;
type Hand = Readonly<Record<string, string>>;

const pairOf = (a: string, x: string, b: string, y: string): string => `${a}=${x}&${b}=${y}`;

const pairsIn = (hand: Hand): string[] => {
  const all = Object.entries(hand);
  return all.flatMap(([a, x], at) => all.slice(at + 1).map(([b, y]) => pairOf(a, x, b, y)));
};

/** Hands in which every two levels of two dimensions meet at least once. Each of `given` is completed first. A seed deals the same hands. */
function deal(levels: Levels, given: readonly Hand[], seed: number): readonly Hand[] {
  const random = seededRandom(seed);
  const names = Object.keys(levels);
  const open = new Set<string>();
  for (const [at, a] of names.entries())
    for (const b of names.slice(at + 1)) for (const x of levels[a]!) for (const y of levels[b]!) open.add(pairOf(a, x, b, y));
  const any = (of: readonly string[]): string => of[Math.floor(random.next() * of.length)]!;
  /** The best of some random completions. */
  const complete = (fixed: Hand): Hand => {
    let best: { hand: Hand; met: number } | null = null;
    for (let n = 0; n < 40; n++) {
      const hand = { ...fixed, ...Object.fromEntries(names.map((name) => [name, fixed[name] ?? any(levels[name]!)])) };
      const met = pairsIn(hand).filter((pair) => open.has(pair)).length;
      if (best === null || met > best.met) best = { hand, met };
    }
    return best!.hand;
  };
  const dealt: Hand[] = [];
  const take = (hand: Hand): void => {
    dealt.push(hand);
    for (const pair of pairsIn(hand)) open.delete(pair);
  };
  for (const each of given) take(complete(each));
  for (const pair of [...open])
    if (open.has(pair)) take(complete(Object.fromEntries(pair.split("&").map((part) => part.split("=") as [string, string]))));
  return dealt;
}

const product = (deeds: readonly string[], ways: readonly string[]): readonly Hand[] =>
  ways.flatMap((way) => deeds.flatMap((deed) => features.mode.map((mode) => ({ way, deed, mode }))));

/**
 * A store's cells. "all": what a handler does × how it is called × each way, with all else dealt so that every two levels meet. "some":
 * every two levels of all else meet, each way with each mode, and ways meet the deeds by turns.
 */
export function cellsOf(store: Cell["store"], ways: readonly string[], deeds: readonly string[], how: "some" | "all"): readonly Cell[] {
  const given =
    how === "all"
      ? product(deeds, ways)
      : ways.flatMap((way, w) =>
          features.mode.map((mode, m) => ({ way, mode, deed: deeds[(w * features.mode.length + m) % deeds.length]! })),
        );
  const levels: Levels = { ...(how === "all" ? { way: ways } : {}), deed: deeds, ...levelsOf(store) };
  const turn = (hand: Hand, at: number): Hand => ({ way: ways[at % ways.length]!, ...hand });
  return deal(levels, given, 1).map((hand, at) => ({ store, ...turn(hand, at) }) as unknown as Cell);
}
