import { execFileSync, type ChildProcess } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { cli, start, until, type Result } from "../cli/build.ts";

/** Every process of a shop has its folder in its arguments, and this one is in the path of each. */
let folder: string;
let parents: ChildProcess[] = [];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "waybill-test-dev-"));
});

afterEach(async () => {
  for (const parent of parents) parent.kill("SIGKILL");
  parents = [];
  await until(() => children().length === 0);
  rmSync(folder, { recursive: true, force: true });
});

function children(): string[] {
  const all = execFileSync("ps", ["-eo", "pid=,args="], { encoding: "utf8" }).split("\n");
  return all.filter((line) => line.includes("child.js") && line.includes(folder));
}

const options = (): { cwd: string; env: Record<string, string> } => ({ cwd: folder, env: { TMPDIR: folder } });

async function shop(...args: string[]) {
  const started = await start(["dev", ...args], options());
  parents.push(started.child);
  return started;
}

interface Json {
  readonly [name: string]: unknown;
  readonly effects: Readonly<Record<string, number>>;
  readonly faults: Readonly<Record<string, number>>;
}

function summaryOf({ stdout }: Result): Json {
  return JSON.parse(stdout.trimEnd().split("\n").at(-1)!) as Json;
}

const kept = { lost: 0, undelivered: 0, invented: 0, outOfOrder: 0, doubled: 0, held: true };

test("with faults, every promise holds: exit 0, and the summary is the last line", async () => {
  const result = await cli(["dev", "--exit-after", "12s", "--faults"], options());
  expect(result).toMatchObject({ code: 0, stderr: "" });
  const summary = summaryOf(result);
  expect(summary).toMatchObject({ mode: "outbox", ...kept, dead: 1, blocked: 2 });
  expect(summary["ordersCommitted"]).toBeGreaterThan(20);
  expect(summary["rolledBack"]).toBeGreaterThan(0);
  expect(summary["events"]).toBe((summary["published"] as number) + 3);
  for (const name of ["inventory", "payment", "notification"]) expect(summary.effects[name]).toBe(summary["published"]);
  expect(summary.faults).toMatchObject({ "broker stopped": 1, "poison planted": 1 });
  for (const kind of ["relay killed", "subscriber killed"]) expect(summary.faults[kind]).toBeGreaterThan(0);
  for (const said of [
    "the broker takes and gives nothing for a while",
    "the broker runs again",
    "relay-1 is killed with SIGKILL",
    "inventory is killed with SIGKILL",
    "is DEAD, its followers are blocked",
    "does not take events",
    "Every promise held.",
  ]) {
    expect(result.stdout).toContain(said);
  }
  expect(children()).toEqual([]);
  expect(readdirSync(folder)).toEqual([]); // the data went with the run
});

test("the naive shop loses events, says so, and exits with 1", async () => {
  const result = await cli(["dev", "--exit-after", "12s", "--naive", "--faults"], options());
  const summary = summaryOf(result);
  expect(summary).toMatchObject({ mode: "naive", held: false });
  expect(summary["lost"]).toBeGreaterThan(0);
  expect(summary["invented"]).toBeGreaterThan(0);
  expect(result.code).toBe(1);
  expect(result.stdout).toMatch(/Dual writes: \d+ events were lost; .*invented/);
  expect(result.stderr).toMatch(/the naive shop: \d+ events were lost.*PROMISE_BROKEN/s);
  expect(children()).toEqual([]);
});

test.each(["SIGINT", "SIGTERM"] as const)("%s drains: what was begun is delivered, exit 0", async (signal) => {
  const { child, result, stdout } = await shop("--port", "0", "--relays", "1", "--json");
  await until(() => stdout().includes("takes orders"), 30_000);
  const [, url] = /POST (\S+)/.exec(stdout())!;
  const headers = { "content-type": "application/json" };
  const order = { order_id: "mine", customer_id: "me", items: [{ sku: "tea", quantity: 1, price: 5 }] };
  expect((await fetch(url!, { method: "POST", headers, body: JSON.stringify(order) })).status).toBe(201);
  await until(() => /"events":(?!0)/.test(stdout()), 30_000);
  child.kill(signal);
  const ended = await result;
  expect(ended).toMatchObject({ code: 0, stderr: "" });
  const summary = summaryOf(ended);
  expect(summary).toMatchObject({ ...kept, faults: {}, duplicatesInLog: 0 });
  expect(summary["events"]).toBeGreaterThan(0);
  expect(summary["published"]).toBe(summary["events"]);
  for (const line of ended.stdout.trimEnd().split("\n")) expect(() => JSON.parse(line) as unknown).not.toThrow();
  expect(children()).toEqual([]);
});

test("a second signal ends everything at once, with 1", async () => {
  const data = join(folder, "data");
  const { child, result, stdout } = await shop("--data", data);
  await until(() => stdout().includes("takes orders"), 30_000);
  writeFileSync(join(data, "broker-stopped"), ""); // there will be something left to deliver
  await until(() => stdout().includes("does not take events"), 30_000);
  child.kill("SIGINT");
  await until(() => stdout().includes("no more orders"));
  child.kill("SIGINT");
  expect(await result).toMatchObject({ code: 1, stderr: expect.stringContaining("STOPPED") as string });
  await until(() => children().length === 0);
  expect(existsSync(join(data, "orders.db"))).toBe(true); // what was named is kept
});

test("when the parent is killed its children end, and the next run on the same data delivers everything", async () => {
  const data = join(folder, "data");
  const { child, result, stdout } = await shop("--data", data, "--orders-per-second", "30");
  await until(() => /events=[1-9]\d/.test(stdout()), 30_000);
  expect(children()).toHaveLength(6);
  child.kill("SIGKILL");
  expect(await result).toMatchObject({ signal: "SIGKILL" });
  await until(() => children().length === 0);
  const next = await cli(["dev", "--data", data, "--exit-after", "2s"], options());
  expect(next.code).toBe(0);
  expect(summaryOf(next)).toMatchObject({ ...kept, faults: { "run interrupted": 2 } });
  expect(children()).toEqual([]);
});
