import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Status } from "../../src/contracts/operator.ts";
import { readConfig } from "../../src/cli/config.ts";
import { logText, lineOf } from "../../src/core/log.ts";
import { createMetrics } from "../../src/observe/metrics.ts";
import type { PathEvent } from "../../src/core/path-events.ts";
import { memory } from "../../src/stores/memory/index.ts";
import { inProcess } from "../cli/in-process.ts";

const home = process.cwd();
let folder = "";
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "waybill-keep-"));
  process.chdir(folder);
  expect(await waybill("migrate", ...store)).toMatchObject({ code: 0 });
});
afterEach(() => {
  process.chdir(home);
  rmSync(folder, { recursive: true, force: true });
});

const store = ["--store", "sqlite:app.db"];
const broker = ["--broker", "embedded:broker.db"];
const waybill = (...args: string[]) => inProcess(args, { cwd: folder });
const add = (id: string) =>
  waybill("events", "add", ...store, "--aggregate-type", "Order", "--aggregate-id", id, "--type", "Placed", "--payload", "{}");

describe("waybill relay", () => {
  test.each([
    [["--once", "--retention", "7d"], /--retention is for a relay that goes on.*waybill purge/],
    [["--once", "--no-housekeeping"], /--no-housekeeping is for a relay that goes on/],
    [["--retention", "7d", "--no-housekeeping"], /do not go together/],
    [["--retention", "7"], /--retention must be a time such as/],
    [["--retention", "0s"], /--retention must be from 1s/],
  ])("refuses %j", async (flags, told) => {
    expect(await waybill("relay", ...store, ...broker, ...flags)).toMatchObject({ code: 2, stderr: expect.stringMatching(told) as string });
  });
});

describe("the configuration file", () => {
  test("has what housekeeping needs", () => {
    const archive = async (): Promise<void> => undefined;
    const content = { retention: "30d", keyRetention: "2w", housekeeping: false, archive, partitions: "week", onPublish: "delete" };
    expect(readConfig(content, "waybill.config.mjs")).toEqual({ ...content, retention: 30 * 86_400_000, keyRetention: 14 * 86_400_000 });
  });

  test.each([
    [{ housekeeping: "no" }, /housekeeping must be /],
    [{ archive: "s3://bucket" }, /archive must be a function/],
    [{ partitions: "hour" }, /partitions must be one of day, week, month/],
    [{ onPublish: "drop" }, /onPublish must be one of keep, delete/],
    [{ retention: 7 }, /retention must be text/],
  ])("refuses %j", (content, told) => {
    expect(() => readConfig(content, "waybill.config.json")).toThrow(told);
  });

  test("cannot ask a file for partitions", async () => {
    writeFileSync(join(folder, "waybill.config.json"), '{"partitions":"day"}');
    expect(await waybill("status", ...store)).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/partitions.*leave it out/) as string,
    });
  });
});

describe("waybill purge", () => {
  test("gives events to the archive of the configuration file first", async () => {
    for (const id of ["1", "2", "3"]) await add(id);
    expect(await waybill("relay", ...store, ...broker, "--once")).toMatchObject({ code: 0 });
    writeFileSync(
      join(folder, "waybill.config.mjs"),
      `import { appendFileSync } from "node:fs";
       export default { archive: async (events) => {
         if (process.env.WAYBILL_TEST_FULL === "1") throw new Error("disk full");
         for (const { id } of events) appendFileSync(${JSON.stringify(join(folder, "archive"))}, id + "\\n");
       } };`,
    );
    const dry = await waybill("purge", ...store, "--older-than", "0s", "--dry-run", "--json");
    expect(JSON.parse(dry.stdout)).toMatchObject({ events: 3, dropped: [], moved: 0, undone: [], dryRun: true });
    process.env["WAYBILL_TEST_FULL"] = "1";
    try {
      expect(await waybill("purge", ...store, "--older-than", "0s")).toMatchObject({
        code: 1,
        stderr: expect.stringMatching(/disk full/) as string,
      });
    } finally {
      delete process.env["WAYBILL_TEST_FULL"];
    }
    const done = await waybill("purge", ...store, "--older-than", "0s");
    expect(done.stdout).toMatch(/^Deleted 3 events from before \S+\.\n$/);
    expect(readFileSync(join(folder, "archive"), "utf8").trim().split("\n")).toHaveLength(3);
    expect(JSON.parse((await waybill("events", "list", ...store, "--json")).stdout)).toEqual({ events: [] });
  });
});

describe("waybill status", () => {
  test("tells the size, and says of what it cannot see that it is unknown", async () => {
    const { stdout } = await waybill("status", ...store);
    expect(stdout).toMatch(/^size +\d+(\.\d)? KiB$/m);
    expect(stdout).toMatch(/^oldest writer +unknown$/m);
    const { watch } = JSON.parse((await waybill("status", ...store, "--json")).stdout) as { watch: Record<string, unknown> };
    expect(watch).toEqual({
      bytes: expect.any(Number) as number,
      deadRows: "unknown",
      horizon: "unknown",
      writer: "unknown",
      unseen: null,
      warnings: [],
    });
  });
});

describe("logs and metrics", () => {
  const done: PathEvent = {
    ...{ type: "housekeeping.done", relay: "r", purged: 5, created: ["outbox_20300101"], dropped: ["outbox_20291201"], moved: 2 },
    ...{ complete: true, ms: 12 },
  };
  const warning: PathEvent = { type: "watch.warning", relay: "r", what: "writer", holder: "session 1", text: "session 1 is old" };

  test("tell what was done, and of every warning", () => {
    expect(logText(new Date(0), lineOf(done)!)).toMatch(
      /info +purged 5 events; made outbox_20300101; dropped outbox_20291201, out of which 2 events moved$/,
    );
    expect(lineOf({ ...done, purged: 0, created: [], dropped: [], moved: 0 })).toBe(null);
    expect(lineOf(warning)).toEqual({ level: "warn", text: "session 1 is old" });
    const metrics = createMetrics();
    metrics.observe(done);
    metrics.observe(warning);
    expect(metrics.text(null)).toMatch(/^waybill_purged_total 5$/m);
    expect(metrics.text(null)).toMatch(/^waybill_warnings_total\{what="writer"\} 1$/m);
  });

  test("show what is watched, and leave out what nobody knows", async () => {
    const status: Status = await memory().operator.status();
    const metrics = createMetrics();
    expect(metrics.text(status)).not.toContain("waybill_outbox_bytes");
    const writer = { kind: "session", name: "1", user: "u", application: "a", state: "active", ageMs: 1_500, transactions: 3 } as const;
    const watch = { bytes: 4_096, deadRows: "unknown", horizon: { ...writer, ageMs: "unknown" }, writer, unseen: null } as const;
    const text = metrics.text({ ...status, watch });
    expect(text).toMatch(/^waybill_outbox_bytes 4096$/m);
    expect(text).toMatch(/^waybill_oldest_writer_seconds 1.5$/m);
    expect(text).not.toMatch(/waybill_dead_rows|waybill_horizon_seconds/);
    expect(metrics.text({ ...status, watch: { ...watch, horizon: null, deadRows: 7 } })).toMatch(/^waybill_horizon_seconds 0$/m);
  });
});
