import { fewer } from "../support/fewer.ts";
import { narrowed, plainNames, type Cut, type Leg, type Plain } from "./plan.ts";
import type { Played } from "./play.ts";

interface Reducing {
  readonly leg: Leg;
  readonly cut: Cut;
  readonly failed: Played;
  /** Plays a smaller leg. */
  play(leg: Leg): Promise<Played>;
  /** Aborts when all is called off: a leg that ends so has not failed. */
  readonly signal: AbortSignal;
  /** True when no further leg may be begun. */
  isOver(): boolean;
  /** Called for each leg that was tried. */
  tried(cut: Cut, played: Played, fails: boolean): void;
  /** Called for a leg whose histories nobody needs any more. */
  forget(played: Played): void;
}

export interface Reduced {
  readonly cut: Cut;
  readonly played: Played;
  readonly tries: number;
}

/** The shortest that a leg is made: processes need a moment to start, and leases to expire. */
const shortest = 15;

/** The first promise that the one breaks is broken by the other too. The rest may follow from it, or from a busy machine. */
export const failsAlike = ({ failures: [first] }: Played, { failures }: Played): boolean =>
  first !== undefined && failures.some(({ invariant }) => invariant === first.invariant);

/**
 * The smallest leg found in time that still fails alike. Shorter first, since that makes all further tries cheap; then fewer faults, then
 * plainer options. Faults keep their share of the time. Each is tried once: what fails by chance may pass, and is then not made smaller.
 */
export async function reduce({ leg, cut: given, failed, play, signal, isOver, tried, forget }: Reducing): Promise<Reduced> {
  let [cut, played, tries] = [given, failed, 0];
  const fails = async (smaller: Cut): Promise<boolean> => {
    if (isOver()) return false;
    tries += 1;
    const result = await play(narrowed(leg, smaller));
    const alike = !signal.aborted && failsAlike(failed, result);
    tried(smaller, result, alike);
    if (alike) {
      if (played !== failed) forget(played);
      [cut, played] = [smaller, result];
    } else forget(result);
    return alike;
  };
  const shorter = async (): Promise<void> => {
    for (let seconds = narrowed(leg, cut).seconds; seconds > shortest;) {
      seconds = Math.max(shortest, Math.floor(seconds / 2));
      if (!(await fails({ ...cut, seconds }))) return;
    }
  };
  await shorter();
  const places = cut.faults ?? leg.faults.map((_, at) => at);
  // Whether faults have anything to do with it is the most that one try can tell.
  if (places.length > 0 && !(await fails({ ...cut, faults: [] }))) await fewer(places, (faults) => fails({ ...cut, faults }));
  const odd = plainNames.filter((name) => !cut.plain.includes(name) && isOdd(leg, name));
  if (odd.length > 0 && !(await fails({ ...cut, plain: [...cut.plain, ...odd] })))
    await fewer(odd, (left) => {
      const plain: readonly Plain[] = [...given.plain, ...odd.filter((name) => !left.includes(name))];
      return fails({ ...cut, plain });
    });
  if (!isOver()) await shorter();
  return { cut, played, tries };
}

/** Making it plain would change the leg. */
const isOdd = (leg: Leg, name: Plain): boolean =>
  JSON.stringify(narrowed(leg, { faults: null, plain: [name], seconds: null })) !== JSON.stringify(leg);
