import { appendFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Row } from "../faults/matrix/row.ts";
import { evidenceOf, hashOf, resultsIn } from "../faults/matrix/results.ts";
import type { Result } from "../faults/matrix/stage.ts";

const row = (number: number): Row => ({
  number,
  title: "",
  injected: "",
  pairs: [
    { store: "postgres", broker: "redis" },
    { store: "sqlite", broker: "redis" },
  ],
  inject: async () => undefined,
});
const rows = [row(3), row(7)];
const result = (of: number, store: "postgres" | "sqlite"): Result => ({
  ...{
    row: of,
    store,
    broker: "redis",
    title: "",
    injected: "",
    times: 1,
    cannot: null,
    held: true,
    failures: [],
    pardons: {},
    counts: null,
  },
  ...{ restMs: 0, seed: 1, seconds: 1, notes: ["histories: /somewhere", "told"], at: "" },
});

describe("the results of the fault matrix", () => {
  let folder: string;
  beforeEach(() => void (folder = mkdtempSync(join(tmpdir(), "waybill-results-"))));
  afterEach(() => rmSync(folder, { recursive: true, force: true }));
  const putAll = (hash: string): void => {
    for (const each of [3, 7]) for (const store of ["sqlite", "postgres"] as const) resultsIn(folder, hash).put(result(each, store));
  };

  test("are evidence when every row has one on every pair of its own, and not before", () => {
    const results = resultsIn(folder, "now");
    results.put(result(3, "postgres"));
    results.put(result(7, "sqlite"));
    expect(evidenceOf(rows, results)).toEqual({ all: null, missing: ["3 on sqlite + redis", "7 on postgres + redis"] });
    putAll("now");
    const { all, missing } = evidenceOf(rows, results);
    expect(missing).toEqual([]);
    expect(all?.map(({ row: of, store }) => `${of} ${store}`)).toEqual(["3 postgres", "3 sqlite", "7 postgres", "7 sqlite"]);
    expect(all?.[0]).toMatchObject({ hash: "now", notes: ["told"] });
  });

  test("of other code are none", () => {
    putAll("before");
    resultsIn(folder, "now").put(result(3, "postgres"));
    expect(evidenceOf(rows, resultsIn(folder, "now")).missing).toHaveLength(3);
  });

  test("that do not tell of which code they are count", () => {
    writeFileSync(join(folder, "3-postgres-redis.json"), JSON.stringify(result(3, "postgres")));
    expect(resultsIn(folder, "now").get({ row: 3, store: "postgres", broker: "redis" })).toMatchObject({ row: 3 });
  });

  test("are of another hash once the code or a row has changed, and of the same when only the script has", () => {
    for (const place of ["src/core", "test/faults/matrix"]) mkdirSync(join(folder, place), { recursive: true });
    const files = { code: "src/core/event.ts", row: "test/faults/matrix/disk-rows.ts", script: "test/faults/matrix/index.ts" } as const;
    for (const file of Object.values(files)) writeFileSync(join(folder, file), "1;");
    const hashes = [hashOf(folder)];
    for (const file of [files.script, files.code, files.row]) {
      appendFileSync(join(folder, file), "2;");
      hashes.push(hashOf(folder));
    }
    expect(hashes[1]).toBe(hashes[0]);
    expect(new Set(hashes).size).toBe(3);
  });
});
