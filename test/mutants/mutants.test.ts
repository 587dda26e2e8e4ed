import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { mends, mendsMarkdown, mutantNamed, suiteOf } from "./mends.ts";
import { markdown, mutants } from "./table.ts";
import { apply, patchNames, patchOf, root } from "./tree.ts";
import { verdictIn } from "./trial.ts";

const read = (...path: readonly string[]): string => readFileSync(join(root, ...path), "utf8");

describe("the mutants", () => {
  test("every mutant has a patch, and every patch a mutant", () => {
    expect([...patchNames()].sort()).toEqual(mutants.map(({ name }) => name).sort());
  });

  test.each(mutants.map(({ name }) => name))(
    "%s fits the source as it is, and changes nothing but the source and the simulated store",
    (name) => {
      expect(apply(root, name, "--check")).toBeNull();
      const changed = readFileSync(patchOf(name), "utf8").match(/^\+\+\+ .*/gm) ?? [];
      for (const file of changed) expect(file).toMatch(/^\+\+\+ b\/(src\/|test\/simulation\/claim\.ts$)/);
    },
  );

  test("every test that is to kill one is there, in its file or in a suite of all adapters", () => {
    const ofStores = readdirSync(join(root, "src/conformance")).map((file) => read("src/conformance", file));
    const rows = ["test/fuzz/line/wrong.ts", "test/prices/writer-rows.ts"].map((file) => read(file));
    const suites = [...ofStores, ...["body.ts", "loose.ts", "nested.ts"].map((file) => read("test/handles", file)), ...rows];
    for (const { name, killer } of mutants)
      if (killer !== "simulation")
        for (const part of [killer.only, killer.within])
          expect([read(killer.tests), ...suites].join("\n").includes(part), `${name}: ${part}`).toBe(true);
  });

  test("the page has them all", () => {
    expect(read("docs/mutants.md")).toContain(markdown());
  });

  test("each mend of what users found can be taken back, and one of the suites of many cases fails then", () => {
    for (const { broke, mutants: names } of mends)
      for (const name of names) {
        const mutant = mutantNamed(name);
        expect(mutant, `${broke} ${name}`).toBeDefined();
        expect(suiteOf(mutant!), `${name} is killed by ${JSON.stringify(mutant!.killer)}`).not.toBeNull();
      }
    expect(read("docs/mutants.md")).toContain(mendsMarkdown());
  });
});

describe("what the simulation says of a mutant", () => {
  test("is a kill when an invariant is broken, of a seed or of what failed once", () => {
    expect(verdictIn("seed 9: no loss is unknown: late\nseed 19: fencing is broken: settled\n")).toBe("fencing is broken, seed 19");
    expect(verdictIn("it is back: a leak\n  no loss is unknown: late\n  order is broken: 2 before 1\n")).toBe(
      'order is broken, regression "a leak"',
    );
    expect(verdictIn("it is back: a\n  order is unknown: late\nit is back: b\n  order is broken: 2 before 1\n")).toBe(
      'order is broken, regression "b"',
    );
  });

  test("is no kill when nobody knows", () => {
    expect(verdictIn("seed 9: no loss is unknown: what is broken: nobody knows\n")).toBeNull();
    expect(verdictIn("it is back: a leak\n  no loss is unknown: late\n")).toBeNull();
  });
});
