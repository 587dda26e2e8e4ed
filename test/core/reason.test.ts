import { expect, test } from "vitest";
import { lineOf, oneLine, reasonOf, told } from "../../src/core/reason.ts";
import { WaybillError } from "../../src/core/errors.ts";

test("a reason of 500 characters is kept whole, and a longer one is cut to 500, the mark of the cut included", () => {
  expect(oneLine("x".repeat(500))).toBe("x".repeat(500));
  expect(oneLine("x".repeat(501))).toBe(`${"x".repeat(499)}…`);
});

test("a reason that is cut inside a character loses that character, not half of it", () => {
  expect(oneLine(`${"x".repeat(498)}😀😀`)).toBe(`${"x".repeat(498)}…`);
});

const causeOf = (message: string, ...names: string[]): string => reasonOf(new Error(message), names).error;

test("failures of one cause have one text, whatever event, number, moment or person their messages name", () => {
  for (const [one, other] of [
    ["order 17 is unknown", "order 4711 is unknown"],
    ["no parcel for order-17.", "no parcel for order-18."],
    ["event 01890a5d-ac96-774b-bcce-b302099a8057 refused", "event 01890a5d-ac96-774b-bcce-b302099a8058 refused"],
    ["Key (email)=(a@b.example) exists", "Key (email)=(long.name@c.example) exists"],
    ["its 300000 bytes are more than 262144", "its 300001 bytes are more than 262144"],
    ["expired at 2026-01-31T12:00:00Z", "expired at 2026-02-01T12:00:01Z"],
  ] as const)
    expect(causeOf(one)).toBe(causeOf(other));
});

test("failures of two causes have two texts", () => {
  expect(causeOf("HTTP 503")).not.toBe(causeOf("HTTP 404"));
  expect(causeOf("answered with status code 500")).not.toBe(causeOf("answered with status code 409"));
  expect(causeOf('no topic "orders"')).not.toBe(causeOf('no topic "parcels"'));
  expect(causeOf("127.0.0.1:9092 refused")).not.toBe(causeOf("127.0.0.1:9093 refused"));
  expect(causeOf("it is not UTF-8")).toBe("it is not UTF-8");
});

test("the names of the event itself stay out of the text, and the detail has the message whole", () => {
  expect(reasonOf(new Error("customer alice (a) has no account"), ["a", "alice"])).toEqual({
    ...{ code: "", error: "customer … (…) has no account", detail: "customer alice (a) has no account" },
  });
  expect(causeOf("strange .*+?^${}()|[]/-x names", ".*+?^${}()|[]/-x")).toBe("strange … names");
});

test("the code is Waybill's, the error's own, or its class", () => {
  expect(told(reasonOf(new WaybillError("MESSAGE_TOO_LARGE", "no")))).toBe("MESSAGE_TOO_LARGE: no");
  expect(told(reasonOf(Object.assign(new Error("no"), { code: "P2002" })))).toBe("P2002: no");
  expect(told(reasonOf(new TypeError("no")))).toBe("TypeError: no");
  expect(told(reasonOf(new Error("no")))).toBe("no");
  expect(told(reasonOf(Object.assign(new Error("no"), { code: "a\nb" })))).toBe("no");
});

test("a library's wrapping does not hide what the database said", () => {
  const said = Object.assign(new Error('duplicate key value violates unique constraint "parcels_pkey"'), { code: "23505" });
  const wrapped = new Error("Failed query: insert into parcels values ($1) params: o-1", { cause: said });
  expect(reasonOf(wrapped)).toEqual({
    code: "23505",
    error: said.message,
    detail: `${said.message} (${wrapped.message})`,
  });
  expect(lineOf(wrapped)).toContain(said.message);
  expect(reasonOf(new Error("no", { cause: new Error("deeper") })).error).toBe("no");
});
