import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

const root = fileURLToPath(new URL("../../", import.meta.url));
const env = Object.fromEntries(
  Object.entries(process.env).filter(
    ([name]) => !/^(npm_|NODE_|VITEST|INIT_CWD)/.test(name) || /^npm_config_(registry|cache|userconfig)$/.test(name),
  ),
);

const installMs = 240_000;

/** Answers in a known time: a program that takes longer is ended, and nothing waits for input. */
function run(
  command: string,
  args: readonly string[],
  cwd: string,
  timeout = installMs,
): Promise<{ readonly code: number; readonly text: string }> {
  return new Promise((resolve) => {
    const begun = Date.now();
    const child = execFile(command, args, { cwd, env, timeout, maxBuffer: 64 * 1024 * 1024 }, (error, stdout, stderr) => {
      const took = `${[command, ...args].join(" ")}: ${Math.round((Date.now() - begun) / 1000)} s${error?.killed === true ? ", ended" : ""}`;
      resolve({ code: error === null ? 0 : typeof error.code === "number" ? error.code : 1, text: `${took}\n${stdout}${stderr}` });
    });
    child.stdin?.end();
  });
}

const quietly = ["--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"];
const old = ["prisma@6 @prisma/client@6", "amqplib@0.10", "pg@8.11", "knex@2", "kysely@0.27", "ioredis@4"];

let folder: string;
beforeAll(() => void (folder = mkdtempSync(join(tmpdir(), "waybill-clients-"))));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** An empty project. */
function project(name: string): string {
  const at = join(folder, name.replaceAll(/\W/g, "_"));
  mkdirSync(at);
  writeFileSync(join(at, "package.json"), '{ "name": "a-service", "private": true, "type": "module" }');
  return at;
}

describe("npm install of the packed package", () => {
  let tarball: string;
  beforeAll(async () => {
    // Packing builds, and others may be using what is built here. What npm asks is in the manifest alone.
    const copy = join(folder, "package");
    mkdirSync(copy);
    const { scripts: _, ...manifest } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as { scripts: unknown };
    writeFileSync(join(copy, "package.json"), JSON.stringify(manifest));
    const { code, text } = await run("npm", ["pack", "--pack-destination", folder], copy);
    expect(code, text).toBe(0);
    tarball = join(
      folder,
      readdirSync(folder).find((name) => name.endsWith(".tgz"))!,
    );
  });

  // Each has npm ask for the versions of all peers, which takes it most of a minute on a busy machine.
  const title = "beside %s ends with 0, for a client that is not used must not stop it";
  test.each([...old, old.join(" ")])(title, { timeout: 2 * installMs }, async (clients) => {
    const at = project(`beside ${clients}`);
    const before = await run("npm", ["install", ...quietly, ...clients.split(" ")], at);
    expect(before.code, before.text).toBe(0);
    const { code, text } = await run("npm", ["install", ...quietly, tarball], at);
    expect(code, text).toBe(0);
    expect(text).not.toContain("ERESOLVE");
  });
});
