import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { defaultDriver } from "../../src/drivers/sqlite/driver.ts";
import { inProcess } from "./in-process.ts";

const said = "cannot reach postgres://svc:hunter2@registry/db";
let cwd = "";
const run = (...args: readonly string[]) => inProcess([...args, "--store", `sqlite:${join(cwd, "app.db")}`], { cwd });

beforeEach(async () => {
  cwd = mkdtempSync(join(tmpdir(), "waybill-secrets-"));
  expect((await run("migrate")).code).toBe(0);
  const db = (await defaultDriver())(join(cwd, "app.db"));
  try {
    const insert = db.prepare(
      "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload, status, last_error, retry_count) VALUES (?, 'Order', ?, 'OrderPlaced', '{}', ?, ?, 5)",
    );
    insert.run("dead-1", "o-1", "DEAD", said);
    insert.run("blocked-1", "o-2", "BLOCKED", null);
    const hold = db.prepare(
      "INSERT INTO waybill_holds (aggregate_type, aggregate_id, lane, cause_seq, why, destination, since) VALUES ('Order', ?, 0, ?, ?, ?, '2030-01-01T00:00:00.000Z')",
    );
    hold.run("o-1", 1, said, null);
    hold.run("o-2", 2, said, "order.events");
  } finally {
    db.close();
  }
});
afterEach(() => rmSync(cwd, { recursive: true, force: true }));

const commands = [
  ["status"],
  ["events", "list"],
  ["events", "show", "dead-1"],
  ["events", "show", "blocked-1"],
  ["dead", "list"],
  ["dead", "show", "dead-1"],
] as const;

test.each(commands.flatMap((words) => [[...words], [...words, "--json"]]).map((words) => [words.join(" "), words] as const))(
  "waybill %s shows no password of a URL in an error that was stored",
  async (_, words) => {
    const { code, stdout, stderr } = await run(...words);
    expect(code, stderr).toBe(0);
    expect(stdout).not.toBe("");
    expect(stdout + stderr).not.toContain("hunter2");
  },
);

test("a password in a payload is the service's own data, and is shown as it is", async () => {
  const db = (await defaultDriver())(join(cwd, "app.db"));
  db.exec(
    `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES ('own', 'Order', 'o-3', 'OrderPlaced', '{"url":"https://svc:hunter2@host"}')`,
  );
  db.close();
  expect((await run("events", "show", "own", "--json")).stdout).toContain("svc:hunter2@host");
});
