import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { markdown, mutants } from "./table.ts";
import { apply, patchNames, patchOf, root } from "./tree.ts";

const read = (...path: readonly string[]): string => readFileSync(join(root, ...path), "utf8");

describe("the mutants", () => {
  test("every mutant has a patch, and every patch a mutant", () => {
    expect([...patchNames()].sort()).toEqual(mutants.map(({ name }) => name).sort());
  });

  test.each(mutants.map(({ name }) => name))("%s fits the source as it is, and changes nothing but the source", (name) => {
    expect(apply(root, name, "--check")).toBeNull();
    const changed = readFileSync(patchOf(name), "utf8").match(/^\+\+\+ .*/gm) ?? [];
    for (const file of changed) expect(file).toMatch(/^\+\+\+ b\/src\//);
  });

  test("every test that is to kill one is there, in its file or in a suite of all adapters", () => {
    const suites = readdirSync(join(root, "src/conformance")).map((file) => read("src/conformance", file));
    for (const { name, killer } of mutants)
      if (killer !== "simulation") expect([read(killer.tests), ...suites].join("\n").includes(killer.only), name).toBe(true);
  });

  test("the page has them all", () => {
    expect(read("docs/mutants.md")).toContain(markdown());
  });
});
