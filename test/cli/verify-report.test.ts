import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { createOutput } from "../../src/cli/output.ts";
import { checkReport, tell } from "../../src/cli/verify/answer.ts";
import type { RunReport } from "../../src/cli/verify/report.ts";
import { inProcess } from "./in-process.ts";

let folder: string;
beforeEach(() => void (folder = mkdtempSync(join(tmpdir(), "waybill-verify-report-"))));
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const report: RunReport = {
  ...{ run: "verify_0", seed: 1, minutes: 1, store: "s", broker: "b", startedAt: "now", held: true, left: null },
  ...{ verdicts: [], counts: { events: 1, published: 1, effects: 1, copies: 0 }, faults: {}, notes: [] },
  timeline: { seconds: 1, faults: [], throughput: { added: [], published: [], applied: [] } },
};
const write = (path: string): void => {
  const out = createOutput({ write: () => undefined, colour: false }, false);
  expect(tell(out, report, path)).toBeNull();
};

test("verify says nothing of cleaning up where it has made nothing", async () => {
  const told = await inProcess(["verify", "--store", "sqlite:./a.db", "--broker", "redis://127.0.0.1:1"], { cwd: folder });
  expect(told.code).toBe(1);
  expect(told.stderr).toContain("redis://127.0.0.1:1/0 cannot be reached");
  expect(told.stderr).not.toContain("could not be removed");
  expect(readdirSync(folder)).toEqual([]);
});

describe("a report of verify", () => {
  test.for([
    ["package.json", '{ "name": "shop" }', "package.html"],
    ["run.json", '{ "run": "verify_0" }', "run.html"],
    ["list.json", "null", "list.html"],
    ["notes.json", "no JSON at all", "notes.html"],
    ["index.html", "<!doctype html><title>Shop</title>", "index.html"],
  ] as const)("does not take the place of another %s that holds %s: nothing begins", async ([file, text, path]) => {
    writeFileSync(join(folder, file), text);
    const given = join(folder, path);
    const told = await inProcess(["verify", "--store", "sqlite:./a.db", "--broker", "embedded:./b.db", "--report", given], { cwd: folder });
    expect(told).toMatchObject({ code: 2, stdout: "" });
    expect(told.stderr).toContain(`would overwrite ${join(folder, file)}, which is no report of waybill verify`);
    expect(told.stderr).toContain("choose another name, or move that file away");
    expect(readdirSync(folder)).toEqual([file]);
    expect(readFileSync(join(folder, file), "utf8")).toBe(text);
  });

  test("is not called what its JSON is called", () => {
    expect(() => checkReport(join(folder, "verify.json"))).toThrow(/call it .*verify\.html/);
    expect(readdirSync(folder)).toEqual([]);
  });

  test("takes the place of an older one, and of empty files", () => {
    const path = join(folder, "verify.html");
    for (const name of ["verify.html", "verify.json"]) writeFileSync(join(folder, name), "");
    checkReport(path);
    write(path);
    const before = readFileSync(path, "utf8");
    checkReport(path);
    write(path);
    expect(readFileSync(path, "utf8")).toBe(before);
    expect(readdirSync(folder).sort()).toEqual(["verify.html", "verify.json"]);
  });
});
