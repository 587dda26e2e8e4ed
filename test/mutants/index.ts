import { keep, recallAll, type Tried } from "../evidence/files.ts";
import { misused, readArguments, someOf } from "../support/arguments.ts";
import { mends, mendsMarkdown } from "./mends.ts";
import { killerText, markdown, mutants, type Mutant } from "./table.ts";
import { apply, copyTree } from "./tree.ts";
import { trial, type Finding } from "./trial.ts";

const usage = "npm run test:mutants -- [--only NAME,… | --mends] [--evidence] | --list | --help";

const values = readArguments(usage, {
  only: { type: "string" },
  mends: { type: "boolean", default: false },
  evidence: { type: "boolean", default: false },
  list: { type: "boolean", default: false },
});
if (values.only !== undefined && values.mends) misused(usage, "--only or --mends, not both");
const named = someOf(
  usage,
  "only",
  values.only,
  mutants.map(({ name }) => name),
);
const names = values.mends ? mends.flatMap((mend) => mend.mutants) : named;
type Verdict = "killed" | "survived" | "unclean" | "no patch" | "no verdict";

interface Line extends Tried {
  readonly verdict: Verdict;
}

/** Each killer must find nothing in the tree as it is, or it proves nothing of a mutant. */
async function cleanliness(tree: string, chosen: readonly Mutant[]): Promise<ReadonlyMap<string, Finding>> {
  const findings = new Map<string, Finding>();
  for (const { killer } of chosen) {
    const name = killerText(killer);
    if (findings.has(name)) continue;
    const started = performance.now();
    const finding = await trial(tree, killer);
    findings.set(name, finding);
    console.log(`${finding.is === "held" ? "clean" : "UNCLEAN"}  ${secondsSince(started)} s  ${name}${reasonOf(finding)}`);
  }
  return findings;
}

async function judge(tree: string, mutant: Mutant, clean: Finding): Promise<Line> {
  const started = performance.now();
  const line = (verdict: Verdict, how: string): Line => ({ name: mutant.name, verdict, how, seconds: secondsSince(started) });
  if (clean.is !== "held") return line("unclean", `${killerText(mutant.killer)}${reasonOf(clean)}`);
  const refused = apply(tree, mutant.name);
  if (refused !== null) return line("no patch", refused);
  const finding = await trial(tree, mutant.killer);
  const stuck = apply(tree, mutant.name, "-R");
  if (stuck !== null) throw new Error(`${mutant.name} cannot be taken back: ${stuck}`);
  if (finding.is === "broken") return line("killed", finding.how);
  return finding.is === "held" ? line("survived", killerText(mutant.killer)) : line("no verdict", finding.why);
}

/** The evidence of a run of some mutants takes the place of theirs; that of the others stays, and that of mutants that are no more goes. */
function besideKept(lines: readonly Line[]): readonly Tried[] {
  const tried = new Map<string, Tried>([...recallAll().mutants, ...lines].map((line) => [line.name, line]));
  return mutants.flatMap(({ name }) => tried.get(name) ?? []);
}

const secondsSince = (started: number): number => Math.round((performance.now() - started) / 100) / 10;

const reasonOf = (finding: Finding): string => (finding.is === "held" ? "" : `: ${finding.is === "broken" ? finding.how : finding.why}`);

function tell({ name, verdict, how, seconds }: Line): void {
  console.log(`${name.padEnd(30)}${verdict.padEnd(12)}${seconds.toFixed(1).padStart(6)} s  ${how}`);
}

async function main(chosen: readonly Mutant[]): Promise<void> {
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => process.exit(1));
  using tree = copyTree();
  process.once("exit", () => tree[Symbol.dispose]());
  const clean = await cleanliness(tree.path, chosen);
  const lines: Line[] = [];
  for (const mutant of chosen) {
    const line = await judge(tree.path, mutant, clean.get(killerText(mutant.killer))!);
    tell(line);
    lines.push(line);
  }
  const killed = lines.filter(({ verdict }) => verdict === "killed").length;
  console.log(`\n${killed} of ${lines.length} mutants killed`);
  for (const line of lines) if (line.verdict !== "killed") tell(line);
  if (values.evidence) keep("mutants", besideKept(lines));
  process.exitCode = killed === lines.length ? 0 : 1;
}

if (values.list) console.log(`${markdown()}\n\n${mendsMarkdown()}`);
else await main(names === null ? mutants : mutants.filter(({ name }) => names.includes(name)));
