import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import type { Adapter } from "./adapter.ts";
import type { Missing } from "./optional.ts";

const page = readFileSync(new URL("../../docs/transactions.md", import.meta.url), "utf8");

/** What docs/transactions.md says of each library on these adapters' database. */
export function isInTheDocs(found: readonly (Adapter | Missing)[]): void {
  const { database } = found[0]!;
  const rows = page.split("\n").flatMap((line) => {
    const [, library, on, ...cells] = line.split("|").map((cell) => cell.trim());
    return on?.split(", ").includes(database) === true ? [{ library: library!, says: cells.slice(0, -1) }] : [];
  });

  describe(`the table of docs/transactions.md for ${database}`, () => {
    test("has every library that is tested, and no other", () => {
      expect(rows.map(({ library }) => library).sort()).toEqual(found.map(({ library }) => library).sort());
    });

    const tested = found.filter((one): one is Adapter => "open" in one);
    test.for(tested)("says of $library what its tests show", ({ library, refuses }) => {
      const word = (refused: boolean): string => (refused ? "refused" : "**stored at once**");
      const says = rows.find((row) => row.library === library)?.says;
      expect(says).toEqual(["yes", "yes", "yes", word(refuses.none), word(refuses.ended)]);
    });
  });
}
