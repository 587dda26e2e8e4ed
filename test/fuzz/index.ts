import { misused, readArguments, someOf, wholeNumber } from "../support/arguments.ts";
import { keep, keptName, readKept } from "./kept.ts";
import { openTargets, targetNames } from "./targets.ts";
import type { Target } from "./target.ts";
import { Failed } from "./watch.ts";

const usage =
  "npm run test:fuzz -- [--seed S] [--minutes N | --rounds N] [--store NAME,…] [--broker NAME,…] [--line NAME,…] [--fake NAME,…] [--no-keep] | --help";

const values = readArguments(usage, {
  seed: { type: "string" },
  minutes: { type: "string" },
  rounds: { type: "string" },
  store: { type: "string" },
  broker: { type: "string" },
  line: { type: "string" },
  fake: { type: "string" },
  "no-keep": { type: "boolean", default: false },
});
if (values.minutes !== undefined && values.rounds !== undefined) misused(usage, "--minutes or --rounds, not both");
const from = values.seed === undefined ? Math.floor(Date.now() / 1_000) : wholeNumber(usage, "seed", values.seed);
const rounds = values.rounds === undefined ? Infinity : wholeNumber(usage, "rounds", values.rounds, 1);
const minutes =
  values.minutes === undefined ? (values.rounds === undefined ? 1 : Infinity) : wholeNumber(usage, "minutes", values.minutes, 1);
const kinds = Object.keys(targetNames) as (keyof typeof targetNames)[];
const all = kinds.every((kind) => values[kind] === undefined);

/** Kept seeds first, then one after the other. How many have failed. */
async function fuzz(kind: (typeof kinds)[number], name: string): Promise<number> {
  await using target: Target = await openTargets(kind, name);
  const known = keptName(kind, name);
  let [failed, taken, refused] = [0, 0, 0];
  const play = async (seed: number, only?: readonly string[]): Promise<boolean> => {
    try {
      const report = await target.round(seed, only);
      taken += report.taken;
      refused += report.refused;
      return true;
    } catch (error) {
      if (!(error instanceof Failed)) throw error;
      failed += 1;
      console.log(`\n${known}, seed ${seed}: ${error.message}`);
      if (only !== undefined) return false;
      const shrunk = await target.shrink(seed);
      console.log(`  shrunk to: ${shrunk?.told ?? `nothing smaller than all of it:\n  ${target.tell(seed)}`}`);
      console.log(`  to repeat it:  npm run test:fuzz -- --${kind} ${name} --seed ${seed} --rounds 1`);
      const few = shrunk?.only === undefined ? {} : { only: shrunk.only };
      // Without any damage, it is the path that is broken, or the machine is too busy: no seed shows that.
      if (!values["no-keep"] && few.only?.length !== 0) keep({ target: known, seed, ...few, why: error.message.slice(0, 200) });
      return false;
    }
  };
  const kept = readKept(known);
  for (const { seed, only, why } of kept) if (!(await play(seed, only))) console.log(`  it is back: ${why}`);
  const started = performance.now();
  const ends = started + minutes * 60_000;
  let played = 0;
  for (; played < rounds && performance.now() < ends && failed < mostFailures; played++) await play(from + played);
  const seconds = Math.round((performance.now() - started) / 1_000);
  console.log(
    `${known}: ${kept.length} kept seeds, ${played} from seed ${from} on in ${seconds} s, ${taken} taken, ${refused} refused, ${failed} failed`,
  );
  return failed;
}

/** More of them tell nothing new. */
const mostFailures = 20;

let failed = 0;
for (const kind of kinds)
  for (const name of someOf(usage, kind, values[kind], targetNames[kind]) ?? (all ? targetNames[kind] : []))
    failed += await fuzz(kind, name);
process.exitCode = failed > 0 ? 1 : 0;
