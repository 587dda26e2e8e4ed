import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { defaultDriver } from "../../src/drivers/sqlite/driver.ts";
import { built, cli, type Result } from "./build.ts";
import { inProcess, type InProcessOptions } from "./in-process.ts";

const home = process.cwd();
const store = ["--store", "sqlite:app.db"];
let folder = "";
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "waybill-bad-"));
  process.chdir(folder);
  expect(await run("migrate", ...store)).toMatchObject({ code: 0 });
});
afterEach(() => {
  process.chdir(home);
  rmSync(folder, { recursive: true, force: true });
});

const run = (...args: string[]): Promise<Result> => inProcess(args, { cwd: folder });
const runWith = (options: Omit<InProcessOptions, "cwd">, ...args: string[]): Promise<Result> =>
  inProcess(args, { cwd: folder, ...options });

function expectRefused({ code, stdout, stderr }: Result, exitCode: 1 | 2, errorCode: string, words: RegExp): void {
  expect(stderr).toMatch(words);
  expect(stderr).toContain(`[${errorCode}]`);
  expect(stderr).toMatch(/^waybill: /);
  expect(stderr).not.toMatch(/^\s+at /m);
  expect(stderr.trimEnd().split("\n")).toHaveLength(2);
  expect(stdout).toBe("");
  expect(code).toBe(exitCode);
}

async function eventsStored(): Promise<number> {
  const db = (await defaultDriver())(join(folder, "app.db"));
  try {
    const [row] = db.prepare("SELECT count(*) AS n FROM outbox").all() as { n: number | bigint }[];
    return Number(row!.n);
  } finally {
    db.close();
  }
}

const event = { "aggregate-type": "Order", "aggregate-id": "1", type: "OrderPlaced", payload: "{}" };
const adding = (changes: Partial<Record<keyof typeof event, string>>, ...more: string[]): string[] => [
  "events",
  "add",
  ...store,
  ...fields(changes),
  ...more,
];
const fields = (changes: Partial<Record<keyof typeof event, string>>): string[] =>
  Object.entries({ ...event, ...changes }).map(([name, value]) => `--${name}=${value}`);

describe("the command line", () => {
  test.each([
    [[], /needs a command: init, dev, migrate, relay, status, tail, events, dead, purge/],
    [["stauts"], /no command "stauts": did you mean status\?/],
    [["postgres://ann:s3cret@db"], /no command "postgres:\/\/\*\*\*@db"/],
    [["--store", "sqlite:app.db"], /the command comes before its flags/],
    [["events"], /waybill events needs one of list, show, add/],
    [["events", "lsit", ...store], /no action "lsit": did you mean list\?/],
    [["dead", "edit", ...store], /no action "edit"/],
    [["status", "--sotre", "sqlite:app.db"], /has no flag --sotre: did you mean --store\?/],
    [["status", "--sotre=postgres://ann:s3cret@db"], /has no flag --sotre/],
    [["status", "--store"], /--store needs a value/],
    [["status"], /the store is missing: give --store URL/],
    [["status", ...store, "extra"], /does not know what to do with "extra"/],
    [["relay", ...store], /the broker is missing/],
    [["relay", ...store, "--broker", "embedded:b.db", "--batch", "0"], /--batch must be a whole number/],
    [["relay", ...store, "--broker", "embedded:b.db", "--poll-interval", "100"], /--poll-interval must be a time such as 100ms/],
    [["relay", ...store, "--broker", "embedded:b.db", "--coordination", "anarchy"], /--coordination must be one of partitioned/],
    [["relay", ...store, "--broker", "embedded:b.db", "--own", "0-99"], /--own must be lanes from 0 to 63/],
    [["relay", ...store, "--broker", "embedded:b.db", "--http-token-file", "t"], /--http-token-file needs --http/],
    [["events", "list", ...store, "--state", "LOST"], /--state must be one of PENDING, PUBLISHING/],
    [["events", "show", ...store], /waybill events show needs ID/],
    [["dead", "redrive", ...store], /needs ids, a filter, or --all/],
    [["dead", "discard", "x", "--all", ...store], /takes ids, or --all and filters, not both/],
    [["purge", ...store], /needs --older-than/],
    [["purge", ...store, "--older-than", "7"], /--older-than must be a time/],
    [["migrate", ...store, "--topics", "a"], /--topics needs --broker/],
  ])("%j is wrong use", async (args, words) => {
    const result = await run(...args);
    expectRefused(result, 2, "USAGE", words);
    expect(result.stderr).not.toContain("s3cret");
  });

  test.each([
    ["mongodb://ann:s3cret@db/app", /no adapter for mongodb:/],
    ["sqlite:", /names no file/],
    ["app.db", /is not a URL/],
    ["embedded:b.db", /is the URL of a broker/],
  ])("the store %s is a bad URL", async (url, words) => {
    const result = await run("status", "--store", url);
    expectRefused(result, 2, "BAD_URL", words);
    expect(result.stderr).not.toContain("s3cret");
  });

  test("a broker that this version does not have is a bad URL", async () => {
    expectRefused(
      await run("relay", ...store, "--broker", "pulsar://ann:s3cret@k:9092"),
      2,
      "BAD_URL",
      /"pulsar:\/\/\*\*\*@k:9092": this version has no adapter for pulsar:/,
    );
  });

  test("tailing SQLite is refused with the reason", async () => {
    expectRefused(await run("relay", ...store, "--broker", "embedded:b.db", "--mode", "tail"), 2, "UNSUPPORTED", /SQLite has no log/);
  });

  test("options that the relay cannot use are wrong use", async () => {
    const relay = ["relay", ...store, "--broker", "embedded:b.db", "--once"];
    expectRefused(await run(...relay, "--route", "{tenant}.events"), 2, "INVALID_OPTION", /there are aggregate_type/);
    expectRefused(await run(...relay, "--coordination", "static"), 2, "INVALID_OPTION", /needs own lanes/);
    expectRefused(await run(...relay, "--own", "0-3"), 2, "INVALID_OPTION", /own lanes go with coordination "static"/);
  });

  test("an address beyond loopback needs a token", async () => {
    const relay = ["relay", ...store, "--broker", "embedded:b.db"];
    expectRefused(await run(...relay, "--http", "0.0.0.0:0"), 2, "INVALID_OPTION", /needs a token/);
    expectRefused(await run(...relay, "--http", "nonsense"), 2, "INVALID_OPTION", /--http must be HOST:PORT/);
    expectRefused(await run(...relay, "--http", "0.0.0.0:0", "--http-token-file", "missing"), 2, "INVALID_OPTION", /cannot be read/);
    expectRefused(
      await runWith({ env: { WAYBILL_HTTP_TOKEN: "short" } }, ...relay, "--http", "0.0.0.0:0"),
      2,
      "INVALID_OPTION",
      /16 characters/,
    );
  });

  test("a broken configuration file is refused by name", async () => {
    writeFileSync(join(folder, "waybill.config.json"), '{"sotre":"x"}');
    expectRefused(await run("status"), 2, "CONFIG_INVALID", /waybill\.config\.json has an unknown key "sotre": did you mean store\?/);
    expectRefused(await run("status", "--config", "other.json"), 2, "CONFIG_INVALID", /other\.json does not exist/);
  });

  test("errors are JSON where output is", async () => {
    const { code, stderr } = await run("status", "--sotre", "x", "--json");
    expect(JSON.parse(stderr)).toMatchObject({ error: { code: "USAGE", message: /did you mean --store/ } });
    expect(code).toBe(2);
  });
});

describe("an event", () => {
  test.each([
    ["an empty aggregate id", adding({ "aggregate-id": "" }), "INVALID_DRAFT", /aggregateId must not be empty/],
    ["an over-long aggregate id", adding({ "aggregate-id": "x".repeat(256) }), "INVALID_DRAFT", /aggregateId takes 256 bytes/],
    ["a line end in its type", adding({ type: "a\nb" }), "INVALID_DRAFT", /holds CR, LF/],
    ["an empty aggregate type", adding({ "aggregate-type": "" }), "INVALID_DRAFT", /aggregateType must not be empty/],
    ["an id that is none", adding({}, "--id", "42"), "INVALID_DRAFT", /neither a UUID nor a ULID/],
    ["a payload that is not JSON", adding({ payload: "{oops" }), "USAGE", /the payload is not JSON/],
    ["a header with CR", adding({}, "--header", "a=b\rc"), "INVALID_HEADER", /holds CR, LF/],
    ["a header with LF", adding({}, "--header", "a=b\nc"), "INVALID_HEADER", /holds CR, LF/],
    ["a header name with a space", adding({}, "--header", "a b=c"), "INVALID_HEADER", /token characters/],
    ["a header without a name", adding({}, "--header", "=c"), "INVALID_HEADER", /token characters/],
    ["a reserved header name", adding({}, "--header", "Nats-Rollup=all"), "RESERVED_HEADER", /is reserved/],
    ["a header that is no pair", adding({}, "--header", "abc"), "USAGE", /must be NAME=VALUE/],
    ["a version that is none", adding({}, "--event-version", "0"), "USAGE", /whole number/],
    ["a moment without a zone", adding({}, "--available-at", "2030-01-31T12:00:00"), "USAGE", /must be a moment/],
    ["no payload", ["events", "add", ...store, "--aggregate-type", "A", "--aggregate-id", "1", "--type", "T"], "USAGE", /needs --payload/],
  ])("with %s is refused, and nothing is written", async (_, args, code, words) => {
    expectRefused(await run(...args), 2, code, words);
    expect(await eventsStored()).toBe(0);
  });

  test("over the limit is refused, and nothing is written", async () => {
    const payload = (bytes: number): string => JSON.stringify("x".repeat(bytes - 2));
    const limit = 256 * 1024;
    expectRefused(
      await runWith({ stdin: payload(limit + 1) }, ...adding({ payload: "-" })),
      2,
      "PAYLOAD_TOO_LARGE",
      /takes 262145 bytes, more than 262144/,
    );
    expect(await eventsStored()).toBe(0);
    expect(await runWith({ stdin: payload(limit) }, ...adding({ payload: "-" }))).toMatchObject({ code: 0 });
    expect(await eventsStored()).toBe(1);
  });

  test("with an id that exists is refused", async () => {
    const id = "01890a5d-ac96-774b-bcce-b302099a8057";
    expect(await run(...adding({}, "--id", id))).toMatchObject({ code: 0, stdout: `${id}\n` });
    expectRefused(await run(...adding({}, "--id", id.toUpperCase())), 2, "INVALID_DRAFT", /there is an event with id/);
    expect(await eventsStored()).toBe(1);
  });

  test("that does not exist is not found", async () => {
    expectRefused(await run("events", "show", "nothing", ...store), 1, "NOT_FOUND", /there is no event "nothing"/);
    expectRefused(await run("dead", "show", "nothing", ...store), 1, "NOT_FOUND", /there is no event/);
    expectRefused(await run("dead", "redrive", "nothing", ...store), 1, "NOT_FOUND", /there is no event/);
  });

  test("that is not dead can be neither redriven nor discarded", async () => {
    const id = (await run(...adding({}))).stdout.trim();
    for (const action of ["show", "redrive", "discard"])
      expectRefused(await run("dead", action, id, ...store), 1, "WRONG_STATE", /is PENDING, not DEAD/);
  });
});

describe("a file", () => {
  const commands = (url: string): string[][] => [
    ["status", "--store", url],
    ["events", "list", "--store", url],
    ["events", "add", ...fields({}), "--store", url],
    ["dead", "list", "--store", url],
    ["purge", "--older-than", "7d", "--store", url],
    ["relay", "--once", "--broker", "embedded:b.db", "--store", url],
  ];

  test("that is not there is not made by anything but migrate", async () => {
    for (const args of commands("sqlite:typo.db")) expectRefused(await run(...args), 1, "NOT_MIGRATED", /there is no file typo\.db/);
    expect(() => readFileSync(join(folder, "typo.db"))).toThrow(/ENOENT/);
  });

  test("without the tables is named, with the way out", async () => {
    writeFileSync(join(folder, "empty.db"), "");
    for (const args of commands("sqlite:empty.db")) {
      const result = await run(...args);
      expectRefused(result, 1, "NOT_MIGRATED", /empty\.db has no Waybill tables: run waybill migrate/);
      expect(result.stderr.match(/run .?waybill migrate/gi), "said once").toHaveLength(1);
    }
  });

  test("that is no database is left as it is", async () => {
    const noise = Buffer.from("this is a letter to my mother, not a database. ".repeat(100));
    writeFileSync(join(folder, "letter.db"), noise);
    for (const args of [...commands("sqlite:letter.db"), ["migrate", "--store", "sqlite:letter.db"]]) {
      expectRefused(await run(...args), 1, "STORE_CORRUPT", /letter\.db is not a usable database/);
    }
    expectRefused(
      await run("relay", ...store, "--broker", "embedded:letter.db"),
      1,
      "STORE_CORRUPT",
      /letter\.db is not a usable database/,
    );
    expect(readFileSync(join(folder, "letter.db")).equals(noise)).toBe(true);
  });

  test("whose pages are damaged is refused", async () => {
    for (let i = 0; i < 3; i++) await run(...adding({ "aggregate-id": String(i) }));
    const bytes = readFileSync(join(folder, "app.db"));
    bytes.fill(0xa5, 4096);
    writeFileSync(join(folder, "app.db"), bytes);
    for (const args of [["events", "list", ...store], adding({})])
      expectRefused(await run(...args), 1, "STORE_CORRUPT", /app\.db is not a usable database/);
    expect(readFileSync(join(folder, "app.db")).equals(bytes)).toBe(true);
  });

  test("with a newer schema is left as it is", async () => {
    const db = (await defaultDriver())(join(folder, "app.db"));
    db.exec("UPDATE waybill_meta SET version = 99");
    db.close();
    const before = readFileSync(join(folder, "app.db"));
    for (const args of [...commands("sqlite:app.db"), ["migrate", ...store]]) {
      expectRefused(await run(...args), 1, "SCHEMA_NEWER", /app\.db has tables of version 99, and this code knows \d+ at most/);
    }
    expect(readFileSync(join(folder, "app.db")).equals(before)).toBe(true);
  });

  test("that cannot be written says so, and can still be read", { timeout: 60_000 }, async () => {
    expect(await run(...adding({}))).toMatchObject({ code: 0 });
    chmodSync(join(folder, "app.db"), 0o444);
    chmodSync(folder, 0o555);
    const asUser = (...args: string[]): Promise<Result> => cli(args, { cwd: folder, powerless: true });
    try {
      for (const args of [adding({}), ["purge", ...store, "--older-than", "7d"], ["migrate", ...store]]) {
        expectRefused(
          await asUser(...args),
          1,
          "STORE_READ_ONLY",
          /app\.db cannot be written: .*let this user write to the file and its folder/,
        );
      }
      expect(await asUser("events", "list", ...store)).toMatchObject({ code: 0, stdout: expect.stringContaining("OrderPlaced") as string });
      expectRefused(await asUser("migrate", "--store", "sqlite:new.db"), 1, "STORE_READ_ONLY", /new\.db cannot be created/);
    } finally {
      chmodSync(folder, 0o755);
    }
    expect(await eventsStored()).toBe(1);
  });

  test("that is a folder, or in one that is not there, cannot be used", async () => {
    mkdirSync(join(folder, "folder.db"));
    for (const args of commands("sqlite:folder.db")) expectRefused(await run(...args), 1, "STORE_UNAVAILABLE", /folder\.db cannot be used/);
    expectRefused(
      await run("migrate", "--store", "sqlite:no/where.db"),
      1,
      "STORE_UNAVAILABLE",
      /the folder of no\/where\.db does not exist/,
    );
    expectRefused(
      await run("relay", ...store, "--broker", "embedded:no/where.db"),
      1,
      "STORE_UNAVAILABLE",
      /the folder of no\/where\.db does not exist/,
    );
    expectRefused(
      await run("relay", "--once", ...store, "--broker", "embedded:folder.db"),
      1,
      "STORE_UNAVAILABLE",
      /folder\.db cannot be used/,
    );
  });
});

test("a process ends with the exit code, one clear error and no stack", { timeout: 60_000 }, async () => {
  await built();
  expectRefused(await cli(["status", "--sotre", "x"], { cwd: folder }), 2, "USAGE", /did you mean --store/);
  expectRefused(await cli(["status", "--store", "sqlite:typo.db"], { cwd: folder }), 1, "NOT_MIGRATED", /there is no file typo\.db/);
  expect(await cli(["status", ...store], { cwd: folder })).toMatchObject({ code: 0, stderr: "" });
  writeFileSync(join(folder, "waybill.config.mjs"), "throw new TypeError('oops');");
  expectRefused(await cli(["status"], { cwd: folder }), 2, "CONFIG_INVALID", /waybill\.config\.mjs cannot be read: oops/);
});
