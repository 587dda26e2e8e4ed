import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { filledIn, tables } from "./tables.ts";

test.each(Object.entries(tables))("%s has the tables of the code (npm run docs writes them)", (page, parts) => {
  const text = readFileSync(new URL(`../../${page}`, import.meta.url), "utf8");
  expect(filledIn(text, parts)).toBe(text);
});

test("a page without the mark of a table is refused", () => {
  expect(() => filledIn("# Page\n", { counters: ["| a |"] })).toThrow(/no mark <!-- counters/);
});
