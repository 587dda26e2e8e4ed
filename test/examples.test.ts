import { spawn, type ChildProcess } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeAll, expect, test } from "vitest";
import ts from "typescript";
import { defaultDriver } from "../src/drivers/sqlite/driver.ts";
import { built, until } from "./cli/build.ts";

const root = fileURLToPath(new URL("../", import.meta.url));
const cleanups: (() => unknown)[] = [];

beforeAll(() => built());
afterEach(async () => {
  for (const clean of cleanups.splice(0).reverse()) await clean();
});

function temporary(parent: string): string {
  const folder = mkdtempSync(join(parent, "waybill-example-"));
  cleanups.push(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

interface Run {
  readonly child: ChildProcess;
  readonly folder: string;
  readonly out: () => string;
  readonly ended: Promise<{ readonly code: number | null; readonly out: string; readonly errors: string }>;
}

/** As JavaScript inside the repository, so that "waybill" is the package itself, as built; with a new folder to work in. */
function run(example: string, env: Readonly<Record<string, string>> = {}): Run {
  mkdirSync(join(root, ".cache"), { recursive: true });
  const program = join(temporary(join(root, ".cache")), basename(example).replace(/\.ts$/, ".mjs"));
  const compilerOptions = { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2023 };
  writeFileSync(program, ts.transpileModule(readFileSync(join(root, "examples", example), "utf8"), { compilerOptions }).outputText);
  const folder = temporary(tmpdir());
  const child = spawn(process.execPath, [program], {
    cwd: folder,
    env: { PATH: process.env["PATH"], ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let [out, errors] = ["", ""];
  child.stdout.setEncoding("utf8").on("data", (text: string) => (out += text));
  child.stderr.setEncoding("utf8").on("data", (text: string) => (errors += text));
  const ended = new Promise<Awaited<Run["ended"]>>((resolve) => child.on("close", (code) => resolve({ code, out, errors })));
  cleanups.push(() => {
    child.kill("SIGKILL");
    return ended;
  });
  return { child, folder, out: () => out, ended };
}

async function query(path: string, sql: string): Promise<unknown[]> {
  const db = (await defaultDriver())(path);
  try {
    return db
      .prepare(sql)
      .all()
      .map((row) => Object.values(row as Record<string, unknown>));
  } finally {
    db.close();
  }
}

test("every example has a test here or in examples-projects.long.test.ts", () => {
  expect(
    readdirSync(join(root, "examples"), { withFileTypes: true })
      .flatMap((entry) => (entry.isDirectory() ? [entry.name] : []))
      .sort(),
  ).toEqual(["chained-events", "express-prisma-rabbitmq", "express-sqlite", "fastify-drizzle-jetstream", "nestjs-typeorm-kafka"]);
});

/**
 * The programs of an example are the files of its folder. One that hears of SIGTERM runs until then, and prints a line once it does; the
 * others end by themselves. A folder with a package.json is a project: its own test installs it first.
 */
const programs = readdirSync(join(root, "examples"), { recursive: true, encoding: "utf8" }).filter((path) => {
  const parts = path.split(sep);
  return path.endsWith(".ts") && parts.length > 1 && !existsSync(join(root, "examples", parts[0]!, "package.json"));
});
/** Less than anything that keeps a process alive by mistake keeps it. */
const endMs = 20_000;

test.each(programs)("%s ends by itself with code 0 soon after SIGTERM", async (path) => {
  const program = run(path, { PORT: "0" });
  if (!/SIGTERM/.test(readFileSync(join(root, "examples", path), "utf8"))) return expect(await program.ended).toMatchObject({ code: 0 });
  await until(() => program.out().includes("\n") || program.child.exitCode !== null);
  const signalled = performance.now();
  program.child.kill("SIGTERM");
  expect(await program.ended).toMatchObject({ code: 0, errors: "" });
  expect(performance.now() - signalled).toBeLessThan(endMs);
});

test("express-sqlite: an order that was posted becomes a parcel, one that is refused leaves nothing, and it stops cleanly", async () => {
  const service = run("express-sqlite/service.ts", { PORT: "0" });
  await until(() => service.out().includes("listening on ") || service.child.exitCode !== null);
  const [, url = ""] = /listening on (\S+)/.exec(service.out()) ?? [];
  const post = (body: unknown): Promise<Response> =>
    fetch(`${url}/orders`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });

  expect((await post({ total: -1 })).status).toBe(400);
  const placed = await Promise.all([4200, 7, 1].map((total) => post({ total })));
  expect(placed.map(({ status }) => status)).toEqual([201, 201, 201]);
  const ids = await Promise.all(placed.map(async (response) => ((await response.json()) as { id: string }).id));
  await until(async () => (await Promise.all(ids.map((id) => fetch(`${url}/parcels/${id}`)))).every(({ status }) => status === 200));

  service.child.kill("SIGTERM");
  expect(await service.ended).toMatchObject({ code: 0, errors: "" });
  const path = join(service.folder, "shop.db");
  expect(await query(path, "SELECT total FROM orders ORDER BY total")).toEqual([[1], [7], [4200]]);
  expect(await query(path, "SELECT status, count(*) FROM outbox GROUP BY status")).toEqual([["PUBLISHED", 3]]);
  expect(await query(path, "SELECT count(*) FROM waybill_relays")).toEqual([[0]]);
});

test("chained-events: each order is paid and sent once, and each payment's event names its cause", async () => {
  const chain = run("chained-events/chain.ts");
  expect(await chain.ended).toEqual({
    code: 0,
    out: "o-1: placed, paid 100, sent\no-2: placed, paid 200, sent\no-3: placed, paid 300, sent\n",
    errors: "",
  });
  const path = join(chain.folder, "shop.db");
  expect(await query(path, "SELECT count(*) FROM payments")).toEqual([[3]]);
  const causes = `SELECT count(*) FROM outbox AS later JOIN outbox AS first ON later.headers ->> '$.caused-by' = first.id
    WHERE later.event_type = 'PaymentTaken' AND first.event_type = 'OrderPlaced' AND later.aggregate_id = first.aggregate_id`;
  expect(await query(path, causes)).toEqual([[3]]);
});

test("docs/nestjs.md shows the code of its example, word for word", () => {
  const source = ["outbox.ts", "orders.ts", "shipping.ts"].map((file) =>
    readFileSync(join(root, "examples/nestjs-typeorm-kafka/src", file), "utf8"),
  );
  const blocks = [...readFileSync(join(root, "docs/nestjs.md"), "utf8").matchAll(/^```ts\n([\s\S]*?)^```$/gm)].map(([, code]) => code!);
  expect(blocks.length).toBeGreaterThan(3);
  expect(blocks.filter((code) => !source.some((text) => text.includes(code)))).toEqual([]);
});
