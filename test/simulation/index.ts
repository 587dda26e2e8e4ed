import { fork } from "node:child_process";
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { storyOf } from "../../src/proof/judge/check.ts";
import { invariants } from "../../src/proof/judge/verdict.ts";
import { keep } from "../evidence/files.ts";
import { misused, readArguments, wholeNumber } from "../support/arguments.ts";
import { planOf, type Plan } from "./plan.ts";
import { readRegressions } from "./regressions.ts";
import { run, type Result } from "./run.ts";
import { failsAs, shrink } from "./shrink.ts";
import { summaryOf, type Told } from "./worker.ts";

const usage = "npm run test:simulation -- [--seeds N] [--from S] [--workers N] [--bail] [--evidence] | --seed S [--hash] | --help";
const chunk = 8;
/** Less than this is no evidence. */
const evidenceSeeds = 2_000;

const values = readArguments(usage, {
  seeds: { type: "string", default: String(evidenceSeeds) },
  from: { type: "string", default: "1" },
  workers: { type: "string", default: String(Math.max(1, availableParallelism())) },
  seed: { type: "string" },
  hash: { type: "boolean", default: false },
  bail: { type: "boolean", default: false },
  evidence: { type: "boolean", default: false },
});
const given = {
  seeds: wholeNumber(usage, "seeds", values.seeds, 1),
  from: wholeNumber(usage, "from", values.from),
  workers: wholeNumber(usage, "workers", values.workers, 1),
  seed: values.seed === undefined ? null : wholeNumber(usage, "seed", values.seed),
};
if (values.evidence && (given.seed !== null || given.seeds < evidenceSeeds))
  misused(usage, `--evidence takes ${evidenceSeeds} seeds or more`);

/** One seed, told at length. */
async function one(plan: Plan, hashOnly: boolean): Promise<void> {
  const result = await run(plan);
  if (hashOnly) return console.log(result.hash);
  console.log(`seed ${plan.seed}: ${plan.store}, ${plan.broker}, ${plan.transactions.length} transactions, ${plan.faults.length} faults`);
  for (const fault of plan.faults) console.log(`  ${JSON.stringify(fault)}`);
  for (const verdict of result.verdicts) {
    const { text, pardons } = summaryOf(verdict);
    console.log(
      `${verdict.verdict.padEnd(8)}${verdict.invariant.padEnd(16)}${text}${pardons.map(([why, times]) => `${times} × ${why}`).join(", ")}`,
    );
  }
  tellStory(result);
  console.log(`${result.steps} steps, ${result.virtualMs} virtual ms, hash ${result.hash}`);
  process.exitCode = result.held ? 0 : 1;
}

function tellStory({ verdicts, history }: Result): void {
  for (const verdict of verdicts) {
    if (verdict.verdict !== "broken") continue;
    console.log(`the story of ${verdict.invariant}:`);
    for (const entry of storyOf(history, verdict.example.ids).slice(0, 40)) {
      console.log(
        `  ${Math.round(entry.at)} ${entry.process} ${entry.op} ${entry.phase}${"outcomes" in entry ? ` ${outcomesOf(entry, verdict.example.ids)}` : ""}`,
      );
    }
  }
}

const outcomesOf = (
  { outcomes }: { readonly outcomes: readonly { readonly id: string; readonly as: string }[] },
  ids: readonly string[],
): string => outcomes.flatMap(({ id, as }) => (ids.includes(id) ? [as] : [])).join(" ");

async function many(from: number, seeds: number, workers: number): Promise<void> {
  const started = performance.now();
  const back = await regressions();
  const told: Told[] = [];
  const left = Array.from({ length: Math.ceil(seeds / chunk) }, (_, n) =>
    Array.from({ length: Math.min(chunk, seeds - n * chunk) }, (_, i) => from + n * chunk + i),
  ).values();
  const rate = (): string => (told.length / ((performance.now() - started) / 1_000)).toFixed(1);
  let lastLine = 0;
  const enough = (): boolean => values.bail && told.some(isBad);
  await Promise.all(
    Array.from({ length: Math.min(workers, Math.ceil(seeds / chunk)) }, () =>
      work(left, enough, (each) => {
        told.push(each);
        if (performance.now() - lastLine < 5_000) return;
        lastLine = performance.now();
        console.log(`${told.length} of ${seeds} seeds, ${rate()} seeds/s, ${told.filter(isBad).length} failed`);
      }),
    ),
  );
  const seconds = Math.round((performance.now() - started) / 1_000);
  const steps = told.reduce((sum, each) => sum + each.steps, 0);
  console.log(`${told.length} seeds in ${seconds} s, ${rate()} seeds/s, ${steps} steps`);
  table(told);
  const bad = told.filter(isBad).sort((a, b) => a.seed - b.seed);
  const failed = back + bad.length;
  if (values.evidence && told.length >= evidenceSeeds) keep("simulation", { seeds: told.length, failed, steps, seconds });
  for (const { seed, verdicts } of bad.slice(0, 20)) {
    for (const { invariant, verdict, text } of verdicts)
      if (verdict !== "holds") console.log(`seed ${seed}: ${invariant} is ${verdict}: ${text}`);
  }
  if (bad[0] !== undefined) await explain(bad[0]);
  process.exitCode = failed > 0 || told.length < seeds ? 1 : 0;
}

const isBad = ({ verdicts }: Told): boolean => verdicts.some(({ verdict }) => verdict !== "holds");

/** Each worker is a process of its own, and asks for more when it is done. */
function work(left: Iterator<readonly number[]>, enough: () => boolean, tell: (told: Told) => void): Promise<void> {
  const runner = fileURLToPath(new URL("../../scripts/run-ts.mjs", import.meta.url));
  const child = fork(runner, ["test/simulation/worker.ts", "--worker"], { execArgv: ["--max-semi-space-size=64"] });
  child.on("message", (message: Told | "more") => {
    if (message !== "more") return tell(message);
    const next = left.next();
    if (next.done === true || enough()) child.disconnect();
    else child.send(next.value);
  });
  return new Promise((resolve, reject) => {
    child.on("exit", (code) => (code === 0 ? resolve() : reject(new Error(`a worker ended with ${code}`))));
  });
}

/** What failed once comes first. How many are back. */
async function regressions(): Promise<number> {
  let back = 0;
  for (const { why, plan } of readRegressions()) {
    const { held, verdicts } = await run(plan);
    if (held) continue;
    back += 1;
    console.log(`it is back: ${why}`);
    for (const each of verdicts)
      if (each.verdict !== "holds") console.log(`  ${each.invariant} is ${each.verdict}: ${summaryOf(each).text}`);
  }
  return back;
}

function table(told: readonly Told[]): void {
  console.log(`${"invariant".padEnd(16)}${"holds".padStart(8)}${"broken".padStart(8)}${"unknown".padStart(8)}  legal`);
  for (const invariant of invariants) {
    const of = told.flatMap(({ verdicts }) => verdicts.filter((verdict) => verdict.invariant === invariant));
    const count = (wanted: string): string => String(of.filter(({ verdict }) => verdict === wanted).length).padStart(8);
    const pardons = new Map<string, number>();
    for (const { pardons: each } of of) for (const [why, times] of each) pardons.set(why, (pardons.get(why) ?? 0) + times);
    const legal = [...pardons].map(([why, times]) => `${times} × ${why}`).join(", ");
    console.log(`${invariant.padEnd(16)}${count("holds")}${count("broken")}${count("unknown")}  ${legal}`);
  }
}

async function explain({ seed, verdicts }: Told): Promise<void> {
  const worst = verdicts.find(({ verdict }) => verdict === "broken") ?? verdicts.find(({ verdict }) => verdict !== "holds")!;
  const smallest = await shrink(planOf(seed), failsAs(worst));
  const result = await run(smallest);
  console.log(`\nseed ${seed}, shrunk to ${smallest.transactions.length} transactions and these faults:`);
  for (const fault of smallest.faults) console.log(`  ${JSON.stringify(fault)}`);
  for (const verdict of result.verdicts) if (verdict.verdict !== "holds") console.log(`${verdict.invariant}: ${summaryOf(verdict).text}`);
  tellStory(result);
  console.log(`to repeat it:  npm run test:simulation -- --seed ${seed}`);
  console.log(`to keep it, in test/simulation/regressions.json:\n${JSON.stringify({ why: "", plan: smallest })}`);
}

if (given.seed !== null) await one(planOf(given.seed), values.hash);
else await many(given.from, given.seeds, given.workers);
