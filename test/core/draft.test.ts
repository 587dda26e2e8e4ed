import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { prepare } from "../../src/core/draft.ts";
import type { ErrorCode } from "../../src/core/errors.ts";
import type { Draft } from "../../src/core/event.ts";

const uuid = "018f2f65-0000-7000-8000-000000000001";
const limit = 1_000;
const bare = Object.create(null) as object;
const good: Draft = { aggregateType: "Order", aggregateId: "7", type: "OrderPlaced", payload: { total: 12 } };

const made = (change: object = {}, maxBytes = limit) => prepare({ ...good, ...change }, () => uuid, maxBytes);
const refused = (code: ErrorCode, message: RegExp) =>
  expect.objectContaining({ code, message: expect.stringMatching(message) as string }) as Error;

describe("a draft that is in order", () => {
  test("is completed with an id, version 1, JSON and no headers", () => {
    expect(made()).toEqual({
      id: uuid,
      aggregateType: "Order",
      aggregateId: "7",
      type: "OrderPlaced",
      eventVersion: 1,
      payload: '{"total":12}',
      contentType: "application/json",
      headers: {},
      idempotencyKey: null,
      availableAt: null,
    });
  });

  test("keeps what it was given, fields that are undefined counting as absent", () => {
    const availableAt = new Date("2030-01-01T00:00:00.000Z");
    const given = {
      id: uuid.toUpperCase(),
      eventVersion: 3,
      contentType: "text/json",
      headers: { tenant: "a" },
      idempotencyKey: "k",
      availableAt,
    };
    expect(made(given)).toMatchObject({ ...given, id: uuid });
    const nothing = {
      id: undefined,
      eventVersion: undefined,
      contentType: undefined,
      headers: undefined,
      idempotencyKey: undefined,
      availableAt: undefined,
    };
    expect(made(nothing)).toEqual(made());
  });

  test("does not change when the caller changes its own objects afterwards", () => {
    const payload = Buffer.from("abc");
    const headers = { tenant: "a" };
    const availableAt = new Date(1_000);
    const row = made({ payload, headers, availableAt });
    payload.fill(0);
    headers.tenant = "b";
    availableAt.setTime(2_000);
    expect(row.payload).toEqual(new Uint8Array([97, 98, 99]));
    expect(row.headers).toEqual({ tenant: "a" });
    expect(row.availableAt).toEqual(new Date(1_000));
  });

  test("keeps bytes as bytes, with a content type that says so", () => {
    const row = made({ payload: new Uint8Array([0, 255]) });
    expect(row).toMatchObject({ payload: new Uint8Array([0, 255]), contentType: "application/octet-stream" });
  });

  test.each([
    [null, "null"],
    [0, "0"],
    [false, "false"],
    ["", '""'],
    [[], "[]"],
    ["\ud800", '"\\ud800"'],
    ["a\0b", '"a\\u0000b"'],
  ])("may have the payload %j", (payload, text) => {
    expect(made({ payload }).payload).toBe(text);
  });

  test("holds any JSON value so that it comes out as it went in", () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 4 }), (payload) => {
        const { payload: text } = made({ payload }, 1_000_000);
        expect(JSON.parse(text as string)).toEqual(JSON.parse(JSON.stringify(payload)));
      }),
    );
  });

  test("may have __proto__ in its payload and headers as data, and pollutes nothing", () => {
    const payload: unknown = JSON.parse('{"__proto__":{"admin":true},"constructor":1}');
    const headers: unknown = JSON.parse('{"__proto__":"x"}');
    const row = made({ payload, headers });
    expect(row.payload).toBe('{"__proto__":{"admin":true},"constructor":1}');
    expect(Object.entries(row.headers)).toEqual([["__proto__", "x"]]);
    expect(Object.getPrototypeOf(row.headers)).toBe(Object.prototype);
    expect("admin" in {}).toBe(false);
  });
});

describe("names", () => {
  const names = ["aggregateType", "aggregateId", "type", "idempotencyKey"];

  test.each(names)("%s must be text of 1 to 255 bytes that every broker keeps", (field) => {
    for (const value of ["x", " ", "é".repeat(127), "x".repeat(255), "a\tb", "注文 7", "__proto__"]) {
      expect(made({ [field]: value })).toMatchObject({ [field]: value });
    }
    expect(() => made({ [field]: "" })).toThrow(refused("INVALID_DRAFT", new RegExp(`${field} must not be empty`)));
    expect(() => made({ [field]: "x".repeat(256) })).toThrow(
      refused("INVALID_DRAFT", new RegExp(`${field} takes 256 bytes, more than 255`)),
    );
    expect(() => made({ [field]: "é".repeat(128) })).toThrow(refused("INVALID_DRAFT", /256 bytes/));
    for (const value of ["a\rb", "a\nb", "a\0b", "\ud800"]) {
      expect(() => made({ [field]: value })).toThrow(refused("INVALID_DRAFT", new RegExp(`${field} .*CR, LF, NUL or half a character`)));
    }
    for (const value of [null, 7, 7n, {}, bare, Symbol("s"), ["x"], () => "x"]) {
      expect(() => made({ [field]: value })).toThrow(refused("INVALID_DRAFT", new RegExp(`${field} must be a string`)));
    }
  });

  test.each(["aggregateType", "aggregateId", "type"])("%s must be there", (field) => {
    expect(() => made({ [field]: undefined })).toThrow(refused("INVALID_DRAFT", new RegExp(`${field} must be a string, not undefined`)));
  });

  test("a wrong name is reported before a wrong payload, whose message would need the name", () => {
    expect(() => made({ type: Symbol("s"), payload: undefined })).toThrow(
      refused("INVALID_DRAFT", /type must be a string, not Symbol\(s\)/),
    );
  });
});

describe("payloads", () => {
  const cycle: Record<string, unknown> = {};
  cycle["self"] = cycle;
  const reason: unknown = "no";
  const thrower = {
    toJSON() {
      throw reason;
    },
  };
  let deep: unknown = [];
  for (let i = 0; i < 50_000; i++) deep = [deep];

  test.each<[string, unknown, RegExp]>([
    ["undefined", undefined, /is undefined, which JSON cannot hold/],
    ["a function", () => 1, /is a function/],
    ["a symbol", Symbol("s"), /is Symbol\(s\)/],
    ["a BigInt", { total: 1n }, /cannot be written as JSON: .*BigInt/],
    ["a cycle", cycle, /cannot be written as JSON: .*circular structure to JSON$/],
    ["nesting without end", deep, /cannot be written as JSON/],
    ["a toJSON that throws no error", thrower, /cannot be written as JSON: no/],
    ["a promise that was not awaited", Promise.resolve({}), /is a promise: await it first/],
    ["a Map", new Map([["a", 1]]), /is a Map or Set/],
    ["a Set", new Set([1]), /is a Map or Set/],
    ["an ArrayBuffer", new ArrayBuffer(2), /is binary: give it as a Uint8Array/],
    ["a Uint16Array", new Uint16Array(2), /is binary: give it as a Uint8Array/],
  ])("%s cannot be one", (_, payload, message) => {
    expect(() => made({ payload })).toThrow(refused("PAYLOAD_NOT_SERIALISABLE", message));
  });

  test("of exactly the limit pass, and one byte more does not", () => {
    const text = "x".repeat(limit - 2);
    expect(made({ payload: text }).payload).toHaveLength(limit);
    expect(() => made({ payload: `${text}x` })).toThrow(
      refused("PAYLOAD_TOO_LARGE", /the payload of OrderPlaced takes 1001 bytes, more than 1000/),
    );
    expect(made({ payload: new Uint8Array(limit) }).payload).toHaveLength(limit);
    expect(() => made({ payload: new Uint8Array(limit + 1) })).toThrow(refused("PAYLOAD_TOO_LARGE", /1001 bytes/));
  });

  test("are measured in bytes, not in characters", () => {
    expect(made({ payload: "é".repeat(499) }).payload).toHaveLength(501);
    expect(() => made({ payload: "é".repeat(500) })).toThrow(refused("PAYLOAD_TOO_LARGE", /1002 bytes/));
  });
});

describe("the other fields", () => {
  test.each([
    ["a string", "x"],
    ["null", null],
    ["undefined", undefined],
    ["a number", 3],
  ])("an event cannot be %s", (_, draft) => {
    expect(() => prepare(draft as never, () => uuid, limit)).toThrow(refused("INVALID_DRAFT", /an event must be an object/));
  });

  test("an unknown field is named, with those there are", () => {
    expect(() => made({ paylod: 1 })).toThrow(
      refused("INVALID_DRAFT", /unknown field "paylod": an event has aggregateType, .*availableAt/),
    );
    const sneaky = JSON.parse('{"__proto__":{}}') as object;
    expect(() => made(sneaky)).toThrow(refused("INVALID_DRAFT", /unknown field "__proto__"/));
  });

  test.each([
    ["text", "7"],
    ["null", null],
    ["a BigInt", 7n],
    ["an object", bare],
    ["empty", ""],
    ["nearly a UUID", `${uuid}0`],
    ["a UUID with braces", `{${uuid}}`],
  ])("the id cannot be %s", (_, id) => {
    expect(() => made({ id })).toThrow(refused("INVALID_DRAFT", /is neither a UUID nor a ULID/));
  });

  test("an id from a newId of the user's is checked like any other", () => {
    expect(() => prepare(good, () => "order-7", limit)).toThrow(refused("INVALID_DRAFT", /id "order-7" is neither/));
  });

  test.each([0, -1, 1.5, NaN, Infinity, 2_147_483_648, "1", 1n, {}, bare])("the version cannot be %s", (eventVersion) => {
    expect(() => made({ eventVersion })).toThrow(refused("INVALID_DRAFT", /eventVersion must be a whole number from 1 to 2147483647/));
  });

  test.each(["", "a\nb", "a\r", "é", "x".repeat(256), 7, 7n, {}])("the content type cannot be %s", (contentType) => {
    expect(() => made({ contentType })).toThrow(refused("INVALID_DRAFT", /contentType .* must be 1 to 255 printable ASCII/));
  });

  test.each([
    ["invalid", new Date(NaN), /not an invalid Date/],
    ["text", "2030-01-01", /must be a valid Date, not "2030-01-01"/],
    ["a number", 1_900_000_000_000, /must be a valid Date/],
    ["null", null, /must be a valid Date, not null/],
    ["an object", bare, /must be a valid Date, not an object/],
    ["before 1970", new Date(-1), /between 1970 and 9999, not 1969-12-31/],
    ["after 9999", new Date(Date.UTC(10_000, 0)), /between 1970 and 9999, not \+010000/],
  ])("availableAt cannot be %s", (_, availableAt, message) => {
    expect(() => made({ availableAt })).toThrow(refused("INVALID_DRAFT", message));
  });

  test("availableAt may be the first and the last moment that sorts as text", () => {
    for (const at of [new Date(0), new Date("9999-12-31T23:59:59.999Z")]) expect(made({ availableAt: at }).availableAt).toEqual(at);
  });

  test("whatever is given, the answer is a row or an error of ours", () => {
    const field = fc.constantFrom(
      "aggregateType",
      "aggregateId",
      "type",
      "payload",
      "id",
      "eventVersion",
      "contentType",
      "headers",
      "idempotencyKey",
      "availableAt",
      "other",
    );
    const junk = fc.anything({
      withBigInt: true,
      withDate: true,
      withMap: true,
      withSet: true,
      withNullPrototype: true,
      withTypedArray: true,
      withSparseArray: true,
    });
    fc.assert(
      fc.property(fc.dictionary(field, junk, { noNullPrototype: true }), (change) => {
        try {
          made(change);
        } catch (error) {
          expect(error).toMatchObject({ name: "WaybillError" });
        }
      }),
      { numRuns: 500 },
    );
  });
});
