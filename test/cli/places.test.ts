import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Result } from "./build.ts";
import { inProcess } from "./in-process.ts";

const home = process.cwd();
let folder = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "waybill-places-"));
  process.chdir(folder);
});
afterEach(() => {
  process.chdir(home);
  rmSync(folder, { recursive: true, force: true });
});

const run = (args: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<Result> => inProcess(args, { cwd: folder, env });

describe("no password stands in a command line: the store and the broker", () => {
  const migrate = ["migrate", "--topics", "a", "--json"];
  const made = (): string[] => readdirSync(folder).filter((name) => name.endsWith(".db"));

  test("come from the environment", async () => {
    expect(await run(migrate, { WAYBILL_STORE: "sqlite:s.db", WAYBILL_BROKER: "embedded:b.db" })).toMatchObject({ code: 0, stderr: "" });
    expect(made()).toEqual(["b.db", "s.db"]);
  });

  test("come from files, which may end with a line end", async () => {
    writeFileSync("store", "sqlite:s.db\n");
    writeFileSync("broker", "  embedded:b.db\r\n");
    expect(await run([...migrate, "--store-file", "store", "--broker-file", "broker"])).toMatchObject({ code: 0, stderr: "" });
    expect(made()).toEqual(["b.db", "s.db"]);
  });

  test("are taken from a flag first, then from the environment, then from the configuration", async () => {
    writeFileSync("waybill.config.json", '{"store":"sqlite:config.db"}');
    writeFileSync("file", "sqlite:file.db");
    const env = { WAYBILL_STORE: "sqlite:env.db" };
    const cases: readonly (readonly [readonly string[], Readonly<Record<string, string>>, string])[] = [
      [["migrate"], {}, "config.db"],
      [["migrate"], { WAYBILL_STORE: "" }, "config.db"],
      [["migrate"], env, "env.db"],
      [["migrate", "--store", "sqlite:flag.db"], env, "flag.db"],
      [["migrate", "--store-file", "file"], env, "file.db"],
    ];
    for (const [args, given, file] of cases) {
      expect(await run(args, given)).toMatchObject({ code: 0, stderr: "" });
      expect(made()).toEqual([file]);
      rmSync(file);
    }
  });

  test.each([
    ["an empty file", ""],
    ["two lines", "sqlite:a.db\nsqlite:s3cret.db"],
    ["far too much", `postgres://ann:s3cret@${"h".repeat(100_000)}/db`],
    ["no URL", "postgres//ann:s3cret@db/app"],
  ])("are refused when the file holds %s, and what it holds is not told", async (_, text) => {
    writeFileSync("store", text);
    const { code, stderr } = await run(["status", "--store-file", "store"]);
    expect(code).toBe(2);
    expect(stderr).not.toContain("s3cret");
    expect(stderr).toContain("store");
  });

  test("are refused when a file cannot be read, or is given beside the URL itself", async () => {
    expect(await run(["status", "--store-file", "none"])).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/--store-file none cannot be read/) as string,
    });
    writeFileSync("store", "sqlite:s.db");
    for (const args of [["status", "--store", "sqlite:a.db", "--store-file", "store"]])
      expect(await run(args)).toMatchObject({ code: 2, stderr: expect.stringMatching(/--store and --store-file/) as string });
  });

  test("of every command are the same", async () => {
    const env = { WAYBILL_STORE: "sqlite:s.db", WAYBILL_BROKER: "embedded:b.db" };
    expect(await run(["migrate", "--topics", "a"], env)).toMatchObject({ code: 0 });
    const add = ["events", "add", "--aggregate-type", "a", "--aggregate-id", "1", "--type", "T", "--payload", "{}", "--id"];
    const id = "01890a5d-ac96-774b-bcce-b302099a8057";
    const commands = [
      [...add, id],
      ["relay", "--once"],
      ["status"],
      ["events", "list"],
      ["events", "show", id],
      ["dead", "list"],
      ["dead", "redrive", "--all"],
      ["purge", "--older-than", "7d"],
    ];
    for (const args of commands) expect({ args, ...(await run(args, env)) }).toMatchObject({ args, code: 0, stderr: "" });
    expect((await run(["doctor", "--json"], env)).stdout).toContain('"broker": "embedded"');
  });

  test("a broker in the environment is no wish to delete from it", async () => {
    const env = { WAYBILL_STORE: "sqlite:s.db", WAYBILL_BROKER: "embedded:b.db" };
    await run(["migrate", "--topics", "a"], env);
    expect(JSON.parse((await run(["purge", "--older-than", "7d", "--json"], env)).stdout)).toMatchObject({ messages: null });
    writeFileSync("broker", "embedded:b.db");
    const asked = await run(["purge", "--older-than", "7d", "--json", "--broker-file", "broker"], env);
    expect(JSON.parse(asked.stdout)).toMatchObject({ messages: 0 });
  });
});

describe("--no-config", () => {
  test("a file of this folder is not run", async () => {
    writeFileSync(
      "waybill.config.mjs",
      'import { writeFileSync } from "node:fs"; writeFileSync("ran", ""); export default { store: "sqlite:x.db" };',
    );
    const refused = await run(["status", "--no-config"]);
    expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining("the store is missing") as string });
    expect(readdirSync(folder)).toEqual(["waybill.config.mjs"]);
    await run(["migrate"]);
    expect(readdirSync(folder)).toContain("ran");
  });

  test("does not go with --config", async () => {
    const given = await run(["status", "--no-config", "--config", "x.json"]);
    expect(given).toMatchObject({ code: 2, stderr: expect.stringContaining("--no-config") as string });
  });
});
