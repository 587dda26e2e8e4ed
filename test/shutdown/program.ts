import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import ts from "typescript";
import { built } from "../cli/build.ts";
import type { Request } from "./child.ts";

export const root = fileURLToPath(new URL("../../", import.meta.url));

/** How a child ended by itself. */
export interface Ended {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  /** Each line of its stdout, and all of its stderr. */
  readonly lines: readonly string[];
  readonly errors: string;
}

/** What to do with the process when it prints a line. */
export type Act = (pid: number) => void;

export interface Programs {
  /** Starts the child, and waits for its end. */
  run(request: Request, on?: Readonly<Record<string, Act>>): Promise<Ended>;
  /** The same for code that stands in the docs or the examples. */
  runCode(code: string, env: Readonly<Record<string, string>>, on: Readonly<Record<string, Act>>): Promise<Ended>;
  remove(): void;
}

/** As JavaScript over the built package: Node 20 runs no TypeScript, and knows no `await using`. */
export async function compilePrograms(): Promise<Programs> {
  await built();
  mkdirSync(join(root, ".cache"), { recursive: true });
  const out = mkdtempSync(join(root, ".cache", "waybill-shutdown-"));
  const compilerOptions = { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2023 };
  const compiled = (code: string, name: string): string => {
    const { outputText } = ts.transpileModule(code, { compilerOptions });
    const built = (_: string, path: string): string => JSON.stringify(pathToFileURL(join(root, "dist", `${path}.js`)).href);
    const imported = outputText.replaceAll(/"\.\.\/\.\.\/src\/(.*?)\.ts"/g, built).replaceAll(/"\.\/(\w+)\.ts"/g, '"./$1.mjs"');
    writeFileSync(join(out, `${name}.mjs`), imported);
    return join(out, `${name}.mjs`);
  };
  const source = (name: string): string => readFileSync(join(root, "test/shutdown", `${name}.ts`), "utf8");
  compiled(source("places"), "places");
  const child = compiled(source("child"), "child");
  return {
    run: (request, on = {}) => run([child, JSON.stringify(request)], {}, on),
    runCode: (code, env, on) => run([compiled(code, "code")], env, on),
    remove: () => rmSync(out, { recursive: true, force: true }),
  };
}

function run(args: readonly string[], env: Readonly<Record<string, string>>, on: Readonly<Record<string, Act>>): Promise<Ended> {
  const child = spawn(process.execPath, args, { env: { PATH: process.env["PATH"], ...env }, stdio: ["ignore", "pipe", "pipe"] });
  let [text, errors, seen] = ["", "", 0];
  child.stdout.setEncoding("utf8").on("data", (more: string) => {
    text += more;
    const lines = text.split("\n").slice(0, -1);
    for (const line of lines.slice(seen)) on[line]?.(child.pid!);
    seen = lines.length;
  });
  child.stderr.setEncoding("utf8").on("data", (more: string) => (errors += more));
  // Whoever is kept alive by an idle connection is kept for ever, or for the half minute after which pg ends it.
  const patience = setTimeout(() => child.kill("SIGKILL"), 240_000);
  return new Promise((resolve) =>
    child.on("close", (code, signal) => {
      clearTimeout(patience);
      resolve({ code, signal, lines: text.split("\n").slice(0, -1), errors });
    }),
  );
}
