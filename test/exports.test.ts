import { existsSync, readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { pageOf } from "../src/core/docs.ts";
import { isAtLeast } from "../src/core/finding.ts";

interface Package {
  readonly exports: Readonly<Record<string, string | { readonly types: string; readonly default: string }>>;
  readonly bin: Readonly<Record<string, string>>;
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly peerDependencies: Readonly<Record<string, string>>;
  readonly devDependencies: Readonly<Record<string, string>>;
  readonly peerDependenciesMeta: Readonly<Record<string, { readonly optional?: boolean }>>;
}

const root = new URL("../", import.meta.url);
const manifest = JSON.parse(readFileSync(new URL("package.json", root), "utf8")) as Package;

/** The source that `npm run build` makes a file of dist from. */
const sourceOf = (built: string): URL => new URL(built.replace("./dist/", "./src/").replace(/\.js$/, ".ts"), root);

const doors = Object.entries(manifest.exports).filter(([name]) => name !== "./package.json");

describe("the package", () => {
  test.each(doors)("%s has its source in src", (_, door) => {
    if (typeof door === "string") throw new Error(`${door} has no types`);
    expect(door.default).toMatch(/^\.\/dist\/.+\.js$/);
    expect(door.types).toBe(door.default.replace(/\.js$/, ".d.ts"));
    expect(existsSync(sourceOf(door.default)), sourceOf(door.default).pathname).toBe(true);
  });

  test.each(Object.entries(manifest.bin))("the command %s has its source in src, with a first line that runs it", (_, built) => {
    expect(readFileSync(sourceOf(built), "utf8")).toMatch(/^#!\/usr\/bin\/env node\n/);
  });

  test("has no runtime dependency, and its peers are optional", () => {
    expect(manifest.dependencies ?? {}).toEqual({});
    expect(Object.keys(manifest.peerDependencies).filter((peer) => manifest.peerDependenciesMeta[peer]?.optional !== true)).toEqual([]);
  });

  test("its peers' ranges have no end, so that a client that is not used stops no installation, and hold the tested versions", () => {
    const ranges = Object.entries(manifest.peerDependencies);
    expect(ranges.filter(([, range]) => !/^>=\d+(\.\d+)?$/.test(range))).toEqual([]);
    const tested = ranges.filter(([name]) => manifest.devDependencies[name] !== undefined);
    expect(tested.filter(([name, range]) => !isAtLeast(manifest.devDependencies[name]!, range.slice(2)))).toEqual([]);
    // Its package wants a compiler where no binary can be fetched: it was tried by hand.
    expect(ranges.map(([name]) => name).filter((name) => !tested.some(([one]) => one === name))).toEqual(["better-sqlite3"]);
  });

  test("npm shows where it comes from", () => {
    const place = "https://github.com/waybill-js/waybill";
    expect(manifest).toMatchObject({
      homepage: `${place}#readme`,
      bugs: { url: `${place}/issues` },
      repository: { type: "git", url: `git+${place}.git` },
    });
    expect(pageOf("errors.md")).toBe(`${place}/blob/main/docs/errors.md`);
  });
});
