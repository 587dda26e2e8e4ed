import { describe, expect, test } from "vitest";
import { checkOptions, positive, suggestion, whole } from "../../src/core/options.ts";

const refused = (message: RegExp) =>
  expect.objectContaining({ code: "INVALID_OPTION", message: expect.stringMatching(message) as string }) as Error;
const bare = Object.create(null) as number;

describe("checkOptions", () => {
  const known = ["store", "sink", "batchSize", "pollIntervalMs"];

  test("passes what it knows", () => {
    expect(() => checkOptions("createRelay", {}, known)).not.toThrow();
    expect(() => checkOptions("createRelay", { store: 1, batchSize: undefined }, known)).not.toThrow();
  });

  test.each([
    [{ batchsize: 1 }, /createRelay has no option "batchsize": did you mean batchSize\?/],
    [{ pollInterval: 1 }, /did you mean pollIntervalMs\?/],
    [{ SINK: 1 }, /did you mean sink\?/],
    [{ somethingElse: 1 }, /has no option "somethingElse": there are store, sink, batchSize, pollIntervalMs/],
    [JSON.parse('{"__proto__":1}') as object, /has no option "__proto__"/],
    [{ constructor: 1 }, /has no option "constructor"/],
  ])("refuses %j", (options, message) => {
    expect(() => checkOptions("createRelay", options, known)).toThrow(refused(message));
  });

  test.each([undefined, null, "sqlite:app.db", 7])("refuses %s in place of options", (options) => {
    expect(() => checkOptions("createRelay", options as never, known)).toThrow(refused(/createRelay takes an object of options/));
  });

  test("suggests nothing where there is nothing, and is not slowed down by a long word", () => {
    expect(suggestion("x", [])).toBe("");
    expect(suggestion("x".repeat(1_000_000), known)).toMatch(/^: there are store/);
  });
});

describe("numbers", () => {
  test.each([1, 0.5, Number.MAX_VALUE])("%d is positive", (value) => {
    expect(positive("leaseMs", value)).toBe(value);
  });

  test.each([0, -1, NaN, Infinity, "1", 1n, null, undefined, bare])("%s is not positive", (value) => {
    expect(() => positive("leaseMs", value as number)).toThrow(refused(/leaseMs must be a number above 0/));
  });

  test.each([1, 64, Number.MAX_SAFE_INTEGER])("%d is whole", (value) => {
    expect(whole("batchSize", value)).toBe(value);
  });

  test.each([0, -1, 1.5, NaN, Infinity, 2 ** 53, "1", 1n, null, undefined, bare])("%s is not whole", (value) => {
    expect(() => whole("batchSize", value as number)).toThrow(refused(/batchSize must be a whole number of 1 or more/));
  });

  test("a least value of 0 lets 0 pass", () => {
    expect(whole("retries", 0, 0)).toBe(0);
    expect(() => whole("retries", -1, 0)).toThrow(refused(/of 0 or more, not -1/));
  });
});
