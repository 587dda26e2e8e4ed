import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, expect, test } from "vitest";
import ts from "typescript";
import { defaultDriver } from "../src/drivers/sqlite/driver.ts";

const root = fileURLToPath(new URL("../", import.meta.url));
const cache = join(root, ".cache");
const page = readFileSync(join(root, "README.md"), "utf8");
const [, example = ""] = /```ts\n([\s\S]*?)```/.exec(page) ?? [];
const examples = [...page.matchAll(/```ts[^\n]*\n([\s\S]*?)```/g)].map(([, code = ""]) => code);
const cleanups: (() => void)[] = [];

afterEach(() => {
  for (const clean of cleanups.splice(0)) clean();
});

/** Inside the repository, so that "waybill" is the package itself, as built. */
function place(name: string, text: string): string {
  mkdirSync(cache, { recursive: true });
  const folder = mkdtempSync(join(cache, "readme-"));
  cleanups.push(() => rmSync(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 }));
  writeFileSync(join(folder, name), text);
  return join(folder, name);
}

test("the README's examples have the types that the package has", () => {
  expect(examples).toHaveLength(3);
  const paths = examples.map((code) => place("example.mts", code));
  const config = ts.readConfigFile(join(root, "tsconfig.json"), (file) => ts.sys.readFile(file));
  const { options } = ts.parseJsonConfigFileContent({ ...config.config, include: paths }, ts.sys, root);
  const program = ts.createProgram(paths, options);
  const found = paths.flatMap((path) => {
    const source = program.getSourceFile(path);
    return [...program.getSyntacticDiagnostics(source), ...program.getSemanticDiagnostics(source)];
  });
  expect(found.map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, "\n"))).toEqual([]);
});

test("the README's example takes an event from its transaction to its effect", async () => {
  const { outputText } = ts.transpileModule(example, { compilerOptions: { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2023 } });
  const folder = mkdtempSync(join(tmpdir(), "waybill-readme-"));
  cleanups.push(() => rmSync(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 }));
  const child = spawn(process.execPath, [place("example.mjs", outputText)], { cwd: folder, stdio: ["ignore", "ignore", "pipe"] });
  cleanups.push(() => child.kill("SIGKILL"));
  let errors = "";
  child.stderr.on("data", (chunk: Buffer) => (errors += chunk.toString()));

  const open = await defaultDriver();
  const parcels = (): unknown[] => {
    try {
      const db = open(join(folder, "shop.db"));
      try {
        return db.prepare("SELECT order_id FROM parcels").all();
      } finally {
        db.close();
      }
    } catch {
      return []; // not there yet, or locked
    }
  };
  await expect
    .poll(() => (child.exitCode === null ? parcels().map((row) => ({ ...(row as object) })) : errors), { timeout: 15_000 })
    .toEqual([{ order_id: "o-1" }]);
  expect(errors).toBe("");
});
