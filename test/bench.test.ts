import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
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
});
