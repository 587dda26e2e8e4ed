import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { LogLook } from "../../src/contracts/log-tailer.ts";
import { reader } from "../../src/cli/commands/status.ts";
import { applyRules } from "../../src/core/finding.ts";
import { LogUnreadable } from "../../src/core/log-unreadable.ts";
import { standingInWords } from "../../src/stores/kit/log-words.ts";
import type { LogAnswers } from "../../src/stores/postgres/log/answers.ts";
import type { SlotRow } from "../../src/stores/postgres/log/facts.ts";
import { logRules } from "../../src/stores/postgres/log/rules.ts";
import { postgres } from "../../src/stores/postgres/index.ts";
import { inProcess } from "./in-process.ts";

let cwd = "";
beforeAll(async () => {
  cwd = mkdtempSync(join(tmpdir(), "waybill-tail-"));
  await run(["migrate", "--store", "sqlite:./s.db"]);
});
afterAll(() => rmSync(cwd, { recursive: true, force: true }));

const run = (args: readonly string[], env: Readonly<Record<string, string>> = {}) => inProcess(args, { cwd, env });
const sqlite = ["--store", "sqlite:./s.db"];
/** Nothing listens there. */
const away = ["--store", "postgres://user:s3cret@127.0.0.1:9/shop"];
const commands = ["setup", "status", "resync", "drop"];

describe("a store without a log that can be read", () => {
  test.each(commands)("is refused by tail %s with the store's reason", async (name) => {
    const { code, stdout, stderr } = await run(["tail", name, ...sqlite]);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).toMatch(/^waybill: waybill tail: SQLite has no log that other programs can follow.*\n.*\[UNSUPPORTED\]\n$/);
  });

  test.each([[["relay", ...sqlite, "--broker", "embedded:b.db", "--once"]], [["doctor", ...sqlite]], [["tail", "status", ...sqlite]]])(
    "takes no log url: %j",
    async (args) => {
      const why = /--log-url, WAYBILL_LOG_URL and the key logUrl are for postgres: and postgresql: alone: leave them out for sqlite:/;
      const url = "postgres://user:s3cret@db/shop";
      writeFileSync(join(cwd, "log.json"), JSON.stringify({ logUrl: url }));
      for (const { code, stderr } of [
        await run([...args, "--log-url", url]),
        await run(args, { WAYBILL_LOG_URL: url }),
        await run([...args, "--config", "log.json"]),
      ]) {
        expect(code).toBe(2);
        expect(stderr).toMatch(why);
        expect(stderr).not.toContain("s3cret");
      }
    },
  );

  test("does not concern commands that read no log", async () => {
    expect(await run(["status", ...sqlite], { WAYBILL_LOG_URL: "postgres://db/shop" })).toMatchObject({ code: 0, stderr: "" });
  });
});

describe("a log url", () => {
  test.each([
    ["mysql://u:s3cret@h/d", /--log-url "mysql:\/\/\*\*\*@h\/d" does not name the server of the store: write it as postgres:/],
    ["s3cret", /--log-url .* does not name the server of the store/],
    ["postgres://u:s3cret@h", /--log-url "postgres:\/\/\*\*\*@h" names no database/],
    ["postgres://u:s3cret@h/d?pool=5", /logUrl: the URL has a parameter "pool"; it may have sslmode/],
    ["postgres://u:s3cret@h/d?sslmode=perhaps", /logUrl: sslmode is disable/],
    ["postgres://u:p@s3cret@h/d@x", /logUrl: the url has an @ after its host/],
  ])("%s is refused before anything is connected", async (url, why) => {
    const { code, stderr } = await run(["tail", "status", ...away, "--log-url", url]);
    expect(code).toBe(2);
    expect(stderr).toMatch(why);
    if (url !== "s3cret") expect(stderr).not.toContain("s3cret");
  });

  test("is given once, by flag or by file", async () => {
    writeFileSync(join(cwd, "log-url"), "postgres://u:s3cret@h/d");
    const { code, stderr } = await run(["tail", "status", ...away, "--log-url", "postgres://h/d", "--log-url-file", join(cwd, "log-url")]);
    expect({ code, stderr }).toMatchObject({
      code: 2,
      stderr: expect.stringContaining("--log-url and --log-url-file name the same thing") as string,
    });
  });

  test("is checked by the store itself too", () => {
    expect(() => postgres({ url: "postgres://h/d", logUrl: "nonsense" })).toThrow("postgres: logUrl is not a URL");
    expect(() => postgres({ url: "postgres://h/d", logUrl: "http://h/d" })).toThrow("postgres: logUrl: a URL is written as");
  });
});

test.each(commands)("tail %s says in one error that the server does not answer", async (name) => {
  const { code, stdout, stderr } = await run(["tail", name, ...away]);
  expect({ code, stdout, lines: stderr.trim().split("\n").length }).toEqual({ code: 1, stdout: "", lines: 2 });
  expect(stderr).toContain("[STORE_UNAVAILABLE]");
  expect(stderr).not.toContain("s3cret");
});

test("what makes no sense is wrong use", async () => {
  expect(await run(["tail", ...away])).toMatchObject({ code: 2, stderr: expect.stringContaining("setup, status, resync, drop") as string });
  expect(await run(["tail", "reset", ...away])).toMatchObject({ code: 2, stderr: expect.stringContaining("resync") as string });
  expect(await run(["tail", "drop", ...away, "--yes", "--dry-run"])).toMatchObject({ code: 2 });
  expect(await run(["tail", "status"])).toMatchObject({ code: 2, stderr: expect.stringContaining("the store is missing") as string });
});

test("status says who finds events how", () => {
  expect(reader({ relay: null, floor: 0n, position: null })).toBe("no relay reads it: relays poll");
  expect(reader({ relay: "r:1", floor: 12n, position: null })).toBe("r:1 reads it; events of the log up to 12 are published");
});

describe("the doctor's rules for the log", () => {
  const slot: SlotRow = {
    ...{
      plugin: "pgoutput",
      database: "shop",
      temporary: false,
      active: true,
      active_pid: 7,
      restart_lsn: "0/1",
      confirmed_flush_lsn: "0/2",
    },
    ...{ wal_status: "reserved", safe_wal_size: null, ours: true, retained: 2_048, behind: 1_024, younger: true },
  };
  const look: LogLook = { state: "streaming", confirmed: "0/2", behindBytes: 1_024, behindMs: 400, retainedBytes: 2_048, safeBytes: null };
  const publication = { inserts: true, through_root: true, covers: true };
  const healthy: LogAnswers = {
    names: { name: "waybill_1", outbox: '"public"."outbox"', schema: "public", table: "outbox" },
    facts: { walLevel: "logical", slot, publication },
    look,
    settings: { max_replication_slots: "10", max_wal_senders: "10", max_slot_wal_keep_size: "1024", synchronous_standby_names: "" },
    ...{ slots: 1, senders: 1, mayPublish: true, refusal: null },
  };
  const found = (change: Partial<LogAnswers>): readonly string[] =>
    applyRules(logRules, { ...healthy, ...change })
      .filter(({ verdict }) => verdict !== "good")
      .map(({ setting, verdict, breaks, why }) => `${setting} ${verdict}${breaks}: ${why}`);
  const settings = (change: Partial<LogAnswers["settings"]>): Partial<LogAnswers> => ({ settings: { ...healthy.settings, ...change } });

  test("find nothing where all is well, also before the first reading", () => {
    expect(found({})).toEqual([]);
    expect(found({ facts: { ...healthy.facts, slot: null, publication: null }, look: { ...look, state: "missing" } })).toEqual([]);
  });

  test.each<[what: string, change: Partial<LogAnswers>, told: RegExp]>([
    ["no logical log", { facts: { ...healthy.facts, walLevel: "replica" } }, /^wal_level unknown: Only logical .* restart the server\.$/],
    ["a slot without a limit", settings({ max_slot_wal_keep_size: "-1" }), /^max_slot_wal_keep_size unknown: .* until the disk is full/],
    [
      "every process as a standby",
      settings({ synchronous_standby_names: "ANY 1 (*)" }),
      /^synchronous_standby_names .* badL: .* counts as a standby/,
    ],
    [
      "a role without the right",
      { refusal: new LogUnreadable("rights", "this role may not") },
      /^connection to the log unknown: .*tail setup --print/,
    ],
    ["a pooler", { refusal: new LogUnreadable("link", "unsupported startup parameter") }, /^connection to the log unknown: .*--log-url/],
    ["a lost slot", { look: { ...look, state: "lost", why: "wal_removed" } }, /^replication slot unknown: .*tail resync/],
    ["a slot that no process reads", { look: { ...look, state: "unread" } }, /^replication slot unknown: .*tail drop/],
    [
      "a reader that lags",
      { look: { ...look, state: "lagging" } },
      /^replication slot unknown: .*does not keep up \(1 KiB, 400ms behind, 2 KiB kept\)/,
    ],
    [
      "no place for a slot",
      { slots: 10, facts: { ...healthy.facts, slot: null }, look: { ...look, state: "missing" } },
      /^replication slot unknown: All 10 slots/,
    ],
    ["no free sender", { senders: 10, facts: { ...healthy.facts, slot: { ...slot, active: false } } }, /^max_wal_senders unknown/],
    [
      "a publication of another table",
      { facts: { ...healthy.facts, publication: { ...publication, covers: false } } },
      /^publication unknown: .*does not have the outbox/,
    ],
    [
      "no publication, and no right to make it",
      { mayPublish: false, facts: { ...healthy.facts, publication: null } },
      /^publication unknown: .*--print/,
    ],
  ])("%s", (_, change, told) => {
    expect(found(change)).toEqual([expect.stringMatching(told)]);
  });

  test("a standby by name is no reader", () => {
    expect(found(settings({ synchronous_standby_names: 'FIRST 1 (s1, "s*2")' }))).toEqual([]);
  });
});

test("every state of a slot has its words", () => {
  const states = [
    { state: "missing" },
    { state: "preparing", waitsFor: null },
    { state: "preparing", waitsFor: "a prepared transaction" },
    { state: "lost", why: "it was removed" },
    { state: "unread" },
    { state: "waits for standby", standby: "s1" },
    { state: "lagging" },
    { state: "streaming" },
  ] as const;
  const words = states.map(standingInWords);
  expect(new Set(words).size).toBe(states.length);
  expect(words.join("\n")).toMatchInlineSnapshot(`
    "there is none
    the server is making it
    the server is making it, and waits for a prepared transaction
    lost: it was removed
    no process reads it
    the server holds the log back until the standby s1 has it
    read, and far behind
    read"
  `);
});
