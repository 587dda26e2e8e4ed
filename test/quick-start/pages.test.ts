import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { quickStarts } from "./pages.ts";

test.each(Object.entries(quickStarts()))("%s is what the one text of the quick starts says (npm run docs writes it)", (page, text) => {
  expect(readFileSync(new URL(`../../${page}`, import.meta.url), "utf8")).toBe(text);
});
