import { existsSync, readdirSync, readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { errorsPage } from "../scripts/errors-page.mjs";
import { errorTable } from "../src/core/errors.ts";

const root = new URL("../", import.meta.url);
const read = (path: string): string => readFileSync(new URL(path, root), "utf8");

const pages = [
  ...readdirSync(root).filter((name) => name.endsWith(".md")),
  ...readdirSync(new URL("docs", root), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".md"))
    .map((name) => `docs/${name.replaceAll("\\", "/")}`),
];

describe("the docs", () => {
  test("errors.md is what the table says (npm run docs writes it)", () => {
    expect(read("docs/errors.md")).toBe(errorsPage(errorTable));
  });

  test("a change of the table changes the page", () => {
    const { USAGE, ...rest } = errorTable;
    expect(errorsPage(rest)).not.toContain("`USAGE`");
    expect(errorsPage({ ...rest, USAGE: { ...USAGE, remedy: "a | b" } })).toContain("a \\| b");
  });

  test.each(pages)("%s links only to what is there", (page) => {
    const links = [...read(page).matchAll(/\]\((?!https?:|#)([^)#\s]+)[^)]*\)/g)].map(([, target]) => target!);
    const broken = links.filter((target) => !existsSync(new URL(target, new URL(page, root))));
    expect(broken).toEqual([]);
  });

  test.each(pages)("%s names only codes of the table", (page) => {
    const codes = [...read(page).matchAll(/`(?!WAYBILL_)([A-Z]+_[A-Z_]+)`/g)].map(([, code]) => code!);
    expect(codes.filter((code) => !(code in errorTable))).toEqual([]);
  });
});
