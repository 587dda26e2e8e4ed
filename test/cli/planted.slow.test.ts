import { execFile } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { RunReport } from "../../src/cli/verify/report.ts";
import { built } from "./build.ts";

/** The program with a store and a broker more: a folder and a line in the table for each. */
let tree: string;

function plant(kind: "stores" | "brokers", name: string, like: string): void {
  const folder = join(tree, "dist", kind, name);
  mkdirSync(folder);
  writeFileSync(
    join(folder, "adapter.js"),
    `import { ${like}Adapter } from "../${like}/adapter.js";
export const ${name}Adapter = { ...${like}Adapter, name: "${name}", schemes: ["${name}"], example: "${name}:./garden" };\n`,
  );
  const table = join(tree, "dist/cli/adapters.js");
  const text = readFileSync(table, "utf8").replace(`${kind}: [`, `${kind}: [${name}Adapter, `);
  writeFileSync(table, `import { ${name}Adapter } from "../${kind}/${name}/adapter.js";\n${text}`);
}

beforeAll(async () => {
  tree = mkdtempSync(join(tmpdir(), "waybill-planted-tree-"));
  const root = join(dirname(await built()), "../..");
  for (const name of ["dist", "package.json"]) cpSync(join(root, name), join(tree, name), { recursive: true });
  symlinkSync(join(root, "node_modules"), join(tree, "node_modules"));
  plant("stores", "beetle", "sqlite");
  plant("brokers", "rose", "embedded");
});
afterAll(() => rmSync(tree, { recursive: true, force: true }));

test("verify needs nothing of an adapter but its description: its workers find the planted ones too", async () => {
  const places = ["--store", "beetle:./a.db", "--broker", "rose:./b.db"];
  const stdout = await new Promise<string>((resolve, reject) => {
    const args = [join(tree, "dist/cli/main.js"), "verify", ...places, "--minutes", "0.05", "--seed", "7", "--json"];
    execFile(process.execPath, args, { cwd: tree }, (error, out, err) =>
      error === null ? resolve(out) : reject(new Error(`${out}${err}`)),
    );
  });
  const report = JSON.parse(stdout) as RunReport;
  expect(report).toMatchObject({ store: "beetle:./a.db", broker: "rose:./b.db", held: true, left: null });
  expect(report.counts.effects).toBeGreaterThan(0);
  expect(readdirSync(tree).filter((name) => name.includes(report.run))).toEqual([]);
});
