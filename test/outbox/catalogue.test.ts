import { type } from "arktype";
import * as v from "valibot";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { turn } from "../../src/core/clock.ts";
import type { ErrorCode } from "../../src/core/errors.ts";
import type { StandardSchema } from "../../src/core/standard-schema.ts";
import { defineEvents } from "../../src/outbox/catalogue.ts";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { fakeStore } from "./fake-store.ts";

const refused = (code: ErrorCode, message = /./) =>
  expect.objectContaining({ code, message: expect.stringMatching(message) as string }) as Error;

const unhandled: unknown[] = [];
const listen = (reason: unknown): void => void unhandled.push(reason);
beforeEach(() => void process.on("unhandledRejection", listen));
afterEach(async () => {
  for (let i = 0; i < 3; i++) await turn();
  process.off("unhandledRejection", listen);
  expect(unhandled.splice(0)).toEqual([]);
});

const libraries = {
  zod: z.object({ total: z.number(), lines: z.array(z.object({ sku: z.string() })) }),
  valibot: v.object({ total: v.number(), lines: v.array(v.object({ sku: v.string() })) }),
  arktype: type({ total: "number", lines: type({ sku: "string" }).array() }),
} satisfies Record<string, StandardSchema>;

describe.each(Object.entries(libraries))("a catalogue by %s", (_, schema) => {
  const events = defineEvents({ OrderPlaced: schema, OrderPaid: { schema, version: 3, aggregateType: "Order" } });
  const good = { total: 12, lines: [{ sku: "a" }] };

  test("lets a right event pass", async () => {
    const { store, synchronously, committed } = fakeStore({ synchronous: true });
    const outbox = createOutbox({ store, events });
    synchronously((tx) => void outbox.add(tx, { aggregateType: "Order", aggregateId: "7", type: "OrderPlaced", payload: good }));
    expect(committed).toMatchObject([{ type: "OrderPlaced", payload: JSON.stringify(good), eventVersion: 1 }]);
  });

  test("names the first wrong path, and nothing is written", () => {
    const { store, synchronously, log } = fakeStore({ synchronous: true });
    const outbox = createOutbox({ store, events });
    const wrong = { total: 12, lines: [{ sku: "a" }, { sku: 5 as unknown as string }] };
    const run = () =>
      synchronously((tx) => void outbox.add(tx, { aggregateType: "Order", aggregateId: "7", type: "OrderPlaced", payload: wrong }));
    expect(run).toThrow(refused("INVALID_PAYLOAD", /^the payload of OrderPlaced does not match its schema: lines\.1\.sku: /));
    expect(log).toEqual(["begin", "rollback"]);
  });

  test("refuses it in a transaction's buffer too, where it is added", async () => {
    const { store, db, committed } = fakeStore({ synchronous: false });
    await createOutbox({ store, events }).transaction(db, (_tx, buffer) => {
      expect(() => buffer.add({ aggregateId: "7", type: "OrderPaid", payload: {} as typeof good })).toThrow(
        refused("INVALID_PAYLOAD", /OrderPaid/),
      );
      buffer.add({ aggregateId: "7", type: "OrderPaid", payload: good });
    });
    expect(committed).toMatchObject([{ type: "OrderPaid", aggregateType: "Order", eventVersion: 3 }]);
  });
});

describe("the event type", () => {
  const events = defineEvents({ OrderPlaced: z.object({}), OrderCancelled: z.object({}) });
  const add = (eventType: unknown) => () => {
    const { store, synchronously, committed } = fakeStore({ synchronous: true });
    const outbox = createOutbox({ store, events });
    try {
      synchronously(
        (tx) => void outbox.add(tx, { aggregateType: "Order", aggregateId: "7", type: eventType as "OrderPlaced", payload: {} }),
      );
    } finally {
      expect(committed).toEqual([]);
    }
  };

  test.each([
    ["OrderPlcaed", /event type "OrderPlcaed" is not in the catalogue: did you mean OrderPlaced\?/],
    ["orderplaced", /did you mean OrderPlaced\?/],
    ["InvoiceSent", /there are OrderPlaced, OrderCancelled/],
    ["constructor", /"constructor" is not in the catalogue/],
    ["__proto__", /"__proto__" is not in the catalogue/],
    ["", /"" is not in the catalogue/],
  ])("%j is not known", (eventType, message) => {
    expect(add(eventType)).toThrow(refused("UNKNOWN_EVENT_TYPE", message));
  });

  test.each([undefined, null, 7, Symbol("s")])("%s is none", (eventType) => {
    expect(add(eventType)).toThrow(refused("INVALID_DRAFT", /type must be a string/));
  });

  test("may be any word that was defined, __proto__ and constructor included", () => {
    const odd = defineEvents({ ["__proto__"]: z.object({}), constructor: z.object({}) });
    const { store, synchronously, committed } = fakeStore({ synchronous: true });
    const outbox = createOutbox({ store, events: odd });
    synchronously((tx) => void outbox.add(tx, { aggregateType: "A", aggregateId: "7", type: "constructor", payload: {} }));
    synchronously((tx) => void outbox.add(tx, { aggregateType: "A", aggregateId: "7", type: "__proto__", payload: {} }));
    expect(committed.map((row) => row.type)).toEqual(["constructor", "__proto__"]);
  });
});

describe("what is stored", () => {
  const stored = (schema: StandardSchema, payload: unknown) => {
    const { store, synchronously, committed } = fakeStore({ synchronous: true });
    const outbox = createOutbox({ store, events: defineEvents({ Changed: schema }) });
    synchronously((tx) => void outbox.add(tx, { aggregateType: "A", aggregateId: "7", type: "Changed", payload }));
    return committed[0]!;
  };

  test("is the schema's output: with defaults, without fields that the schema drops", () => {
    const schema = z.object({ name: z.string().trim(), currency: z.string().default("EUR") });
    expect(stored(schema, { name: " Ada ", password: "secret" }).payload).toBe('{"name":"Ada","currency":"EUR"}');
  });

  test("is what JSON makes of that output", () => {
    const schema = z.object({ at: z.string().transform((text) => new Date(text)) });
    expect(stored(schema, { at: "2026-11-15T07:00:00Z" }).payload).toBe('{"at":"2026-11-15T07:00:00.000Z"}');
  });

  test("cannot be an output that JSON does not hold", () => {
    const schema = z.object({ total: z.string().transform((text) => BigInt(text)) });
    expect(() => stored(schema, { total: "12" })).toThrow(refused("PAYLOAD_NOT_SERIALISABLE", /payload of Changed/));
  });

  test("are bytes where the schema says so", () => {
    const row = stored(z.instanceof(Uint8Array), new Uint8Array([1, 2]));
    expect(row).toMatchObject({ payload: new Uint8Array([1, 2]), contentType: "application/octet-stream" });
  });

  test("may not be larger than the limit after the schema has added to it", () => {
    const schema = z.object({ text: z.string().default("x".repeat(300_000)) });
    expect(() => stored(schema, {})).toThrow(refused("PAYLOAD_TOO_LARGE"));
  });
});

describe("what a definition fixes", () => {
  const events = defineEvents({ OrderPaid: { schema: z.object({}), version: 3, aggregateType: "Order" }, Free: z.object({}) });
  const added = (draft: object) => {
    const { store, synchronously, committed } = fakeStore({ synchronous: true });
    const outbox = createOutbox({ store, events });
    synchronously((tx) => void outbox.add(tx, { aggregateId: "7", payload: {}, ...draft } as Parameters<typeof outbox.add>[1]));
    return committed[0]!;
  };

  test("need not be repeated, and may be", () => {
    for (const draft of [{ type: "OrderPaid" }, { type: "OrderPaid", aggregateType: "Order", eventVersion: 3 }]) {
      expect(added(draft)).toMatchObject({ aggregateType: "Order", eventVersion: 3 });
    }
  });

  test("cannot be contradicted", () => {
    expect(() => added({ type: "OrderPaid", aggregateType: "order" })).toThrow(
      refused("INVALID_DRAFT", /aggregateType of OrderPaid is "Order" in the catalogue, not "order"/),
    );
    expect(() => added({ type: "OrderPaid", eventVersion: 2 })).toThrow(
      refused("INVALID_DRAFT", /eventVersion of OrderPaid is 3 in the catalogue, not 2/),
    );
  });

  test("is free where the definition leaves it open", () => {
    expect(added({ type: "Free", aggregateType: "A", eventVersion: 9 })).toMatchObject({ aggregateType: "A", eventVersion: 9 });
    expect(() => added({ type: "Free" })).toThrow(refused("INVALID_DRAFT", /aggregateType must be a string, not undefined/));
  });
});

const asynchronous: [string, StandardSchema<{ sku: string }>][] = [
  ["zod", z.object({ sku: z.string().refine(async (sku) => (await turn(), sku !== "gone"), "out of stock") })],
  [
    "valibot",
    v.objectAsync({
      sku: v.pipeAsync(
        v.string(),
        v.checkAsync(async (sku) => (await turn(), sku !== "gone"), "out of stock"),
      ),
    }),
  ],
];

describe.each(asynchronous)("an asynchronous schema by %s", (_, schema) => {
  const events = defineEvents({
    Ordered: { schema, aggregateType: "Order" },
    Noted: { schema: z.object({ sku: z.string() }), aggregateType: "Order" },
  });
  const ordered = (aggregateId: string, sku = "a") => ({ aggregateId, type: "Ordered", payload: { sku } }) as const;
  const noted = (aggregateId: string) => ({ aggregateId, type: "Noted", payload: { sku: "b" } }) as const;

  test("is waited for by add where the store's transactions wait", async () => {
    const { store, asynchronously, committed } = fakeStore({ synchronous: false });
    const outbox = createOutbox({ store, events });
    await asynchronously((tx) => outbox.add(tx, [ordered("1"), noted("2"), ordered("3")]));
    expect(committed.map((row) => row.aggregateId)).toEqual(["1", "2", "3"]);
    const wrong = asynchronously((tx) => outbox.add(tx, [noted("4"), ordered("5", "gone"), ordered("6", "gone")]));
    await expect(wrong).rejects.toThrow(refused("INVALID_PAYLOAD", /sku: out of stock/));
    expect(committed).toHaveLength(3);
  });

  test("is refused by add where they do not, even for a payload that is wrong", () => {
    const { store, synchronously, log } = fakeStore({ synchronous: true });
    const outbox = createOutbox({ store, events });
    const message = /the schema of Ordered is asynchronous.*use outbox.transaction/;
    expect(() => synchronously((tx) => void outbox.add(tx, [noted("1"), ordered("2")]))).toThrow(refused("ASYNC_SCHEMA", message));
    expect(() => synchronously((tx) => void outbox.add(tx, ordered("2", "gone")))).toThrow(refused("ASYNC_SCHEMA", message));
    expect(log).toEqual(["begin", "rollback", "begin", "rollback"]);
  });

  test.each([true, false])("is waited for by transaction, which keeps the order (synchronous: %s)", async (synchronous) => {
    const { store, db, committed, log } = fakeStore({ synchronous });
    await createOutbox({ store, events }).transaction(db, (_tx, buffer) => {
      buffer.add(ordered("1"));
      buffer.add(noted("2"));
      buffer.add(ordered("3"));
    });
    expect(committed.map((row) => row.aggregateId)).toEqual(["1", "2", "3"]);
    expect(log).toEqual(["begin", "append 1 2 3", "commit", "wake"]);
  });

  test.each([true, false])("fails the transaction when it refuses (synchronous: %s)", async (synchronous) => {
    const { store, db, log } = fakeStore({ synchronous });
    const run = createOutbox({ store, events }).transaction(db, async (_tx, buffer) => {
      buffer.add(ordered("1", "gone"));
      buffer.add(ordered("2", "gone"));
      for (let i = 0; i < 5; i++) await turn();
    });
    await expect(run).rejects.toThrow(refused("INVALID_PAYLOAD", /out of stock/));
    expect(log).toEqual(["begin", "rollback"]);
  });

  test("whose refusal comes after another one is nobody's", async () => {
    const { store, asynchronously } = fakeStore({ synchronous: false });
    const outbox = createOutbox({ store, events });
    const run = asynchronously((tx) => outbox.add(tx, [ordered("1", "gone"), noted("")]));
    await expect(run).rejects.toThrow(refused("INVALID_DRAFT", /aggregateId must not be empty/));
  });
});

describe("a schema that fails", () => {
  const broken = (validate: StandardSchema["~standard"]["validate"]): StandardSchema => ({
    "~standard": { version: 1, vendor: "test", validate },
  });
  const add = (schema: StandardSchema) => {
    const { store, asynchronously } = fakeStore({ synchronous: false });
    const outbox = createOutbox({ store, events: { Changed: { schema } } });
    return asynchronously((tx) => outbox.add(tx, { aggregateType: "A", aggregateId: "7", type: "Changed", payload: {} }));
  };

  test("by throwing refuses the payload, with the cause", async () => {
    const cause = new Error("no such table");
    const fail = () => {
      throw cause;
    };
    await expect(add(broken(fail))).rejects.toMatchObject({
      code: "INVALID_PAYLOAD",
      message: expect.stringMatching(/the schema of Changed failed .* no such table/) as string,
      cause,
    });
    await expect(add(broken(() => Promise.reject(cause)))).rejects.toMatchObject({ code: "INVALID_PAYLOAD", cause });
  });

  test("without a reason, or with a path of symbols, is still put in words", async () => {
    await expect(add(broken(() => ({ issues: [] })))).rejects.toThrow(refused("INVALID_PAYLOAD", /without a reason/));
    const issues = [{ message: "wrong", path: ["a", { key: Symbol("b") }, 0] }];
    await expect(add(broken(() => ({ issues })))).rejects.toThrow(refused("INVALID_PAYLOAD", /a\.Symbol\(b\)\.0: wrong/));
  });
});

describe("defineEvents", () => {
  const schema = z.object({});

  test("gives definitions that nobody can change, whichever way they were given", () => {
    const definition = { schema, version: 2 };
    const events = defineEvents({ A: schema, B: definition });
    definition.version = 3;
    expect(events).toEqual({ A: { schema }, B: { schema, version: 2 } });
    expect(() => Object.assign(events, { C: { schema } })).toThrow(TypeError);
    expect(() => Object.assign(events.B, { version: 9 })).toThrow(TypeError);
    expect(defineEvents(events)).toEqual(events);
  });

  test.each<[string, unknown, RegExp]>([
    ["nothing", undefined, /takes an object of event types and their schemas, not undefined/],
    ["a value that is no schema", { A: "string" }, /event "A" needs a schema \(zod, .*\), not "string"/],
    ["null", { A: null }, /event "A" needs a schema .*, not null/],
    ["a definition without a schema", { A: { version: 1 } }, /event "A" needs a schema .*, not undefined/],
    ["a schema of another contract", { A: { schema: { parse: () => 1 } } }, /event "A" needs a schema .*, not an object/],
    ["a misspelt field", { A: { schema, verison: 1 } }, /event "A" has no option "verison": did you mean version\?/],
    ["a version of 0", { A: { schema, version: 0 } }, /version of event "A" must be a whole number of 1 or more, not 0/],
    ["an empty aggregate type", { A: { schema, aggregateType: "" } }, /aggregateType of event "A" must be a name, not ""/],
  ])("refuses %s", (_, definitions, message) => {
    expect(() => defineEvents(definitions as Record<string, StandardSchema>)).toThrow(refused("INVALID_OPTION", message));
  });
});
