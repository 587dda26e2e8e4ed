import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { defaultDriver } from "../../src/drivers/sqlite/driver.ts";
import { inProcess } from "./in-process.ts";

let folder = "";
const home = process.cwd();
const store = ["--store", "sqlite:app.db"];
const run = (...args: readonly string[]) => inProcess([...args, ...store], { cwd: folder });

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "waybill-check-"));
  process.chdir(folder);
  expect(await run("migrate")).toMatchObject({ code: 0 });
});
afterEach(() => {
  process.chdir(home);
  rmSync(folder, { recursive: true, force: true });
});

async function sql(text: string): Promise<void> {
  const db = (await defaultDriver())("app.db");
  db.exec(text);
  db.close();
}

const insert = (more: Readonly<Record<string, string>>): Promise<void> => {
  const row = { aggregate_type: "'Order'", aggregate_id: "'o-1'", event_type: "'OrderPlaced'", payload: "'{}'", ...more };
  return sql(`INSERT INTO outbox (${Object.keys(row).join(", ")}) VALUES (${Object.values(row).join(", ")})`);
};

describe("status --check", () => {
  test("prints nothing and exits with 0 when nothing waits for too long", async () => {
    expect(await run("status", "--check")).toMatchObject({ code: 0, stdout: "", stderr: "" });
    await insert({});
    expect(await run("status", "--check", "--max-age", "1h")).toMatchObject({ code: 0, stdout: "", stderr: "" });
    expect((await run("status")).stdout).toMatch(/^no relay is running and 1 event waits, the oldest for /);
  });

  test("exits with 1 and says that no relay takes an old event, in words and in JSON", async () => {
    await insert({ created_at: "'2020-01-01T00:00:00.000Z'" });
    const { code, stdout, stderr } = await run("status", "--check");
    expect([code, stdout]).toEqual([1, ""]);
    expect(stderr).toMatch(/no relay is running and 1 event waits, the oldest for \d+.* \[NEEDS_ATTENTION\]/s);
    const json = await run("status", "--check", "--json");
    expect(json.code).toBe(1);
    expect(JSON.parse(json.stdout)).toMatchObject({ verdicts: [{ about: "relays", failing: true }], states: { PENDING: 1 } });
  });

  test("exits with 1 while there is a dead event, however young", async () => {
    await insert({ status: "'DEAD'", last_error: "'TOO_LARGE'" });
    expect((await run("status", "--check")).stderr).toMatch(/1 event is dead, the oldest for .*: TOO_LARGE/);
    expect((await run("status")).code).toBe(0);
  });

  test("exits with 1 when a consumer that it names has no place on the topic", async () => {
    const broker = ["--broker", "embedded:broker.db"];
    expect(await inProcess(["migrate", ...broker, "--topics", "order.events"], { cwd: folder })).toMatchObject({ code: 0 });
    const { code, stderr } = await run("status", "--check", ...broker, "--consumer", "shipping", "--topic", "order.events");
    expect([code, stderr]).toEqual([1, expect.stringMatching(/shipping has no place in order.events yet.*\[NEEDS_ATTENTION\]/s)]);
  });

  test("is what --max-age is for", async () => {
    expect(await run("status", "--max-age", "1h")).toMatchObject({ code: 2 });
  });
});
