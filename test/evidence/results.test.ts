import { appendFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
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
    expect(evidenceOf(rows, results)).toEqual({
      all: null,
      missing: ["3 on sqlite + redis", "7 on postgres + redis"],
      unsteady: [],
    });
    putAll("now");
    const { all, missing } = evidenceOf(rows, results);
    expect(missing).toEqual([]);
    expect(all?.map(({ row: of, store }) => `${of} ${store}`)).toEqual(["3 postgres", "3 sqlite", "7 postgres", "7 sqlite"]);
    expect(all?.[0]).toMatchObject({ hash: "now", notes: ["told"] });
  });

  test("are no evidence when an earlier run of the same code did not hold, however many held since", () => {
    const place = { row: 3, store: "postgres", broker: "redis" } as const;
    const bad = (seed: number): Result => ({
      ...result(3, "postgres"),
      ...{ seed, held: false, failures: [{ invariant: "run", verdict: "failed", why: `nothing at ${seed}` }] },
    });
    putAll("now");
    const results = resultsIn(folder, "now");
    results.put(bad(5));
    expect(evidenceOf(rows, results)).toMatchObject({ missing: [], unsteady: [] });
    results.put(bad(6));
    for (let again = 0; again < 2; again++) results.put(result(3, "postgres"));
    expect(results.get(place)).toMatchObject({
      held: true,
      before: [
        { seed: 5, why: "run failed: nothing at 5" },
        { seed: 6, why: "run failed: nothing at 6" },
      ],
    });
    expect(evidenceOf(rows, results)).toEqual({
      all: null,
      missing: [],
      unsteady: [
        "3 on postgres + redis with seed 5: run failed: nothing at 5",
        "3 on postgres + redis with seed 6: run failed: nothing at 6",
      ],
    });
    // Other code begins anew.
    resultsIn(folder, "later").put(result(3, "postgres"));
    expect(resultsIn(folder, "later").get(place)?.before).toBeUndefined();
  });

  test("that could not be are no earlier failures", () => {
    const results = resultsIn(folder, "now");
    results.put({ ...result(3, "postgres"), held: false, cannot: "there is no disk" });
    putAll("now");
    expect(evidenceOf(rows, results)).toMatchObject({ unsteady: [], missing: [] });
  });

  test("of other code are none", () => {
    putAll("before");
    resultsIn(folder, "now").put(result(3, "postgres"));
    expect(evidenceOf(rows, resultsIn(folder, "now")).missing).toHaveLength(3);
  });

  test("that do not tell of which code they are count for none", () => {
    writeFileSync(join(folder, "3-postgres-redis.json"), JSON.stringify(result(3, "postgres")));
    expect(resultsIn(folder, "now").get({ row: 3, store: "postgres", broker: "redis" })).toBeNull();
  });

  test("are of another hash once code, row, server, reader or helper has changed, and of the same when only the script or a test has", () => {
    const others = ["test/faults/matrix/index.ts", "test/brokers/redis.test.ts", "test/support/arguments.slow.test.ts"];
    const files = [
      ...["src/core/event.ts", "test/faults/matrix/disk-rows.ts", "test/servers/redis.ts", "test/brokers/redis.ts"],
      ...["test/support/resp.ts", "scripts/servers.mjs"],
    ];
    for (const file of [...others, ...files]) {
      mkdirSync(dirname(join(folder, file)), { recursive: true });
      writeFileSync(join(folder, file), "1;");
    }
    const changed = (file: string): string => {
      appendFileSync(join(folder, file), "2;");
      return hashOf(folder);
    };
    const first = hashOf(folder);
    expect(others.map(changed)).toEqual([first, first, first]);
    expect(new Set([first, ...files.map(changed)]).size).toBe(7);
  });
});
