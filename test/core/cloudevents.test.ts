import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { fromAttributes, toAttributes } from "../../src/core/cloudevents.ts";
import type { Envelope } from "../../src/core/event.ts";

const envelope: Envelope = {
  id: "018f2f65-0000-7000-8000-000000000001",
  seq: 42n,
  aggregateType: "Order",
  aggregateId: "order-7",
  type: "OrderPlaced",
  eventVersion: 2,
  data: new Uint8Array([123, 125]),
  contentType: "application/json",
  headers: { tenant: "a" },
  idempotencyKey: "key-1",
  createdAt: new Date("2026-11-15T07:00:00.123Z"),
};

describe("toAttributes", () => {
  test("writes the CloudEvents attributes and our extensions, all of them as text", () => {
    expect(toAttributes(envelope, "/shop")).toEqual({
      specversion: "1.0",
      id: envelope.id,
      type: "OrderPlaced",
      source: "/shop",
      subject: "order-7",
      partitionkey: "order-7",
      time: "2026-11-15T07:00:00.123Z",
      datacontenttype: "application/json",
      aggregatetype: "Order",
      eventversion: "2",
      sequence: "42",
      idempotencykey: "key-1",
    });
  });

  test("has no idempotencykey when there is none", () => {
    expect(toAttributes({ ...envelope, idempotencyKey: null }, "/shop")).not.toHaveProperty("idempotencykey");
  });

  test("has the time of any event, whichever came before it, as a Date writes it, and throws for no time", () => {
    const timeOf = (createdAt: Date): string | undefined => toAttributes({ ...envelope, createdAt }, "/shop")["time"];
    const near = fc.tuple(fc.date({ noInvalidDate: true }), fc.array(fc.integer({ min: -1_500, max: 1_500 })));
    fc.assert(
      fc.property(near, ([date, steps]) => {
        for (const step of [0, ...steps]) {
          const moment = new Date(date.getTime() + step);
          if (!Number.isNaN(moment.getTime())) expect(timeOf(moment)).toBe(moment.toISOString());
        }
      }),
    );
    for (let i = 0; i < 2; i++) expect(() => timeOf(new Date(Number.NaN))).toThrow(RangeError);
    expect(timeOf(envelope.createdAt)).toBe("2026-11-15T07:00:00.123Z");
  });
});

describe("fromAttributes", () => {
  const text = fc.string({ minLength: 1, unit: "grapheme" });
  const envelopes: fc.Arbitrary<Envelope> = fc.record({
    id: fc.oneof(fc.uuid(), fc.ulid()),
    seq: fc.bigInt({ min: 0n, max: 2n ** 63n - 1n }),
    aggregateType: text,
    aggregateId: text,
    type: text,
    eventVersion: fc.integer({ min: 1, max: 2_147_483_647 }),
    data: fc.uint8Array(),
    contentType: text,
    headers: fc.dictionary(text, fc.string()),
    idempotencyKey: fc.option(text),
    createdAt: fc.date({ min: new Date(0), max: new Date("9999-12-31"), noInvalidDate: true }),
  });

  test("gives the same envelope back", () => {
    fc.assert(
      fc.property(envelopes, (given) => {
        expect(fromAttributes(toAttributes(given, "/waybill"), given.headers, given.data)).toEqual(given);
      }),
    );
  });

  test("makes an event of another producer's message with the least that CloudEvents asks for", () => {
    const data = new Uint8Array([1]);
    expect(fromAttributes({ specversion: "1.0", id: "a", type: "t", source: "/other" }, {}, data)).toEqual({
      id: "a",
      seq: 0n,
      aggregateType: "",
      aggregateId: "a",
      type: "t",
      eventVersion: 1,
      data,
      contentType: "application/octet-stream",
      headers: {},
      idempotencyKey: null,
      createdAt: new Date(0),
    });
    expect(fromAttributes({ id: "a", type: "t", partitionkey: "p" }, {}, data)?.aggregateId).toBe("p");
  });

  test.each([{}, { id: "a" }, { type: "t" }, { id: "", type: "t" }, { id: "a", type: "" }])(
    "gives null for %j: it is no event",
    (attributes) => {
      expect(fromAttributes(attributes as Record<string, string>, {}, new Uint8Array())).toBeNull();
    },
  );

  test.each([
    ["sequence", "abc", { seq: 0n }],
    ["sequence", "-1", { seq: 0n }],
    ["sequence", "9".repeat(30), { seq: 0n }],
    ["eventversion", "two", { eventVersion: 1 }],
    ["eventversion", "1e9", { eventVersion: 1 }],
    ["eventversion", "0", { eventVersion: 1 }],
    ["eventversion", "9999999999", { eventVersion: 1 }],
    ["time", "yesterday", { createdAt: new Date(0) }],
  ])("reads a damaged %s of %s as absent", (name, value, expected) => {
    const attributes = { ...toAttributes(envelope, "/shop"), [name]: value };
    expect(fromAttributes(attributes, {}, envelope.data)).toMatchObject(expected);
  });
});
