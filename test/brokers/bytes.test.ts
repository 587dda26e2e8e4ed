import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { ascii, ByteWriter, charset } from "../../src/brokers/kit/bytes.ts";

const text = fc.oneof(fc.string({ unit: "binary", maxLength: 600 }), fc.string({ unit: "grapheme-ascii", maxLength: 600 }));

describe("bytes that are written one after another", () => {
  test("are the same as joined ones, however small the room was at first", () => {
    const step = fc.oneof(
      text.map((value) => ({ write: (w: ByteWriter) => w.text(value), bytes: Buffer.from(value) })),
      fc.uint8Array({ maxLength: 300 }).map((value) => ({ write: (w: ByteWriter) => w.data(value), bytes: Buffer.from(value) })),
      fc.maxSafeNat().map((value) => ({ write: (w: ByteWriter) => w.decimal(value), bytes: Buffer.from(String(value)) })),
      fc.constant({ write: (w: ByteWriter) => w.crlf(), bytes: Buffer.from("\r\n") }),
    );
    fc.assert(
      fc.property(fc.nat(40), fc.array(step), (size, steps) => {
        const writer = new ByteWriter(size);
        for (const { write } of steps) write(writer);
        expect(writer.written().toString("hex")).toBe(Buffer.concat(steps.map(({ bytes }) => bytes)).toString("hex"));
      }),
    );
  });

  test("of certain characters only are written whole, or not at all", () => {
    const digits = charset((code) => code >= 48 && code <= 57);
    const writer = new ByteWriter(0);
    expect([writer.only(digits, "12"), writer.only(digits, "3x"), writer.only(digits, ""), writer.only(digits, "4")]).toEqual([
      ...[true, false, true, true],
    ]);
    expect(writer.written().toString()).toBe("124");
    expect(writer.only(ascii, "é")).toBe(false);
    expect(writer.written().toString()).toBe("124");
  });

  test("can be put before others", () => {
    const writer = new ByteWriter(0);
    writer.text("ab");
    writer.text("ü");
    writer.insert(2, "123");
    writer.text("!");
    expect(writer.written().toString()).toBe("ab123ü!");
  });
});
