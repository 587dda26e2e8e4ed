import { expect, test } from "vitest";
import { applyRules, type Rule } from "../../src/core/finding.ts";
import { judgeTested, type Tested } from "../../src/core/tested.ts";

const judged = (version: string, tested: Tested) => {
  const rule: Rule<string> = { setting: "version", badWhen: "", breaks: "", remedy: "", look: (is, say) => judgeTested(is, tested, say) };
  return applyRules([rule], version)[0]!;
};

const postgres = { server: "PostgreSQL", oldest: "14", newest: "18" };
const redis = { server: "Redis", oldest: "7.0", newest: "8.0" };

test.each([
  ["14.0", postgres],
  ["18.3 (Debian 18.3-1)", postgres],
  ["7.0.15", redis],
  ["8.0.6", redis],
])("%s is among the versions that the tests run on", (version, tested) => {
  expect(judged(version, tested)).toMatchObject({ verdict: "good", value: version });
});

test.each([
  ["19beta1", postgres, /PostgreSQL 14 to 18, and this version is newer/],
  ["13.9", postgres, /older/],
  ["8.2.0", redis, /newer/],
  ["6.2.5", redis, /older/],
])("%s is not, and doctor says so", (version, tested, why) => {
  expect(judged(version, tested)).toMatchObject({ verdict: "unknown", value: version, why: expect.stringMatching(why) as string });
});
