import { execFile } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { available } from "../servers/available.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));
const env = Object.fromEntries(
  Object.entries(process.env).filter(
    ([name]) => !/^(npm_|NODE_|VITEST|INIT_CWD)/.test(name) || /^npm_config_(registry|cache|userconfig)$/.test(name),
  ),
);

const limitMs = { install: 240_000, suite: 540_000 };

/** Answers in a known time: a program that takes longer is ended, and nothing waits for input. */
function run(
  command: string,
  args: readonly string[],
  cwd: string,
  timeout = limitMs.install,
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
  test.each([...old, old.join(" ")])(title, { timeout: 2 * limitMs.install }, async (clients) => {
    const at = project(`beside ${clients}`);
    const before = await run("npm", ["install", ...quietly, ...clients.split(" ")], at);
    expect(before.code, before.text).toBe(0);
    const { code, text } = await run("npm", ["install", ...quietly, tarball], at);
    expect(code, text).toBe(0);
    expect(text).not.toContain("ERESOLVE");
  });
});

/** The oldest clients that these suites pass with, instead of the checkout's own. */
const oldest = [
  { clients: ["pg@8.11.6", "knex@2.5.1", "kysely@0.28.12"], tests: "test/handles/postgres.slow.test.ts", server: "postgres" },
  { clients: ["amqplib@0.10.9"], tests: "test/brokers/rabbitmq.slow.test.ts", server: "rabbitmq" },
  { clients: ["ioredis@5.3.2"], tests: "test/brokers/redis.slow.test.ts", server: "redis" },
] as const;

describe("with the oldest clients", () => {
  test.each(oldest)("$clients, $tests passes", { timeout: limitMs.install + limitMs.suite }, async ({ clients, tests, server }) => {
    const lack = await available(server);
    if (lack !== null) return void console.warn(`skipped: ${tests} with ${clients.join(", ")}: ${lack}`);
    const at = project(`modules ${clients.join(" ")}`);
    const installed = await run("npm", ["install", ...quietly, ...clients], at);
    expect(installed.code, installed.text).toBe(0);
    const tree = project(`tree ${clients.join(" ")}`);
    for (const name of readdirSync(root)) {
      if (![".git", ".cache", "node_modules"].includes(name)) cpSync(join(root, name), join(tree, name), { recursive: true });
    }
    const modules = join(tree, "node_modules");
    mkdirSync(modules);
    for (const name of readdirSync(join(root, "node_modules"))) symlinkSync(join(root, "node_modules", name), join(modules, name));
    for (const client of clients) {
      const name = client.slice(0, client.lastIndexOf("@"));
      rmSync(join(modules, name));
      symlinkSync(join(at, "node_modules", name), join(modules, name));
    }
    const vitest = join(dirname(fileURLToPath(import.meta.resolve("vitest/package.json"))), "vitest.mjs");
    const { code, text } = await run(process.execPath, [vitest, "run", "--project", "slow", tests], tree, limitMs.suite);
    expect(code, text.slice(-4_000)).toBe(0);
  });
});
