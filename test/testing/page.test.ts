import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";
import ts from "typescript";
import { built } from "../cli/build.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));

test("the examples of docs/testing.md pass under Node's own runner", { timeout: 60_000 }, async () => {
  await built();
  mkdirSync(join(root, ".cache"), { recursive: true });
  const folder = mkdtempSync(join(root, ".cache", "testing-")); // inside the repository, so that "waybill" is the package as built
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const programs = new Map<string, string>();
  for (const [, name = "", code = ""] of readFileSync(join(root, "docs/testing.md"), "utf8").matchAll(
    /^```ts (\S+\.ts)\n([\s\S]*?)^```$/gm,
  )) {
    programs.set(name, `${programs.get(name) ?? ""}${code}\n`);
  }
  expect([...programs.keys()]).toEqual(["shop.test.ts", "sqlite.test.ts", "postgres.test.ts"]);
  const files = [...programs].map(([name, code]) => {
    const file = join(folder, name.replace(/\.ts$/, ".js"));
    const compilerOptions = { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2023 };
    writeFileSync(file, ts.transpileModule(code, { compilerOptions }).outputText);
    return file;
  });
  const { stdout } = await promisify(execFile)(process.execPath, ["--test", "--test-reporter=tap", ...files], {
    cwd: folder,
    env: { ...process.env, DATABASE_URL: undefined },
  });
  expect(stdout).toMatch(/^# pass 9$/m);
  expect(stdout).toMatch(/^# fail 0$/m);
  // The one that needs a server.
  expect(stdout).toMatch(/^# skipped 1$/m);
});
