import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { invariants } from "../../src/proof/judge/verdict.ts";
import { missingIn } from "../faults/matrix/results.ts";
import { rows } from "../faults/matrix/rows.ts";
import { mutants } from "../mutants/table.ts";
import { recallAll, type Evidence } from "./files.ts";
import { evidencePart, filledIn } from "./page.ts";
import { promises } from "./promises.ts";

const read = (file: string): string => readFileSync(new URL(`../../${file}`, import.meta.url), "utf8");
const page = read("docs/evidence.md");

describe("the evidence of docs/evidence.md", () => {
  test("is what the last full runs have left (npm run docs writes it)", () => {
    expect(page === filledIn(page, evidencePart(promises, mutants, recallAll())), "docs/evidence.md is out of date: npm run docs").toBe(
      true,
    );
  });

  test("is of every fault on every pair of store and broker that it is to be tried on", () => {
    const missing = missingIn(rows, recallAll().faults);
    expect(missing, `${missing.length} results are missing in docs/evidence/faults.json: npm run test:faults -- --evidence`).toEqual([]);
  });

  test("is of two thousand seeds of the simulation at least, and none of them failed", () => {
    expect(recallAll().simulation.seeds).toBeGreaterThanOrEqual(2_000);
    expect(recallAll().simulation.failed).toBe(0);
  });

  test("shows that every fault was survived and every mutant killed", () => {
    const { faults, mutants: tried } = recallAll();
    expect(faults.filter(({ held, cannot }) => !held && cannot === null).map(({ row, store, broker }) => [row, store, broker])).toEqual([]);
    expect(tried.filter(({ verdict }) => verdict !== "killed").map(({ name }) => name)).toEqual([]);
    expect(tried.map(({ name }) => name).sort()).toEqual(mutants.map(({ name }) => name).sort());
  });

  test("names every promise, and everything that is judged", () => {
    expect(promises.map(({ letter, name }) => `${letter} ${name}`)).toEqual(
      [...read("docs/promises.md").matchAll(/^\| \*\*(\w)\*\* ([\w ]+) \| \w.*\. \| /gm)].map(([, letter, name]) => `${letter} ${name}`),
    );
    expect(promises.flatMap((promise) => promise.invariants).sort()).toEqual([...invariants].sort());
  });

  test.each(promises.flatMap(({ tests }) => tests))("$name is a test of $file", ({ file, name }) => {
    expect(read(file)).toContain(name);
  });

  test("tells a mutant that was not killed and a promise that did not hold", () => {
    const evidence = recallAll();
    const [first, ...rest] = evidence.faults;
    const bad: Evidence = {
      ...evidence,
      mutants: [{ name: mutants[0]!.name, verdict: "survived", how: "", seconds: 1 }],
      faults: [{ ...first!, cannot: null, held: false }, ...rest],
    };
    const part = evidencePart(promises, mutants, bad);
    expect(part).toContain(`\`${mutants[0]!.name}\` (**survived**)`);
    expect(part).toContain(`\`${mutants[1]!.name}\` (**not tried**)`);
    expect(part).toContain(`**not held on ${first!.store} + ${first!.broker}**`);
    expect(part).toMatch(/could not be judged in 1 of them/);
  });

  test("every promise has a mutant that breaks it", () => {
    for (const { letter } of promises) expect(mutants.filter(({ promise }) => promise === letter).length, letter).toBeGreaterThan(0);
  });
});
