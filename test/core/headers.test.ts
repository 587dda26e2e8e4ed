import { describe, expect, test } from "vitest";
import { checkHeaders, checkNewHeaders } from "../../src/core/headers.ts";

const check = (headers: unknown) => () => checkHeaders(headers as Record<string, string>);
const refused = (code: string, message: RegExp) =>
  expect.objectContaining({ code, message: expect.stringMatching(message) as string }) as Error;

describe("headers that every broker keeps", () => {
  test.each([
    {},
    { traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01" },
    { tenant: "", "a.b_c~d": "é 注文", "!#$%&'*+.^_`|~-": "x" },
    { cex: "x", xylophone: "x", "content-language": "en", natsy: "x", waybill: "x" },
    JSON.parse('{"__proto__":"data"}') as object,
    Object.assign(Object.create(null) as object, { tenant: "a" }),
  ])("%j", (headers) => {
    expect(check(headers)).not.toThrow();
  });
});

describe("headers that are refused", () => {
  test.each(["", "a b", "a:b", "a\nb", "a\r", "\0", "é", "(a)", "x".repeat(256), "a\ud800"])("the name %j", (name) => {
    expect(check({ [name]: "v" })).toThrow(refused("INVALID_HEADER", /header name .* must be 1 to 255 token characters/));
  });

  test.each(["ce-id", "CE_ID", "ce_", "nats-rollup", "Nats-Msg-Id", "x-delay", "X-Match", "waybill-origin", "Content-Type"])(
    "the reserved name %s",
    (name) => {
      expect(check({ [name]: "v" })).toThrow(refused("RESERVED_HEADER", new RegExp(`"${name}" is reserved`)));
    },
  );

  test.each(["a\rb", "a\nb", "a\r\nNats-Rollup: all", "a\0", "\udc00"])("the value %j", (value) => {
    expect(check({ tenant: value })).toThrow(refused("INVALID_HEADER", /header "tenant" holds CR, LF, NUL or half a character/));
  });

  test.each([undefined, null, 7, 7n, true, {}, ["a"], Symbol("s")])("a value that is no string: %s", (value) => {
    expect(check({ tenant: value })).toThrow(refused("INVALID_HEADER", /header "tenant" must be a string/));
  });

  test.each([
    ["a string", "ab"],
    ["an array", ["a"]],
    ["a Map", new Map([["tenant", "a"]])],
    ["fetch's Headers", new Headers({ tenant: "a" })],
    ["a number", 7],
  ])("%s in place of an object, whose entries would be lost or made up", (_, headers) => {
    expect(check(headers)).toThrow(refused("INVALID_HEADER", /must be a plain object of strings/));
  });

  test("more than 16 KiB in a message, and not one byte less", () => {
    const name = "n".repeat(24);
    expect(check({ [name]: "é".repeat((16_384 - 24) / 2) })).not.toThrow();
    expect(check({ [name]: `${"é".repeat((16_384 - 24) / 2)}x` })).toThrow(
      refused("INVALID_HEADER", /headers take 16385 bytes, more than 16384/),
    );
  });

  test("more than 16 KiB in the table of a new event, where JSON escapes some characters, and not one byte less", () => {
    const room = 16_384 - '{"a":""}'.length;
    const isNew = (a: string) => () => checkNewHeaders({ a });
    expect(isNew("x".repeat(room))).not.toThrow();
    expect(isNew("\u0001".repeat(room / 6))).not.toThrow();
    expect(isNew("x".repeat(room + 1))).toThrow(refused("INVALID_HEADER", /headers take 16385 bytes as JSON, more than 16384/));
    expect(isNew("\u0001".repeat(room / 6 + 1))).toThrow(refused("INVALID_HEADER", /bytes as JSON, more than 16384/));
  });
});
