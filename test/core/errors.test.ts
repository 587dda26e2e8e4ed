import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { asError, errorTable, isWaybillError, show, WaybillError } from "../../src/core/errors.ts";

describe("errors", () => {
  test("carry their code, what to do, and whether to try again", () => {
    const cause = new Error("deeper");
    const error = new WaybillError("STORE_UNAVAILABLE", "app.db is locked", { cause });
    expect(error).toMatchObject({ name: "WaybillError", code: "STORE_UNAVAILABLE", message: "app.db is locked", retryable: true, cause });
    expect(error.remedy).toBe(errorTable.STORE_UNAVAILABLE.remedy);
  });

  test("speak of files only where the message does: a database may be a server", () => {
    const { meaning, remedy } = errorTable.STORE_READ_ONLY;
    expect(`${meaning} ${remedy}`).not.toMatch(/file|folder/);
  });

  test("are told apart by code, never by class", () => {
    const error: unknown = new WaybillError("STOPPED", "x");
    expect(isWaybillError(error)).toBe(true);
    expect(isWaybillError(error, "STOPPED")).toBe(true);
    expect(isWaybillError(error, "USAGE")).toBe(false);
    const fromAnotherCopy = Object.defineProperty(Object.assign(new Error("x"), { code: "STOPPED" }), Symbol.for("waybill.error"), {
      value: true,
    });
    expect(isWaybillError(fromAnotherCopy, "STOPPED")).toBe(true);
    for (const other of [null, undefined, "STOPPED", { code: "STOPPED" }, new Error("x")]) expect(isWaybillError(other)).toBe(false);
  });

  test("whatever was thrown becomes an error with words", () => {
    const error = new TypeError("as it is");
    expect(asError(error)).toBe(error);
    expect(asError("text").message).toBe("text");
    expect(asError(Object.create(null)).message).toBe("an object");
    expect(asError(undefined).message).toBe("undefined");
  });

  test("any value can be shown, in a line of bounded length", () => {
    fc.assert(
      fc.property(
        fc.anything({ withBigInt: true, withDate: true, withNullPrototype: true, withSparseArray: true, maxDepth: 4 }),
        (value) => {
          const shown = show(value);
          expect(typeof shown).toBe("string");
          expect(shown).not.toContain("\n");
        },
      ),
    );
    const endless: unknown[] = [];
    endless.push(endless);
    expect(show(endless)).toBe("[[…]]");
    expect(show("x".repeat(1_000))).toHaveLength(67);
    expect(show("a\nb")).toBe('"a\\nb"');
    expect(show(new Date(NaN))).toBe("an invalid Date");
  });
});

test("a message that quotes a server or a row is fit for a terminal", () => {
  const { message } = new WaybillError("STORE_UNAVAILABLE", "it said \u001b[31mred\u0007, \u009b and \u202e\nand more:\t1");
  expect(message).toBe("it said \\u001b[31mred\\u0007, \\u009b and \\u202e\nand more:\t1");
});
