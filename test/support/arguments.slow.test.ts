import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";

const root = fileURLToPath(new URL("../../", import.meta.url));

interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

function script(file: string, args: readonly string[]): Promise<Ended> {
  // One that takes the arguments for good would go on for an hour.
  const child = spawn(process.execPath, ["scripts/run-ts.mjs", file, ...args], { cwd: root, timeout: 200_000 });
  let [stdout, stderr] = ["", ""];
  child.stdout.setEncoding("utf8").on("data", (text: string) => (stdout += text));
  child.stderr.setEncoding("utf8").on("data", (text: string) => (stderr += text));
  return new Promise((resolve) => child.on("close", (code) => resolve({ code, stdout, stderr })));
}

const scripts = {
  faults: "test/faults/matrix/index.ts",
  simulation: "test/simulation/index.ts",
  mutants: "test/mutants/index.ts",
} as const;

const misuses: readonly (readonly [name: keyof typeof scripts, args: string, why: RegExp])[] = [
  ["faults", "--bogus", /Unknown option '--bogus'/],
  ["faults", "--rows x", /--rows "x" is none of 0, 1, /],
  ["faults", "--stores oracle", /--stores "oracle" is none of postgres, /],
  ["faults", "--minutes x", /--minutes must be a whole number/],
  ["faults", "--minutes 0", /--minutes must be a whole number of 1 or more/],
  ["faults", "--seed x", /--seed must be a whole number/],
  ["faults", "--rows 21 --stores sqlite", /no run of the matrix is on these stores and brokers/],
  ["faults", "39", /Unexpected argument '39'/],
  ["simulation", "--bogus", /Unknown option '--bogus'/],
  ["simulation", "--seeds 0", /--seeds must be a whole number of 1 or more/],
  ["simulation", "--workers 0", /--workers must be a whole number of 1 or more/],
  ["simulation", "--seed x", /--seed must be a whole number/],
  ["simulation", "--seeds 1999 --evidence", /--evidence takes 2000 seeds or more/],
  ["simulation", "--seed 1 --evidence", /--evidence takes 2000 seeds or more/],
  ["mutants", "--bogus", /Unknown option '--bogus'/],
  ["mutants", "--only nobody", /--only "nobody" is none of id-cursor, /],
];

describe.concurrent("a script that is called wrongly", () => {
  test.each(misuses)("test:%s %s ends with 2, and says why and how", async (name, args, why) => {
    const { code, stdout, stderr } = await script(scripts[name], args.split(" "));
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    const lines = stderr.trimEnd().split("\n");
    expect(lines[0]).toMatch(why);
    expect(lines.slice(1)).toEqual([expect.stringMatching(`^usage: npm run test:${name} -- `)]);
  });

  test.each(Object.entries(scripts))("test:%s --help tells its usage", async (name, file) => {
    expect(await script(file, ["--help"])).toEqual({
      code: 0,
      stdout: expect.stringMatching(`^usage: npm run test:${name} -- .*\n$`) as string,
      stderr: "",
    });
  });
});
