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
const [, example = ""] = /```js shop\.mjs\n([\s\S]*?)```/.exec(page) ?? [];
const examples = [...page.matchAll(/```(?:ts|js)[^\n]*\n([\s\S]*?)```/g)].map(([, code = ""]) => code);
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
  expect(examples).toHaveLength(2);
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

test("the README's example says what happens, takes its event to its effect and ends by itself, as often as it is run", async () => {
  const folder = mkdtempSync(join(tmpdir(), "waybill-readme-"));
  cleanups.push(() => rmSync(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 }));
  const program = place("example.mjs", example);
  const orders: string[] = [];
  for (const run of ["first", "second"]) {
    const child = spawn(process.execPath, [program], { cwd: folder, stdio: ["ignore", "pipe", "pipe"] });
    cleanups.push(() => child.kill("SIGKILL"));
    let [out, errors] = ["", ""];
    child.stdout.setEncoding("utf8").on("data", (text: string) => (out += text));
    child.stderr.setEncoding("utf8").on("data", (text: string) => (errors += text));
    const code = await new Promise((resolve) => child.on("close", resolve));
    expect({ run, code, errors }).toEqual({ run, code: 0, errors: "" });
    const [, id = ""] = /order (o-\d+) saved with its event/.exec(out) ?? [];
    expect(out.trim().split("\n").sort()).toEqual([`order ${id} saved with its event`, `parcel for ${id}`]);
    orders.push(id);
  }
  const db = (await defaultDriver())(join(folder, "shop-in-one.db"));
  const parcels = db.prepare("SELECT order_id FROM parcels ORDER BY order_id").all() as { order_id: string }[];
  db.close();
  expect(parcels.map(({ order_id }) => order_id)).toEqual(orders);
});
