import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { defaultDriver } from "../../src/drivers/sqlite/driver.ts";
import { sqlite } from "../../src/stores/sqlite/index.ts";
import { cli } from "../cli/build.ts";

const mebibyte = 1_048_576;
/** Of its own memory, not of the process that started it. */
const told = `data:text/javascript,${encodeURIComponent(`
  import { readFileSync } from "node:fs";
  process.on("exit", () => console.error(readFileSync("/proc/self/status", "utf8").match(/VmHWM.*/)[0]));
`)}`;

test.skipIf(process.platform !== "linux")(
  "a relay publishes 500 events of 256 KiB, and parks one of 64 MiB by plain SQL, in the memory that docs/deploying.md states",
  async () => {
    const folder = mkdtempSync(join(existsSync("/dev/shm") ? "/dev/shm" : tmpdir(), "waybill-"));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    const path = join(folder, "app.db");
    const store = sqlite({ path });
    await store.schema.migrate();
    await store[Symbol.asyncDispose]();
    const db = (await defaultDriver())(path);
    const add = (...rows: readonly (readonly [string, number])[]): void => {
      db.exec("BEGIN");
      const insert = db.prepare("INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', ?, 'Placed', ?)");
      for (const [aggregate, bytes] of rows) insert.run(aggregate, "x".repeat(bytes));
      db.exec("COMMIT");
    };
    /** How many MiB one run took at most, with a heap that cannot grow. */
    const relay = async (): Promise<number> => {
      const run = await cli(["relay", "--store", `sqlite:${path}`, "--broker", `embedded:${join(folder, "broker.db")}`, "--once"], {
        cwd: folder,
        env: { NODE_OPTIONS: `--max-old-space-size=64 --import=${told}` },
      });
      expect(run, run.stderr).toMatchObject({ code: 0 });
      return Number(/VmHWM:\s+(\d+) kB/.exec(run.stderr)![1]) / 1024;
    };
    const idle = await relay();
    add(...Array.from({ length: 500 }, (_, n) => [`order-${n}`, 256 * 1024] as const));
    const many = await relay();
    add(["huge", 64 * mebibyte], ["huge", 100], ...Array.from({ length: 50 }, (_, n) => [`later-${n}`, 100] as const));
    const huge = await relay();
    const found = db
      .prepare("SELECT status, count(*) AS n, max(error_code) AS error FROM outbox GROUP BY status ORDER BY status")
      .all() as { status: string; n: number; error: string }[];
    db.close();
    expect(found.map(({ status, n }) => [status, Number(n)])).toEqual([
      ["BLOCKED", 1],
      ["DEAD", 1],
      ["PUBLISHED", 550],
    ]);
    expect(found[1]!.error).toBe("MESSAGE_TOO_LARGE");
    const measured = `idle ${idle}, 500 of 256 KiB ${many}, one of 64 MiB ${huge}`;
    // Three windows of 8 MiB, and as much again and again for what the clients make of them.
    expect(many - idle, measured).toBeLessThan(4 * 24);
    expect(huge - idle, measured).toBeLessThan(4 * 64);
  },
);
