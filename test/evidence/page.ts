import type { Result } from "../faults/matrix/stage.ts";
import { killerText, type Mutant } from "../mutants/table.ts";
import type { Evidence, Tried } from "./files.ts";
import type { Letter, Promised } from "./promises.ts";

const [begin, end] = ["<!-- what follows is written by npm run docs -->", "<!-- up to here -->"];

/** The page with its generated part made anew. */
export function filledIn(page: string, part: string): string {
  const [before, rest] = page.split(begin);
  const after = rest?.split(end)[1];
  if (before === undefined || after === undefined) throw new Error(`the page has no part between ${begin} and ${end}`);
  return `${before}${begin}\n\n${part}\n\n${end}${after}`;
}

/** What the last full runs have shown, by promise and by fault. */
export function evidencePart(promises: readonly Promised[], mutants: readonly Mutant[], evidence: Evidence): string {
  const { faults, simulation } = evidence;
  const ran = faults.filter(({ cannot }) => cannot === null);
  const sum = (of: (result: Result) => number): string => ran.reduce((total, result) => total + of(result), 0).toLocaleString("en");
  const failed = ran.filter(({ held }) => !held).length;
  const sources = [...new Set(faults.map(({ hash }) => hash ?? "unknown"))];
  return [
    "| promise | judged in every run as | tests that hold it first of all | mutants that these and other tests killed |",
    "|---|---|---|---|",
    ...promises.map((promise) => promiseLine(promise, mutants, evidence.mutants)),
    "",
    `Mutants that break no promise, but make events cost more or wait longer: ${killedOf(null, mutants, evidence.mutants).join(", ")}.`,
    "",
    `The faults below: ${ran.length} runs on real servers, ${sum(({ times }) => times)} faults injected, ` +
      `${sum(({ counts }) => counts?.events ?? 0)} events, ${sum(({ counts }) => counts?.effects ?? 0)} effects, ` +
      `${sum(({ counts }) => counts?.copies ?? 0)} copies beyond the first, which faults explain; ` +
      `a promise was broken or could not be judged in ${failed} of them (\`npm run test:faults\`). ` +
      `They are of the source with the hash ${sources.join(" and ")}. ` +
      `The [simulation](simulation.md): ${simulation.seeds.toLocaleString("en")} seeds, ${simulation.steps.toLocaleString("en")} steps, ` +
      `${simulation.failed} failed (\`npm run test:simulation\`).`,
    "",
    "| fault | injected | how often, where | verdict |",
    "|---|---|---|---|",
    ...faultLines(faults),
  ].join("\n");
}

const cell = (text: string): string => text.replaceAll("|", "\\|");

function promiseLine({ letter, name, invariants, tests }: Promised, mutants: readonly Mutant[], tried: readonly Tried[]): string {
  const killed = killedOf(letter, mutants, tried);
  const held = tests.map((test) => `“${test.name}” (${test.file})`);
  return `| **${letter}** ${name} | ${invariants.join(", ")} | ${cell(held.join("; "))} | ${cell(killed.join(", "))} |`;
}

/** The mutants of a promise, or of none, each with what killed it. */
function killedOf(letter: Letter | null, mutants: readonly Mutant[], tried: readonly Tried[]): readonly string[] {
  return mutants
    .filter(({ promise }) => promise === letter)
    .map((mutant) => {
      const verdict = tried.find((one) => one.name === mutant.name)?.verdict ?? "not tried";
      const by = mutant.killer === "simulation" ? killerText(mutant.killer) : mutant.killer.tests.replace("test/", "");
      return `\`${mutant.name}\` (${verdict === "killed" ? by : `**${verdict}**`})`;
    });
}

/** How often each kind was, over all runs of a row that has several. */
function kindsOf(ran: readonly Result[]): string {
  const sums = new Map<string, number>();
  for (const [kind, times] of ran.flatMap(({ kinds = {} }) => Object.entries(kinds))) sums.set(kind, (sums.get(kind) ?? 0) + times);
  return sums.size < 2 ? "" : ` (${[...sums].map(([kind, times]) => `${times} × ${kind}`).join(", ")})`;
}

function faultLines(faults: readonly Result[]): readonly string[] {
  return [...new Set(faults.map(({ row }) => row))].map((row) => {
    const results = faults.filter((result) => result.row === row);
    const { title, injected } = results[0]!;
    const ran = results.filter(({ cannot }) => cannot === null);
    const where = ran.map(({ store, broker, times }) => `${times} × ${store} + ${broker}`);
    const bad = ran.filter(({ held }) => !held).map(({ store, broker }) => `**not held on ${store} + ${broker}**`);
    const cannot = results
      .filter((result) => result.cannot !== null)
      .map(({ store, broker, cannot: why }) => `${store} + ${broker}: ${why}`);
    const verdict = [ran.length > bad.length ? `held in ${ran.length - bad.length}` : "", ...bad, ...cannot].filter((text) => text !== "");
    return `| ${row === 0 ? "mixed" : row}: ${cell(title)} | ${cell(injected)} | ${where.join(", ")}${kindsOf(ran)} | ${cell(verdict.join("; "))} |`;
  });
}
