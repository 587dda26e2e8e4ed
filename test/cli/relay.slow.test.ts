import { spawnSync } from "node:child_process";
import { closeSync, existsSync, mkdtempSync, openSync, rmSync, writeFileSync } from "node:fs";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { defaultDriver } from "../../src/drivers/sqlite/driver.ts";
import { built, cli, start, until } from "./build.ts";
import { inProcess } from "./in-process.ts";

type Started = Awaited<ReturnType<typeof start>>;

const home = process.cwd();
let folder = "";
let running: Started[] = [];
beforeAll(() => built());
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "waybill-relay-"));
  process.chdir(folder);
  expect(await inProcess(["migrate", ...store], { cwd: folder })).toMatchObject({ code: 0 });
});
afterEach(async () => {
  for (const { child, result } of running) {
    child.kill("SIGKILL");
    await result;
  }
  running = [];
  process.chdir(home);
  rmSync(folder, { recursive: true, force: true });
});

const store = ["--store", "sqlite:app.db"];
const args = ["relay", ...store, "--broker", "embedded:broker.db", "--poll-interval", "20ms"];

async function relay(more: readonly string[], env: Record<string, string> = {}): Promise<Started> {
  const started = await start([...args, ...more], { cwd: folder, env });
  running.push(started);
  return started;
}

async function add(aggregateId: string, payload = "{}"): Promise<string> {
  const event = ["--aggregate-type", "Order", "--aggregate-id", aggregateId, "--type", "OrderPlaced", "--payload", payload];
  const { stdout } = await inProcess(["events", "add", ...store, ...event], { cwd: folder });
  return stdout.trim();
}

async function states(): Promise<Record<string, number>> {
  const { stdout } = await inProcess(["status", ...store, "--json"], { cwd: folder });
  return (JSON.parse(stdout) as { states: Record<string, number> }).states;
}

const lines = ({ stdout }: Started): Record<string, unknown>[] =>
  stdout()
    .split("\n")
    .slice(0, -1)
    .map((line) => JSON.parse(line) as Record<string, unknown>);
const said = (started: Started, type: string): Record<string, unknown> | undefined => lines(started).find((line) => line["type"] === type);

test.each(["SIGTERM", "SIGINT"] as const)("publishes until %s, then finishes, gives its lanes back and exits 0", async (signal) => {
  const started = await relay(["--json"]);
  await until(() => said(started, "relay.started") !== undefined);
  // Whoever wants to end this process by its number, and not the npx around it, reads it here.
  expect(lines(started)[0]).toMatchObject({ type: "relay.starting", process: started.child.pid, host: hostname() });
  await add("1");
  await until(async () => (await states())["PUBLISHED"] === 1);
  started.child.kill(signal);
  expect(await started.result).toMatchObject({ code: 0, signal: null, stderr: "" });
  expect(lines(started).at(-1)).toMatchObject({ type: "relay.drained", level: "info" });
  const { stdout } = await inProcess(["status", ...store, "--json"], { cwd: folder });
  expect(JSON.parse(stdout)).toMatchObject({ lanes: { owned: 0, free: 64 }, relays: [] });
});

test("tells of every death, in JSON and in words", async () => {
  const asJson = await relay(["--json", "--route", "{header:tenant}.events"]);
  const id = await add("1");
  await until(() => said(asJson, "relay.died") !== undefined);
  expect(said(asJson, "relay.died")).toMatchObject({ level: "error", id, aggregateType: "Order", aggregateId: "1", followers: "blocked" });
  asJson.child.kill("SIGTERM");
  await asJson.result;

  const inWords = await relay(["--route", "{header:tenant}.events"]);
  const second = await add("2\u001b[2J");
  await until(() => inWords.stdout().includes("is DEAD"));
  expect(inWords.stdout()).toMatch(
    new RegExp(`^\\S+Z error event ${second} \\(OrderPlaced of Order 2\\\\u001b\\[2J\\) is DEAD, its followers are blocked: `, "m"),
  );
});

test("serves health, readiness and metrics", async () => {
  const started = await relay(["--json", "--http", "127.0.0.1:0"]);
  await until(() => said(started, "relay.started") !== undefined);
  const url = said(started, "relay.started")?.["http"] as string;
  const ask = async (page: string): Promise<[number, string]> => {
    const response = await fetch(url + page);
    return [response.status, await response.text()];
  };
  await add("1");
  await until(async () => (await states())["PUBLISHED"] === 1);
  expect(await ask("/healthz")).toEqual([200, "ok\n"]);
  expect(await ask("/readyz")).toEqual([200, "ready\n"]);
  const [, metrics] = await ask("/metrics");
  expect(metrics).toContain('waybill_events{state="PUBLISHED"} 1\n');
  expect(metrics).toContain("waybill_published_total 1\n");
  expect(metrics).toContain('waybill_lanes{held="owned"} 64\n');
  started.child.kill("SIGTERM");
  expect(await started.result).toMatchObject({ code: 0 });
});

test("takes the token for metrics from a file or the environment, and never shows it", async () => {
  const token = "s3cret-token-of-the-relay";
  writeFileSync(join(folder, "token"), `${token}\n`);
  const ways: [string[], Record<string, string>][] = [
    [["--http-token-file", "token"], {}],
    [[], { WAYBILL_HTTP_TOKEN: token }],
  ];
  for (const [more, env] of ways) {
    const started = await relay(["--json", "--http", "0.0.0.0:0", ...more], env);
    await until(() => said(started, "relay.started") !== undefined);
    const url = (said(started, "relay.started")?.["http"] as string).replace("0.0.0.0", "127.0.0.1");
    expect((await fetch(`${url}/metrics`)).status).toBe(401);
    expect((await fetch(`${url}/metrics`, { headers: { authorization: `Bearer ${token}` } })).status).toBe(200);
    expect((await fetch(`${url}/healthz`)).status).toBe(200);
    started.child.kill("SIGTERM");
    const { code, stdout, stderr } = await started.result;
    expect(code).toBe(0);
    expect(stdout + stderr).not.toContain("s3cret");
  }
});

test("a second signal stops it at once, and says that it was not drained", async () => {
  const started = await relay(["--json"]);
  await until(() => said(started, "relay.started") !== undefined);
  // Nothing can be stored on the broker while this lock is held.
  const db = (await defaultDriver())(join(folder, "broker.db"));
  db.exec("BEGIN IMMEDIATE");
  try {
    await add("1");
    await until(async () => (await states())["PUBLISHING"] === 1);
    started.child.kill("SIGTERM");
    await until(() => said(started, "relay.draining") !== undefined);
    const insisted = performance.now();
    started.child.kill("SIGTERM");
    const { code, stderr } = await started.result;
    expect(performance.now() - insisted).toBeLessThan(4_500);
    expect(code).toBe(1);
    expect(JSON.parse(stderr)).toMatchObject({ error: { code: "STOPPED" } });
  } finally {
    db.exec("ROLLBACK");
    db.close();
  }
  expect((await states())["PUBLISHED"]).toBe(0);
});

test("goes on when nobody reads its log any more", async () => {
  const started = await relay(["--json", "--route", "{header:tenant}.events"]);
  await until(() => said(started, "relay.started") !== undefined);
  started.child.stdout!.destroy();
  for (const aggregate of ["1", "2", "3"]) await add(aggregate);
  await until(async () => (await states())["DEAD"] === 3);
  started.child.kill("SIGTERM");
  expect(await started.result).toMatchObject({ code: 0, stderr: "" });
});

test("a pipe that is closed early is not a crash", async () => {
  for (let i = 0; i < 5; i++) await add(String(i), JSON.stringify("x".repeat(100_000)));
  const started = await start(["events", "list", ...store, "--json"], { cwd: folder });
  started.child.stdout!.destroy();
  expect(await started.result).toMatchObject({ code: 0, signal: null, stderr: "" });
});

test.skipIf(!existsSync("/dev/full"))("output that cannot be written is a failure", async () => {
  await add("1");
  const full = openSync("/dev/full", "w");
  try {
    const { status, stderr } = spawnSync(process.execPath, [await built(), "events", "list", ...store], {
      cwd: folder,
      stdio: ["ignore", full, "pipe"],
      encoding: "utf8",
    });
    expect(stderr).toMatch(/^waybill: the output could not be written: ENOSPC/);
    expect(status).toBe(1);
  } finally {
    closeSync(full);
  }
});

test("several with --once share the work without a word of trouble", async () => {
  for (let i = 0; i < 20; i++) await add(String(i));
  const results = await Promise.all([1, 2, 3].map(() => cli([...args, "--once", "--json"], { cwd: folder })));
  expect(results.map(({ code, stderr }) => ({ code, stderr }))).toEqual([1, 2, 3].map(() => ({ code: 0, stderr: "" })));
  const published = results.map(({ stdout }) => (JSON.parse(stdout) as { published: number }).published);
  expect(published.reduce((a, b) => a + b)).toBe(20);
  expect((await states())["PUBLISHED"]).toBe(20);
});
