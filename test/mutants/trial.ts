import { spawn } from "node:child_process";
import { readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { Killer } from "./table.ts";

/** What a run has shown of a tree. Only a promise that was seen broken is one: a run that ends some other way shows nothing. */
export type Finding =
  { readonly is: "broken"; readonly how: string } | { readonly is: "held" } | { readonly is: "nothing"; readonly why: string };

const simulationMs = 180_000;
/** The tests of a file may start several servers, on a busy machine. */
const testsMs = 420_000;
/** A test that hangs is a test that fails, within the limit. */
const testTimeoutMs = 60_000;
const seeds = 2_000;

export const trial = (tree: string, killer: Killer): Promise<Finding> => (killer === "simulation" ? simulate(tree) : test(tree, killer));

interface Report {
  readonly numPassedTests: number;
  readonly testResults: readonly {
    readonly message: string;
    readonly assertionResults: readonly { readonly status: string; readonly title: string; readonly failureMessages: readonly string[] }[];
  }[];
}

async function test(tree: string, { tests: file, only, within }: Exclude<Killer, "simulation">): Promise<Finding> {
  const output = join(tree, "mutants.json");
  rmSync(output, { force: true });
  const names = [within, only].filter((part) => part !== "").map((part) => part.replaceAll(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const named = names.length === 0 ? [] : ["-t", names.join(".*")];
  const reporting = ["--reporter=json", `--outputFile=${output}`];
  const end = await run(
    tree,
    ["node_modules/vitest/vitest.mjs", "run", file, ...named, "--bail=1", `--testTimeout=${testTimeoutMs}`, ...reporting],
    testsMs,
    () => false,
  );
  if (end.late) return { is: "nothing", why: `no end within ${testsMs / 1_000} s` };
  const report = read(output);
  if (report === null) return { is: "nothing", why: `no report: ${lastLine(end.text)}` };
  const failed = report.testResults.flatMap(({ assertionResults }) => assertionResults.filter(({ status }) => status === "failed"));
  const [first] = failed;
  if (first !== undefined)
    return {
      is: "broken",
      how: `${first.title}: ${(first.failureMessages[0] ?? "")
        .split("\n")[0]!
        .replaceAll(/(\/[\w.-]+)+\/(?=node_modules)/g, "")
        .slice(0, 160)}`,
    };
  if (end.code !== 0) return { is: "nothing", why: firstLine(report.testResults.map(({ message }) => message).join("\n") || end.text) };
  return report.numPassedTests > 0 ? { is: "held" } : { is: "nothing", why: "no test has run" };
}

function read(file: string): Report | null {
  try {
    return JSON.parse(readFileSync(file, "utf8")) as Report;
  } catch {
    return null;
  }
}

async function simulate(tree: string): Promise<Finding> {
  const command = ["scripts/run-ts.mjs", "test/simulation/index.ts", "--seeds", String(seeds), "--bail"];
  // What comes after the verdict is an explanation, which takes long.
  const end = await run(tree, command, simulationMs, (text) => verdictIn(text) !== null);
  const verdict = verdictIn(end.text);
  if (verdict !== null) return { is: "broken", how: verdict };
  const unknown = /^(?:seed \d+:| ) [a-z ]+ is unknown: .*/m.exec(end.text)?.[0].trim();
  if (unknown !== undefined) return { is: "nothing", why: unknown };
  return end.late || end.code === 0 ? { is: "held" } : { is: "nothing", why: lastLine(end.text) };
}

/** The first invariant that the simulation calls broken. One of which it knows nothing is not. */
export function verdictIn(text: string): string | null {
  let regression = "";
  for (const line of text.split("\n")) {
    regression = /^it is back: (.*)/.exec(line)?.[1] ?? regression;
    const [, seed, invariant] = /^(?:seed (\d+):| ) ([a-z ]+) is broken: /.exec(line) ?? [];
    if (invariant !== undefined) return `${invariant} is broken, ${seed === undefined ? `regression "${regression}"` : `seed ${seed}`}`;
  }
  return null;
}

const firstLine = (text: string): string => text.trim().split("\n")[0]!;
const lastLine = (text: string): string => text.trim().split("\n").at(-1) ?? "";

interface End {
  readonly code: number | null;
  readonly late: boolean;
  readonly text: string;
}

/** Runs Node in the tree, until it ends, is late, or has said enough. Its children end with it. */
function run(tree: string, args: readonly string[], limitMs: number, enough: (text: string) => boolean): Promise<End> {
  const child = spawn(process.execPath, args, { cwd: tree, detached: true, stdio: ["ignore", "pipe", "pipe"] });
  let text = "";
  let late = false;
  const end = (): void => {
    try {
      process.kill(-child.pid!, "SIGTERM");
    } catch {
      // it has ended
    }
  };
  const hear = (chunk: Buffer): void => {
    text += String(chunk);
    if (enough(text)) end();
  };
  child.stdout.on("data", hear);
  child.stderr.on("data", hear);
  const timer = setTimeout(() => {
    late = true;
    end();
  }, limitMs);
  process.once("exit", end);
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code) => {
      clearTimeout(timer);
      process.off("exit", end);
      resolve({ code, late, text });
    });
  });
}
