import { describe, expect, test } from "vitest";
import { lasting, propertiesOf } from "../../src/brokers/rabbitmq/tables.ts";
import { field, long, nested, nestedArrays, propertiesOf as rawProperties, text, type RawProperties } from "./rabbitmq-raw.ts";

describe("rabbitmq: header tables", () => {
  const read = (...headers: readonly Buffer[]) => propertiesOf(rawProperties({ contentType: "a/b", headers, messageId: "m" }));
  const bytes = (hex: string): Buffer => Buffer.from(hex, "hex");

  test("are read whatever types they hold", () => {
    const given: Record<string, Buffer> = {
      bool: field("bool", "t", bytes("01")),
      int8: field("int8", "b", bytes("ff")),
      uint8: field("uint8", "B", bytes("ff")),
      int16: field("int16", "s", bytes("ffff")),
      uint16: field("uint16", "u", bytes("ffff")),
      int32: field("int32", "I", bytes("ffffffff")),
      uint32: field("uint32", "i", bytes("ffffffff")),
      int64: field("int64", "l", bytes("fffffffffffffffe")),
      large: field("large", "l", bytes("7fffffffffffffff")),
      float: field("float", "f", bytes("3fc00000")),
      double: field("double", "d", bytes("3ff8000000000000")),
      decimal: field("decimal", "D", bytes("0200000005")),
      time: field("time", "T", bytes("0000000069559b00")),
      never: field("never", "T", bytes("ffffffffffffffff")),
      nothing: field("nothing", "V"),
      binary: field("binary", "x", long("é")),
      array: field("array", "A", long(Buffer.concat([Buffer.from("S"), long("a"), Buffer.from("t"), bytes("00")]))),
      table: field("table", "F", long(text("__proto__", "p"))),
    };
    const { headers, contentType, messageId, wrong } = read(...Object.values(given), text("__proto__", "own"));
    expect({ contentType, messageId, wrong }).toEqual({ contentType: "a/b", messageId: "m", wrong: null });
    expect(headers.map(([name, value]) => `${name}=${JSON.stringify(value)}`)).toEqual([
      ...["bool=true", "int8=-1", "uint8=255", "int16=-1", "uint16=65535", "int32=-1", "uint32=4294967295", "int64=-2"],
      ...['large="9223372036854775807"', "float=1.5", "double=1.5", 'decimal="0.05"', 'time="2025-12-31T21:52:00.000Z"'],
      ...['never="18446744073709551615"', "nothing=null", 'binary="é"', 'array=["a",false]', 'table={"__proto__":"p"}', '__proto__="own"'],
    ]);
  });

  test("that are nested too deep, cut short or of no type are called so, and never throw", () => {
    expect(read(nested("ok", 31)).wrong).toBeNull();
    for (const deep of [nested("deep", 32), nested("deep", 9_000), nestedArrays("deep", 9_000)])
      expect(read(text("a", "b"), deep)).toMatchObject({ wrong: expect.stringMatching(/nested more than 32 deep/) as string, headers: [] });
    expect(read(field("odd", "Q")).wrong).toMatch(/not as AMQP writes them/);
    const whole = rawProperties({ contentType: "a/b", headers: [text("name", "value"), nested("t", 3)], messageId: "m" });
    for (let cut = 0; cut < whole.length; cut++) expect(propertiesOf(whole.subarray(0, cut)).wrong, String(cut)).toMatch(/not as AMQP/);
  });

  test("of more than 10,000 values in all, wherever they are nested, are not read", () => {
    const empty = (count: number): Buffer[] => Array.from({ length: count }, (_, n) => field(n.toString(36), "V"));
    const inArray = (count: number): Buffer => field("array", "A", long(Buffer.alloc(count, "V")));
    const inTable = (count: number): Buffer => field("table", "F", long(Buffer.concat(empty(count))));
    const most: Readonly<Record<string, readonly Buffer[]>> = {
      headers: empty(10_000),
      array: [inArray(9_999)],
      table: [inTable(9_999)],
      together: [...empty(5_000), inArray(2_000), inTable(2_998)],
    };
    for (const [about, headers] of Object.entries(most)) {
      expect(read(...headers), about).toMatchObject({ wrong: null, values: 10_000 });
      const wrong = expect.stringMatching(/more than 10000 values/) as string;
      expect(read(...headers, field("more", "V")), about).toMatchObject({ wrong, headers: [], values: 0 });
    }
  });

  test("are known again when the server has added headers of its own", () => {
    const given = { contentType: "a/b", headers: [text("a", "b"), nested("deep", 9_000)], messageId: "m" };
    const again = { ...given, headers: [...given.headers, field("x-delivery-count", "l", Buffer.alloc(8))] };
    const known = (properties: RawProperties): Buffer => Buffer.concat(lasting(rawProperties(properties)));
    expect(known(again)).toEqual(known(given));
    expect(known({ ...given, messageId: "n" })).not.toEqual(known(given));
    expect(known({ ...given, headers: [text("a", "c")] })).not.toEqual(known(given));
  });
});
