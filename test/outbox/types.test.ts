import { type } from "arktype";
import * as v from "valibot";
import { describe, expectTypeOf, test } from "vitest";
import { z } from "zod";
import type { Added, Draft } from "../../src/core/event.ts";
import { defineEvents, type DraftOf, type PayloadOf } from "../../src/outbox/catalogue.ts";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { fakeStore, type FakeDb, type FakeTx } from "./fake-store.ts";

const events = defineEvents({
  OrderPlaced: { schema: z.object({ total: z.number(), currency: z.string().default("EUR") }), aggregateType: "Order", version: 2 },
  StockMoved: v.object({ sku: v.string(), by: v.number() }),
  MailSent: { schema: type({ to: "string", "cc?": "string" }) },
  Blob: z.instanceof(Uint8Array),
});
type Events = typeof events;
type Drafts = DraftOf<Events>;
type Of<Type extends string> = Extract<Drafts, { readonly type: Type }>;

const { store } = fakeStore({ synchronous: true });
const typed = createOutbox({ store, events });
const untyped = createOutbox({ store });

describe("with a catalogue, the compiler knows", () => {
  test("the event types", () => {
    expectTypeOf<Drafts["type"]>().toEqualTypeOf<"OrderPlaced" | "StockMoved" | "MailSent" | "Blob">();
    expectTypeOf<Draft>().not.toExtend<Drafts>();
  });

  test("the payload that each takes: the schema's input", () => {
    expectTypeOf<Of<"OrderPlaced">["payload"]>().toEqualTypeOf<{ total: number; currency?: string | undefined }>();
    expectTypeOf<Of<"StockMoved">["payload"]>().toEqualTypeOf<{ sku: string; by: number }>();
    expectTypeOf<Of<"MailSent">["payload"]>().toEqualTypeOf<{ to: string; cc?: string }>();
  });

  test("a wrong draft from a right one", () => {
    type Right = { aggregateId: string; type: "OrderPlaced"; payload: { total: number } };
    expectTypeOf<Right>().toExtend<Drafts>();
    expectTypeOf<Right & { aggregateType: "Order"; eventVersion: 2; headers: { tenant: string } }>().toExtend<Drafts>();
    expectTypeOf<Omit<Right, "payload"> & { payload: { total: string } }>().not.toExtend<Drafts>();
    expectTypeOf<Omit<Right, "payload"> & { payload: { sku: string; by: number } }>().not.toExtend<Drafts>();
    expectTypeOf<Omit<Right, "type"> & { type: "OrderPlcaed" }>().not.toExtend<Drafts>();
    expectTypeOf<Omit<Right, "aggregateId">>().not.toExtend<Drafts>();
    expectTypeOf<Right & { aggregateType: "Customer" }>().not.toExtend<Drafts>();
    expectTypeOf<Right & { eventVersion: 3 }>().not.toExtend<Drafts>();
  });

  test("that the aggregate type may only be left out where the catalogue has it", () => {
    type Move = { aggregateId: string; type: "StockMoved"; payload: { sku: string; by: number } };
    expectTypeOf<Move>().not.toExtend<Drafts>();
    expectTypeOf<Move & { aggregateType: string; eventVersion: number }>().toExtend<Drafts>();
  });

  test("a wrong call from a right one", () => {
    // Never called: only the compiler reads it.
    const calls = (tx: FakeTx, db: FakeDb): void => {
      void typed.add(tx, { aggregateId: "7", type: "OrderPlaced", payload: { total: 1 } });
      void typed.add(tx, [
        { aggregateId: "7", type: "OrderPlaced", payload: { total: 1 } },
        { aggregateType: "Stock", aggregateId: "a", type: "StockMoved", payload: { sku: "a", by: 1 } },
      ]);
      // @ts-expect-error misspelt
      void typed.add(tx, { aggregateId: "7", type: "OrderPlcaed", payload: { total: 1 } });
      // @ts-expect-error wrong payload
      void typed.add(tx, { aggregateId: "7", type: "OrderPlaced", payload: { total: "1" } });
      // @ts-expect-error unknown field
      void typed.add(tx, { aggregateId: "7", type: "OrderPlaced", payload: { total: 1 }, availbleAt: new Date() });
      // @ts-expect-error unknown field in a list
      void typed.add(tx, [{ aggregateId: "7", type: "OrderPlaced", payload: { total: 1 }, availbleAt: new Date() }]);
      // @ts-expect-error neither a draft nor a list
      void untyped.add(tx, "OrderPlaced");
      // @ts-expect-error no transaction
      void typed.add(db, { aggregateId: "7", type: "OrderPlaced", payload: { total: 1 } });
      // @ts-expect-error wrong payload in a buffer
      void typed.transaction(db, (_tx, buffer) => buffer.add({ aggregateId: "7", type: "OrderPlaced", payload: {} }));
    };
    expectTypeOf(calls).toBeFunction();
  });
});

describe("what comes back", () => {
  test("is one Added for a draft, and a list for a list", () => {
    const calls = (tx: FakeTx, draft: Draft) => ({ one: untyped.add(tx, draft), many: untyped.add(tx, [draft]) });
    expectTypeOf(calls).returns.toEqualTypeOf<{ one: Promise<Added>; many: Promise<readonly Added[]> }>();
  });

  test("is either, for what may be either, and follows a function's own type parameter", () => {
    const calls = (tx: FakeTx, either: Draft | Draft[]) => untyped.add(tx, either);
    expectTypeOf(calls).returns.toEqualTypeOf<Promise<Added | readonly Added[]>>();
    const through = <D extends Draft>(tx: FakeTx, draft: D, drafts: readonly D[]): [Promise<Added>, Promise<readonly Added[]>] => [
      untyped.add(tx, draft),
      untyped.add(tx, drafts),
    ];
    expectTypeOf(through).toBeFunction();
    // eslint-disable-next-line @typescript-eslint/no-explicit-any
    expectTypeOf<ReturnType<typeof untyped.add<any>>>().toEqualTypeOf<Promise<Added>>();
  });

  test("is what the transaction's work gives", () => {
    const calls = (db: FakeDb) => ({
      now: untyped.transaction(db, (tx) => tx.rows.length),
      later: untyped.transaction(db, async (tx) => tx.open),
    });
    expectTypeOf(calls).returns.toEqualTypeOf<{ now: Promise<number>; later: Promise<boolean> }>();
  });
});

describe("the handle", () => {
  test("is the store's, or what `tx` takes", () => {
    const wrapped = createOutbox({ store, tx: (orm: { readonly session: FakeTx }) => orm.session });
    expectTypeOf(untyped.add).parameter(0).toEqualTypeOf<FakeTx>();
    expectTypeOf(wrapped.add).parameter(0).toEqualTypeOf<{ readonly session: FakeTx }>();
  });
});

describe("what a subscriber reads", () => {
  const stored = defineEvents({
    Everything: z.object({
      at: z.date(),
      parsed: z.string().transform((text) => new Date(text)),
      currency: z.string().default("EUR"),
      note: z.string().optional(),
      tags: z.array(z.union([z.string(), z.undefined()])),
      pair: z.tuple([z.number(), z.date()]),
      kind: z.enum(["a", "b"]),
      nested: z.object({ due: z.date().nullable() }),
      extra: z.record(z.string(), z.unknown()),
    }),
    Plain: z.string(),
  });

  test("is what JSON made of the schema's output", () => {
    expectTypeOf(stored).toHaveProperty("Everything");
    type Payload = PayloadOf<typeof stored, "Everything">;
    expectTypeOf<Payload>().toEqualTypeOf<{
      at: string;
      parsed: string;
      currency: string;
      note?: string | undefined;
      tags: (string | null)[];
      pair: [number, string];
      kind: "a" | "b";
      nested: { due: string | null };
      extra: { [key: string]: unknown };
    }>();
    expectTypeOf<PayloadOf<typeof stored, "Plain">>().toEqualTypeOf<string>();
  });

  test("is the same type by every library, and bytes where the schema says bytes", () => {
    expectTypeOf<PayloadOf<Events, "OrderPlaced">>().toEqualTypeOf<{ total: number; currency: string }>();
    expectTypeOf<PayloadOf<Events, "StockMoved">>().toEqualTypeOf<{ sku: string; by: number }>();
    expectTypeOf<PayloadOf<Events, "MailSent">>().toEqualTypeOf<{ to: string; cc?: string }>();
    expectTypeOf<PayloadOf<Events, "Blob">>().toEqualTypeOf<Uint8Array>();
  });

  test("types handlers by event type", () => {
    type Handlers = { [Type in keyof Events]?: (event: { readonly payload: PayloadOf<Events, Type> }) => void };
    const handlers: Handlers = { StockMoved: ({ payload }) => expectTypeOf(payload.by).toEqualTypeOf<number>() };
    expectTypeOf(handlers).toExtend<Handlers>();
  });
});
