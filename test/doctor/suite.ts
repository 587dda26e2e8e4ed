import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import type { Finding } from "../../src/core/finding.ts";
import { badOf, nameOf } from "./recorded.ts";

const read = (path: string): string => readFileSync(new URL(`../../${path}`, import.meta.url), "utf8");

/** What is bad of these answers, in order. */
export type Case<A> = readonly [what: string, change: Partial<A>, bad: readonly string[]];

/** An adapter's rules: what is said of healthy answers and of each change to them, and that the docs have every check. */
export function suite<A extends object>(
  name: string,
  heading: string,
  healthy: A,
  judge: (answers: A) => readonly Finding[],
  cases: readonly Case<A>[],
  /** Answers of which every check has something to say. */
  checked = healthy,
): void {
  describe(name, () => {
    test("nothing is bad of a healthy one", () => {
      expect(badOf(judge(healthy))).toEqual([]);
    });

    test.each(cases)("%s", (_, change, bad) => {
      const findings = judge({ ...healthy, ...change });
      expect(badOf(findings)).toEqual(bad);
      for (const { verdict, breaks, why } of findings) {
        expect(breaks).toMatch(verdict === "bad" ? /^[LPOEDIV]+$/ : /^$/);
        expect(why).toMatch(/\w.*\.$/);
      }
    });

    test("docs/doctor.md has every check, and no other", () => {
      const section =
        read("docs/doctor.md")
          .split(/^## /m)
          .find((part) => part.startsWith(`${heading}\n`)) ?? "";
      const rows = [...section.matchAll(/^\| `([^`]+)`/gm)].map(([, setting]) => setting!);
      expect(rows).toEqual([...new Set(judge(checked).map(nameOf))]);
    });
  });
}
