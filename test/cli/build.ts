import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { mkdirSync, readdirSync, rmSync, statSync, utimesSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const root = fileURLToPath(new URL("../../", import.meta.url));
const main = join(root, "dist/cli/main.js");

function newest(folder: string): number {
  return Math.max(...readdirSync(folder, { recursive: true, encoding: "utf8" }).map((name) => statSync(join(folder, name)).mtimeMs));
}

const isFresh = (): boolean => (statSync(main, { throwIfNoEntry: false })?.mtimeMs ?? 0) >= newest(join(root, "src"));

/** Child processes need JavaScript. Builds once, whichever test file comes first; the others wait for it. */
export async function built(): Promise<string> {
  const lock = join(root, "node_modules/.waybill-build");
  for (;;) {
    if (isFresh() && !statSync(lock, { throwIfNoEntry: false })) return main;
    try {
      mkdirSync(lock);
    } catch {
      const since = statSync(lock, { throwIfNoEntry: false })?.mtimeMs ?? Date.now();
      if (Date.now() - since > 60_000) rmSync(lock, { recursive: true, force: true }); // left by a killed run
      await new Promise((resolve) => setTimeout(resolve, 50));
      continue;
    }
    try {
      if (!isFresh()) {
        execFileSync(process.execPath, [join(root, "node_modules/typescript/bin/tsc"), "-p", "tsconfig.build.json"], {
          cwd: root,
          stdio: "pipe",
        });
        // The compiler leaves files alone whose sources say what they said before.
        utimesSync(main, new Date(), new Date());
      }
      return main;
    } finally {
      rmSync(lock, { recursive: true, force: true });
    }
  }
}

export interface Result {
  readonly code: number | null;
  readonly signal: string | null;
  readonly stdout: string;
  readonly stderr: string;
}

interface CliOptions {
  readonly cwd: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly stdin?: string;
  /** Runs as a user who may write nothing, also where the tests run as root, who may write everything. */
  readonly powerless?: boolean;
}

/** The command line as a user runs it, in a process of its own. */
export async function cli(args: readonly string[], options: CliOptions): Promise<Result> {
  const { child, result } = await start(args, options);
  child.stdin!.on("error", () => undefined); // not every command reads what it is given
  child.stdin!.end(options.stdin ?? "");
  return result;
}

export async function start(
  args: readonly string[],
  { cwd, env = {}, powerless = false }: CliOptions,
): Promise<{ readonly child: ChildProcess; readonly result: Promise<Result>; readonly stdout: () => string }> {
  const main = await built();
  const program = powerless ? ["--input-type=module", "--eval", powerlessScript(), "--"] : [main];
  const child = spawn(process.execPath, [...program, ...args], { cwd, env: { PATH: process.env["PATH"], ...env } });
  let [stdout, stderr] = ["", ""];
  child.stdout.setEncoding("utf8").on("data", (text: string) => (stdout += text));
  child.stderr.setEncoding("utf8").on("data", (text: string) => (stderr += text));
  const result = new Promise<Result>((resolve) => child.on("close", (code, signal) => resolve({ code, signal, stdout, stderr })));
  return { child, result, stdout: () => stdout };
}

/** Everything is loaded by root, since nobody else may be allowed to read this folder; then nobody goes on. */
function powerlessScript(): string {
  const [program, driver] = ["cli/program.js", "drivers/sqlite/driver.js"].map((file) =>
    JSON.stringify(pathToFileURL(join(root, "dist", file)).href),
  );
  return `
    const { run } = await import(${program});
    await (await import(${driver})).defaultDriver();
    if (process.getuid() === 0) { process.setgroups([]); process.setgid(65534); process.setuid(65534); }
    const stream = (to) => ({ write: (text) => to.write(text), colour: false });
    process.exitCode = await run(process.argv.slice(1), {
      stdout: stream(process.stdout), stderr: stream(process.stderr), cwd: process.cwd(), env: process.env,
      stdin: async () => new Uint8Array(), onSignal: () => undefined,
    });`;
}

/** Waits for a condition, never for a time. */
export async function until(condition: () => boolean | Promise<boolean>, withinMs = 30_000): Promise<void> {
  for (const deadline = Date.now() + withinMs; !(await condition());) {
    if (Date.now() > deadline) throw new Error(`this did not come true within ${withinMs} ms: ${condition.toString()}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
