import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { asked } from "../bench/asked.ts";
import { spreadsOf } from "../bench/measure/compare.ts";
import { mostMinutes, scenarios } from "../bench/scenarios/index.ts";

const page = readFileSync(new URL("../docs/performance.md", import.meta.url), "utf8");

describe("the bench", () => {
  test("has a row for every scenario in docs/performance.md, with the minutes that it takes", () => {
    const rows = [...page.matchAll(/^\| `(\w+)` \| .* \| ([\d.]+) \|$/gm)].map(([, name, minutes]) => [name, Number(minutes)]);
    expect(rows).toEqual(Object.entries(scenarios).map(([name, { minutes }]) => [name, minutes]));
  });

  test("runs each scenario within 10 minutes, and the default set within 40", () => {
    for (const [name, { minutes }] of Object.entries(scenarios)) expect(minutes, name).toBeLessThanOrEqual(mostMinutes.each);
    const standard = Object.values(scenarios).filter(({ long }) => long !== true);
    expect(standard.reduce((sum, { minutes }) => sum + minutes, 0)).toBeLessThanOrEqual(mostMinutes.together);
  });

  test("takes the middle of two rounds between them", () => {
    expect(spreadsOf([{ rate: 4 }, { rate: 1 }])).toEqual({ rate: { least: 1, median: 2.5, most: 4 } });
    expect(spreadsOf([{ rate: 4 }, { rate: 1 }, { rate: 2 }])).toEqual({ rate: { least: 1, median: 2, most: 4 } });
  });

  test("refuses a scenario, a flag or a value that it does not know, before it measures", () => {
    const of =
      (...words: readonly string[]): (() => unknown) =>
      () =>
        asked(words, ["add", "drain"]);
    expect(of("drian")).toThrow('there is no bench "drian": there are add, drain');
    expect(of("--help")).toThrow("Unknown option '--help': the flags are --quick, --long");
    expect(of("drain", "--round=9")).toThrow("--round");
    expect(of("drain", "--rounds=nine")).toThrow('--rounds takes a number from 1 to 9999, not "nine"');
    expect(of("drain", "--rounds=0")).toThrow('not "0"');
    expect(of("drain", "--beside=/nowhere")).toThrow("--beside takes the folder of a checkout that is built: there is no /nowhere/dist");
    expect(asked(["drain", "--rounds=9", "--only=nats,postgres"], ["drain"])).toMatchObject({
      scenarios: ["drain"],
      rounds: 9,
      only: ["nats", "postgres"],
    });
  });
});
