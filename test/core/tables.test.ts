import { describe, expect, test } from "vitest";
import { isWaybillError } from "../../src/core/errors.ts";
import { fingerprintOf, refuseOther, type TablesFound } from "../../src/core/tables.ts";

const known = [fingerprintOf("CREATE TABLE a"), fingerprintOf("ALTER TABLE a")];
const told = (found: TablesFound): string => {
  try {
    refuseOther("the shop", found, known);
    return "taken";
  } catch (error) {
    return isWaybillError(error) ? `${error.code}: ${error.message}` : String(error);
  }
};

describe("tables are taken by their version and their text", () => {
  test("no tables, and those of every version that this code knows, are taken", () => {
    expect(told({ version: 0, fingerprint: null })).toBe("taken");
    expect(known.map((fingerprint, at) => told({ version: at + 1, fingerprint }))).toEqual(["taken", "taken"]);
  });

  test("tables of a later version ask for an upgrade of the code", () => {
    expect(told({ version: 3, fingerprint: fingerprintOf("later") })).toBe(
      "SCHEMA_NEWER: the shop has tables of version 3, and this code knows 2 at most: upgrade waybill here",
    );
  });

  test.each([
    [
      "the same version with another text",
      { version: 2, fingerprint: fingerprintOf("another") },
      /version 2, text [0-9a-f]{12}; this code/,
    ],
    ["a version with the text of another one", { version: 1, fingerprint: known[1]! }, /version 1, text/],
    ["tables that carry no fingerprint", { version: 2, fingerprint: null }, /\(version 2; this code makes version 2, text [0-9a-f]{12}\)/],
    ["a later version that carries no fingerprint", { version: 4, fingerprint: null }, /\(version 4; this code makes version 2/],
  ])("%s is refused with what was found and what to do", (_, found, what) => {
    const sentence = told(found);
    expect(sentence).toMatch(/^SCHEMA_UNRELEASED: the shop has tables of an unreleased build of Waybill/);
    expect(sentence).toMatch(what);
    expect(sentence).toMatch(/let the build that made them publish what waits, then begin with new tables elsewhere, or drop these/);
  });

  test("a fingerprint distinguishes where one text ends and the next begins", () => {
    expect(fingerprintOf("a", "b")).not.toBe(fingerprintOf("ab"));
  });
});
