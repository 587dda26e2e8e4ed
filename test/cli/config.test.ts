import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { loadConfig, readConfig } from "../../src/cli/config.ts";

let folder = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "waybill-config-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const write = (name: string, text: string): void => writeFileSync(join(folder, name), text);

describe("the configuration file", () => {
  test("is not needed", async () => {
    expect(await loadConfig(folder, undefined)).toEqual({});
  });

  test("is found in the folder, as JSON", async () => {
    write(
      "waybill.config.json",
      '{"store":"sqlite:./a.db","batch":50,"pollInterval":"250ms","skip":["Order","User"],"own":[0,1,5],"lease":"20s"}',
    );
    expect(await loadConfig(folder, undefined)).toEqual({
      store: "sqlite:./a.db",
      batch: 50,
      pollInterval: 250,
      skip: ["Order", "User"],
      own: [0, 1, 5],
      lease: 20_000,
    });
  });

  test("may be a module, with a function as its route", async () => {
    write("waybill.config.mjs", "export default { route: (event) => `${event.aggregateType}.x`, retry: { delaysMs: [1, 2], jitter: 0 } };");
    const config = await loadConfig(folder, undefined);
    expect(config.retry).toEqual({ delaysMs: [1, 2], jitter: 0 });
    expect(typeof config.route).toBe("function");
  });

  test("may be named", async () => {
    write("other.json", '{"broker":"embedded:./b.db"}');
    expect(await loadConfig(folder, "other.json")).toEqual({ broker: "embedded:./b.db" });
    await expect(loadConfig(folder, "missing.json")).rejects.toMatchObject({
      code: "CONFIG_INVALID",
      message: "missing.json does not exist",
    });
  });

  test("must be one", async () => {
    write("waybill.config.json", "{}");
    write("waybill.config.mjs", "export default {};");
    await expect(loadConfig(folder, undefined)).rejects.toMatchObject({
      code: "CONFIG_INVALID",
      message: /keep one, or name one with --config/,
    });
    expect(await loadConfig(folder, "waybill.config.json")).toEqual({});
  });

  test("that cannot be read is refused by name", async () => {
    write("waybill.config.json", "{");
    await expect(loadConfig(folder, undefined)).rejects.toMatchObject({
      code: "CONFIG_INVALID",
      message: /^waybill\.config\.json cannot be read: /,
    });
    write("broken.mjs", "export default {");
    await expect(loadConfig(folder, "broken.mjs")).rejects.toMatchObject({
      code: "CONFIG_INVALID",
      message: /^broken\.mjs cannot be read: /,
    });
  });

  test.each([
    [{ sotre: "x" }, 'x.json has an unknown key "sotre": did you mean store?'],
    [{ pollInterval: 100 }, "x.json: pollInterval must be text, not number"],
    [{ pollInterval: "100" }, 'x.json: pollInterval must be a time such as 100ms, 10s, 5m, 2h or 7d, not "100"'],
    [{ batch: "no" }, 'x.json: batch must be a whole number from 1 to 100000, not "no"'],
    [{ batch: null }, "x.json: batch must be a number, not null"],
    [{ skip: [] }, "x.json: skip must not be empty: leave the key out"],
    [{ mode: "push" }, 'x.json: mode must be one of poll, tail, auto, not "push"'],
    [
      { store: { url: "postgres://ann:s3cret@db" } },
      "x.json: store must be a URL, a Store or a function that makes one: this object lacks",
    ],
    [{ retry: { delays: [1] } }, 'x.json: retry has no option "delays": did you mean delaysMs?'],
    [{ retry: { delaysMs: ["1s"] } }, "x.json: retry needs delaysMs as a list of milliseconds, such as [1000, 5000, 30000, 120000]"],
    [{ retry: { jitter: 1 } }, "x.json: retry needs jitter from 0 to below 1"],
    [[], "x.json must hold one object"],
    [null, "x.json must hold one object"],
    ["store", "x.json must hold one object"],
  ])("with %j is refused", (content, message) => {
    expect(() => readConfig(content, "/some/where/x.json")).toThrow(message);
  });
});
