import { spawn, type ChildProcess } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";

export const root = fileURLToPath(new URL("../", import.meta.url));
export const pages = readdirSync(join(root, "docs")).filter((name) => name.endsWith(".md"));
export const read = (page: string): string => readFileSync(join(root, "docs", page), "utf8");
export const patienceMs = 90_000;

export const cleanups: (() => unknown)[] = [];
/** For `afterEach` of whoever uses these. */
export async function cleanUp(): Promise<void> {
  for (const clean of cleanups.splice(0).reverse()) await clean();
}

/** The programs of a page: "```ts name.ts" begins one, and blocks of one name belong together. */
export function programsOf(page: string): ReadonlyMap<string, string> {
  const programs = new Map<string, string>();
  for (const [, name = "", code = ""] of read(page).matchAll(/^```ts (\S+\.ts)\n([\s\S]*?)^```$/gm)) {
    programs.set(name, `${programs.get(name) ?? ""}${code}\n`);
  }
  return programs;
}

export function temporary(parent: string): string {
  const folder = mkdtempSync(join(parent, "waybill-docs-"));
  cleanups.push(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Inside the repository, so that "waybill" is the package itself, as built. */
export function place(programs: ReadonlyMap<string, string>): string {
  mkdirSync(join(root, ".cache"), { recursive: true });
  const folder = temporary(join(root, ".cache"));
  const compilerOptions = { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2023 };
  for (const [name, code] of programs) {
    writeFileSync(join(folder, name), code);
    writeFileSync(join(folder, name.replace(/\.ts$/, ".js")), ts.transpileModule(code, { compilerOptions }).outputText);
  }
  return folder;
}

export interface Run {
  readonly child: ChildProcess;
  readonly ended: Promise<{ readonly code: number | null; readonly out: string }>;
}

export function node(args: readonly string[], cwd: string, env: Readonly<Record<string, string>> = {}): Run {
  const child = spawn(process.execPath, args, { cwd, env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "pipe"] });
  let out = "";
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", (text: string) => (out += text));
  const ended = new Promise<{ code: number | null; out: string }>((resolve) => child.on("close", (code) => resolve({ code, out })));
  cleanups.push(() => {
    child.kill("SIGKILL");
    return ended;
  });
  return { child, ended };
}
