import { execFile } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished, test, type TestContext } from "vitest";
import { newestLts, newestNode } from "../../scripts/newest-node.mjs";
import { built } from "../cli/build.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));
const name = `node${newestLts}`;
const required = (process.env["WAYBILL_REQUIRE"] ?? "").split(/[\s,]+/).some((word) => word === name || word === "all");

/** Skips aloud where there is no such Node, unless WAYBILL_REQUIRE says that there must be. */
async function newest(context: TestContext): Promise<string> {
  try {
    return await newestNode();
  } catch (error) {
    if (required) throw error;
    const why = `${name} cannot be had here: ${String(error).split("\n")[0]}`;
    console.warn(`SKIPPED ${why}`);
    return context.skip(why);
  }
}

function run(
  command: string,
  args: readonly string[],
  cwd: string,
): Promise<{ readonly code: number; readonly stdout: string; readonly stderr: string }> {
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(VITEST|NODE_)/.test(name)));
  return new Promise((resolve) => {
    execFile(command, args, { cwd, env, maxBuffer: 64 * 1024 * 1024 }, (error, stdout, stderr) =>
      resolve({ code: error === null ? 0 : 1, stdout, stderr }),
    );
  });
}

test("core, outbox, stores and subscriber keep their word on the newest LTS", { timeout: 300_000 }, async (context) => {
  const node = await newest(context);
  await built();
  const rooms = ["core", "outbox", "stores", "sqlite", "subscriber"].map((room) => `test/${room}/`);
  const { code, stdout, stderr } = await run(node, ["node_modules/vitest/vitest.mjs", "run", "--project", "fast", ...rooms], root);
  expect(code, (stdout + stderr).slice(-8_000)).toBe(0);
  const [, passed] = /^(\d+) passed, 0 failed, \d+ skipped$/m.exec(stdout) ?? [];
  expect(Number(passed)).toBeGreaterThan(500);
});

test("the whole path holds its promises on the newest LTS, with processes killed and Node's own SQLite", async (context) => {
  const node = await newest(context);
  const main = await built();
  const folder = mkdtempSync(join(tmpdir(), "waybill-newest-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const { code, stdout, stderr } = await run(node, [main, "dev", "--faults", "--exit-after", "6s"], folder);
  expect({ code, stderr }, stdout.slice(-8_000)).toEqual({ code: 0, stderr: "" });
  expect(JSON.parse(stdout.trim().split("\n").at(-1)!)).toMatchObject({ held: true, lost: 0, invented: 0, outOfOrder: 0, doubled: 0 });
});
