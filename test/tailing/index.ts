import { misused, readArguments, someOf, wholeNumber } from "../support/arguments.ts";
import { faultNames, type FaultName } from "./plan.ts";
import { bugs, type Bug } from "./spoiled.ts";

/**
 * Relays change between polling and tailing, under load and faults, and every event is looked after:
 * node scripts/run-ts.mjs test/tailing/index.ts --minutes 10 --modes poll,tail
 */
const usage = `node scripts/run-ts.mjs test/tailing/index.ts [--minutes N] [--seed S] [--modes poll,tail,auto] [--faults ${faultNames.join(",")}]
  [--seconds N] [--rate N] [--postgres 14|15|16|17|18] [--coordination leader|partitioned] [--bug ${bugs.join("|")}] [--timeline]`;

const modeNames = ["poll", "tail", "auto"];
const values = readArguments(usage, {
  minutes: { type: "string" },
  seed: { type: "string" },
  modes: { type: "string" },
  faults: { type: "string" },
  seconds: { type: "string" },
  rate: { type: "string" },
  postgres: { type: "string" },
  coordination: { type: "string" },
  bug: { type: "string" },
  timeline: { type: "boolean", default: false },
});
const number = (name: "minutes" | "seed" | "seconds" | "rate" | "postgres", otherwise: number): number =>
  values[name] === undefined ? otherwise : wholeNumber(usage, name, values[name], name === "seed" ? 0 : 1);
const one = <T extends string>(name: "coordination" | "bug", among: readonly T[]): T | undefined => {
  const some = someOf(usage, name, values[name], among) as readonly T[] | null | undefined;
  return some?.[0];
};
const seed = number("seed", Math.floor(Math.random() * 2 ** 31));
const minutes = number("minutes", 5);
const version = number("postgres", 15);
if (![14, 15, 16, 17, 18].includes(version)) misused(usage, `--postgres must be 14 to 18, not ${version}`);
const modes = someOf(usage, "modes", values.modes, modeNames) ?? ["poll"];
const faults = (someOf(usage, "faults", values.faults, faultNames) ?? faultNames) as readonly FaultName[];
const bug = one<Bug>("bug", bugs);
const coordination = one("coordination", ["leader", "partitioned"] as const) ?? "leader";

const { play } = await import("./play.ts");
const { lineOf, summaryOf } = await import("./report.ts");

const began = performance.now();
const all: Parameters<typeof summaryOf>[0][number][] = [];
console.log(`seed ${seed}: ${modes.join(", ")} on PostgreSQL ${version}, coordination ${coordination}, for ${minutes} minutes`);
let isOver = false;
for (const name of ["SIGINT", "SIGTERM"] as const) {
  process.on(name, () => {
    if (isOver) process.exit(1);
    isOver = true;
  });
}
const held = await play({
  ...{ seed, modes, faults, coordination },
  seconds: number("seconds", 30),
  rate: number("rate", 1_000),
  version: version as 14 | 15 | 16 | 17 | 18,
  ...(bug === undefined ? {} : { bug: { name: bug, after: 2_000 } }),
  more(played) {
    all.push(played);
    if (values.timeline) for (const { at, what } of played.timeline) console.log(`  ${(at / 1_000).toFixed(3)}  ${what}`);
    for (const line of lineOf(played)) console.log(line);
    return !isOver && performance.now() - began < minutes * 60_000;
  },
});
for (const line of summaryOf(all, (performance.now() - began) / 1_000)) console.log(line);
if (!held) console.log(`it did not hold; the same plan again:  --seed ${seed} --modes ${modes.join(",")} --coordination ${coordination}`);
process.exit(held ? 0 : 1);
