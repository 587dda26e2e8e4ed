import { describe, expect, test } from "vitest";
import { readRow, type StoredRow } from "../../src/stores/kit/stored.ts";

const good: StoredRow = {
  seq: 7n,
  id: "0190-1",
  aggregateType: "Order",
  aggregateId: Buffer.from("🚚-1"),
  type: "OrderPlaced",
  eventVersion: 1,
  data: new Uint8Array([0, 255]),
  contentType: "application/json",
  headers: '{"tenant":"t1","n":1,"nested":{"a":[]}}',
  idempotencyKey: undefined,
  createdAt: new Date(5),
};

describe("a stored row", () => {
  test("that can be carried is carried whole", () => {
    expect(readRow(good)).toEqual({
      unreadable: null,
      envelope: {
        ...good,
        aggregateId: "🚚-1",
        headers: { tenant: "t1", n: "1", nested: '{"a":[]}' },
        idempotencyKey: null,
      },
    });
  });

  const deep = `{"a":${"[".repeat(8_000)}${"]".repeat(8_000)}}`;
  test.each<[string, Partial<StoredRow>, RegExp]>([
    ["an empty id", { id: "" }, /^id is empty$/],
    ["an id that is no text", { id: null }, /^id is not text$/],
    ["an id that no inbox can mark", { id: "x".repeat(256) }, /^id takes more than 255 bytes$/],
    ["NUL in the aggregate's id", { aggregateId: Buffer.from("a\0b") }, /^aggregate_id holds NUL$/],
    ["half a character", { aggregateType: "a\ud83d" }, /^aggregate_type is not valid UTF-8$/],
    ["bytes that are not UTF-8", { type: Buffer.from([0xff]) }, /^event_type is not valid UTF-8$/],
    ["a version that is no version", { eventVersion: Number.NaN }, /^event_version/],
    ["a content type that ends a line", { contentType: "a\r\nb: c" }, /^content_type is not printable ASCII$/],
    ["JSON with NUL behind it", { headers: '{"a":"b"}\0' }, /^headers are not JSON$/],
    ["headers that are a list", { headers: "[]" }, /^headers are not a JSON object$/],
    ["headers nested thousands deep", { headers: deep }, /^headers are nested too deeply$/],
    ["headers of a megabyte", { headers: `{"a":"${"x".repeat(1_000_000)}"}` }, /^headers take more than 16384 bytes$/],
    ["headers that are not UTF-8", { headers: Buffer.from('{"a":"\xff"}', "latin1") }, /^headers are not valid UTF-8$/],
    ["a key that is too long", { idempotencyKey: "k".repeat(300) }, /^idempotency_key takes/],
    ["a date that is none", { createdAt: new Date(Number.NaN) }, /^created_at is not a date$/],
  ])("with %s says so, and holds what could be read", (_, change, why) => {
    const { envelope, unreadable } = readRow({ ...good, ...change });
    expect(unreadable).toMatch(why);
    expect(() => envelope.createdAt.toISOString()).not.toThrow();
    for (const text of [envelope.id, envelope.aggregateType, envelope.aggregateId, envelope.type]) {
      expect(Buffer.byteLength(text)).toBeLessThanOrEqual(255);
      expect(text.isWellFormed() && !text.includes("\0")).toBe(true);
    }
  });

  test("with several faults names each", () => {
    expect(readRow({ ...good, id: "", headers: "x" }).unreadable).toBe("headers are not JSON; id is empty");
  });
});
