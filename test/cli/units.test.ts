import { describe, expect, test } from "vitest";
import { exactJson } from "../../src/cli/commands/payload.ts";
import { duration } from "../../src/cli/duration.ts";
import { failure } from "../../src/cli/failure.ts";
import { createOutput, plain, table } from "../../src/cli/output.ts";
import { laneNumbers, moment, names, whole, type Read } from "../../src/cli/read.ts";
import { redact } from "../../src/cli/redact.ts";
import { errorTable, WaybillError } from "../../src/core/errors.ts";
import { inWords } from "../../src/core/in-words.ts";
import { redactText, visible } from "../../src/core/text.ts";

const read = <T>(reader: Read<T>, text: string): T =>
  reader(text, (why) => {
    throw new Error(why);
  });

describe("durations", () => {
  test.each([
    ["100ms", 100],
    ["10s", 10_000],
    ["5m", 300_000],
    ["2h", 7_200_000],
    ["7d", 604_800_000],
    ["1w", 604_800_000],
    ["1.5s", 1_500],
    ["0s", 0],
  ])("%s is %i ms", (text, ms) => {
    expect(read(duration(0, 1e12), text)).toBe(ms);
  });

  test.each(["", "10", "s", "-1s", "1 s", "1y", "1e3s", "10S", "ten seconds", "1.2345s"])("%j is refused with an example", (text) => {
    expect(() => read(duration(0, 1e12), text)).toThrow(/must be a time such as 100ms/);
  });

  test("one outside the limits is refused with the limits", () => {
    expect(() => read(duration(1, 86_400_000), "30d")).toThrow("must be from 1ms to 1d, not 30d");
    expect(() => read(duration(1, 86_400_000), "0ms")).toThrow(/from 1ms/);
  });

  test.each([
    [0, "0ms"],
    [999, "999ms"],
    [1_500, "1.5s"],
    [90_000, "1.5m"],
    [86_400_000, "1d"],
  ])("%i ms reads as %s", (ms, words) => {
    expect(inWords(ms)).toBe(words);
  });
});

describe("secrets", () => {
  test.each([
    ["postgres://ann:s3cret@db:5432/app", "postgres://***@db:5432/app"],
    ["postgres://ann:s3@cr/et@db/app", "postgres://***@db/app"],
    ["postgres://ann:s3 cr'et@db/app", "postgres://***@db/app"],
    ["postgres://ann:s3?cret@db/app", "postgres://***@db/app"],
    ["redis://:s3cret@cache", "redis://***@cache"],
    ["ann:s3cret@db/app", "ann:***@db/app"],
    ["mysql://db/app?user=ann&password=s3cret", "mysql://db/app?user=***&password=***"],
    ["postgres//ann:s3cret@db/app", "***"],
    ["//ann:s3cret@db/app", "***"],
    ["host=db password=s3cret", "***"],
    ["pgsql:host=db password=s3cret", "pgsql:***"],
    ["./app.db", "./app.db"],
    ["sqlite:./me@home.db", "sqlite:./me@home.db"],
    ["sqlite:///var/app.db", "sqlite:///var/app.db"],
  ])("the URL %s is shown as %s", (url, shown) => {
    expect(redact(url)).toBe(shown);
  });

  test("go from the middle of a text", () => {
    const text = 'connect to "amqp://ann:s3cret@mq/vhost" failed, nor nats://ann:s3c@ret@n1 at https://x/y?access_token=s3cret&z=1';
    expect(redactText(text)).toBe('connect to "amqp://***@mq/vhost" failed, nor nats://***@n1 at https://x/y?access_token=***&z=1');
  });

  test("are in no error, with or without --json and the stack", () => {
    const cause = new Error("postgres://ann:s3cret@db");
    const error = new WaybillError("STORE_UNAVAILABLE", "no answer from postgres://ann:s3cret@db", { cause });
    for (const json of [true, false])
      for (const debug of [true, false]) expect(failure(error, { json, debug }).lines.join("\n")).not.toContain("s3cret");
  });
});

describe("errors", () => {
  test("say what, the way out and the code, and no stack", () => {
    const { lines, exitCode } = failure(new WaybillError("NOT_MIGRATED", "no tables"), { json: false, debug: false });
    expect(lines).toEqual(["waybill: no tables", `  ${errorTable.NOT_MIGRATED.remedy} [NOT_MIGRATED]`]);
    expect(exitCode).toBe(1);
  });

  test("that nobody expected say how to see where", () => {
    const { lines, exitCode } = failure(new TypeError("x is not a function"), { json: false, debug: false });
    const text = lines.join("\n");
    expect(text).toMatch(/^waybill: x is not a function\n.*WAYBILL_DEBUG=1/);
    expect(text).not.toMatch(/ at .*:\d+/);
    expect(exitCode).toBe(1);
    expect(failure(new TypeError("x"), { json: false, debug: true }).lines.join("\n")).toMatch(/ at .*:\d+/);
  });

  test("are one JSON object for programs", () => {
    const { lines, exitCode } = failure(new WaybillError("USAGE", "no\nsuch flag"), { json: true, debug: false });
    expect(lines).toHaveLength(1);
    expect(JSON.parse(lines[0]!)).toEqual({
      error: { code: "USAGE", message: "no\nsuch flag", remedy: expect.any(String) as string, retryable: false },
    });
    expect(lines[0]).not.toContain("\n");
    expect(exitCode).toBe(2);
  });
});

describe("values", () => {
  test("lanes are written as ranges", () => {
    expect(read(laneNumbers(64), "0-3,40, 2")).toEqual([0, 1, 2, 3, 40]);
    for (const bad of ["", "64", "3-1", "a", "0-64", "-1", "1,,2"]) expect(() => read(laneNumbers(64), bad)).toThrow(/lanes from 0 to 63/);
  });

  test("moments need a date, and a zone where they have a time", () => {
    expect(read(moment, "2030-01-31T12:00:00+02:00").toISOString()).toBe("2030-01-31T10:00:00.000Z");
    expect(read(moment, "2030-01-31").toISOString()).toBe("2030-01-31T00:00:00.000Z");
    for (const bad of ["2030-01-31T12:00:00", "tomorrow", "12:00", "1893456000", "2030-13-01", ""])
      expect(() => read(moment, bad)).toThrow(/must be a moment/);
  });

  test("whole numbers are digits within the limits", () => {
    expect(read(whole(1, 100), "100")).toBe(100);
    for (const bad of ["0", "101", "1.5", "1e2", " 1", "0x1", ""])
      expect(() => read(whole(1, 100), bad)).toThrow(/whole number from 1 to 100/);
  });

  test("names stand between commas", () => {
    expect(read(names, "Order, User")).toEqual(["Order", "User"]);
    expect(() => read(names, "Order,,User")).toThrow(/commas/);
  });
});

describe("output", () => {
  const sink = (colour: boolean, json = false) => {
    const written: string[] = [];
    return { written, out: createOutput({ write: (text) => written.push(text), colour }, json) };
  };

  test("a list of numbers takes one line in JSON, whatever texts look like", () => {
    const { written, out } = sink(false, true);
    const value = { lanes: [0, 1, 63], none: [], names: ["1", "2"], text: "[\n  1,\n  2\n]" };
    out.answer(value, () => []);
    expect(written.join("")).toContain('  "lanes": [0, 1, 63],\n');
    expect(JSON.parse(written.join(""))).toEqual(value);
  });

  test("JSON holds a BigInt as a string, a Date as ISO and bytes as base64", () => {
    const { out, written } = sink(true, true);
    out.answer({ seq: 2n ** 63n, at: new Date(0), bytes: new Uint8Array([0, 255]), list: [1n], none: null }, () => ["text"]);
    expect(JSON.parse(written.join(""))).toEqual({
      seq: "9223372036854775808",
      at: "1970-01-01T00:00:00.000Z",
      bytes: { base64: "AP8=" },
      list: ["1"],
      none: null,
    });
    expect(plain({ __proto__: null, a: 1n })).toEqual({ a: "1" });
  });

  test("colour is for terminals only", () => {
    expect(sink(true).out.bold("x")).toBe("\u001b[1mx\u001b[22m");
    expect(sink(false).out.bold("x")).toBe("x");
    expect(sink(true, true).out.bold("x")).toBe("x");
  });

  test("stored text cannot move the cursor, fake a line or turn the reading order", () => {
    expect(visible("a\u001b[2Jb\nc\rd\u0000e\u202ef\u009b")).toBe("a\\u001b[2Jb\\nc\\rd\\u0000e\\u202ef\\u009b");
    const { out } = sink(false);
    expect(
      table(
        out,
        ["n", "text"],
        [
          [5, "x\ny"],
          [1_000, "z"],
        ],
      ),
    ).toEqual(["   n  text", "   5  x\\ny", "1000  z"]);
  });
});

describe("payloads", () => {
  test("are values where JavaScript can hold them exactly", () => {
    expect(exactJson('{"a": [1, -2.50, 1e3, "12345678901234567890"], "b": null}')).toEqual({
      payload: { a: [1, -2.5, 1000, "12345678901234567890"], b: null },
    });
  });

  test.each(['{"id":12345678901234567890}', "[0.12345678901234567]", '{"x":1e400}'])("%s keeps its digits", (text) => {
    const { payload, contentType } = exactJson(text);
    expect(Buffer.from(payload as Uint8Array).toString()).toBe(text);
    expect(contentType).toBe("application/json");
  });

  test.each([
    ["a", "x".repeat(10_000_000)],
    ["of backslashes", "\\".repeat(5_000_000)],
    ["of quotes", '"'.repeat(1_000_000)],
  ])("a string %s of millions of characters is read like any other", (_, text) => {
    expect(exactJson(JSON.stringify({ text, n: 1 })).payload).toEqual({ text, n: 1 });
    expect(exactJson(`{"text":${JSON.stringify(text)},"n":12345678901234567890}`).payload).toBeInstanceOf(Uint8Array);
  });

  test.each(["", "{", "{'a':1}", "undefined", "NaN"])("%j is refused", (text) => {
    expect(() => exactJson(text)).toThrow(/the payload is not JSON/);
  });
});
