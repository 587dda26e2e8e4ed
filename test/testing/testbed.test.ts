import { AssertionError } from "node:assert";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { defineEvents } from "../../src/outbox/catalogue.ts";
import { defaultDriver } from "../../src/drivers/sqlite/driver.ts";
import type { MemoryTx } from "../../src/stores/memory/index.ts";
import { sqlite, type SqliteDatabase } from "../../src/stores/sqlite/index.ts";
import { fatal } from "../../src/subscriber/fatal.ts";
import { createTestbed, manualClock, type SubscriberUnderTest, type Testbed } from "../../src/testing/index.ts";

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const clean of cleanups.splice(0).reverse()) await clean();
});

const placed = (aggregateId: string, total = 1) => ({ aggregateType: "Order", aggregateId, type: "OrderPlaced", payload: { total } });

/** The message of the AssertionError that `work` fails with. */
async function failure(work: Promise<unknown>): Promise<string> {
  const error: unknown = await work.then(
    () => null,
    (error: unknown) => error,
  );
  expect(error).toBeInstanceOf(AssertionError);
  return (error as AssertionError).message;
}

const add = <Db, Tx>(t: Testbed<Db, Tx>, ...ids: readonly string[]): Promise<void> =>
  t.transaction((_, events) => events.add(ids.map((id) => placed(id))));

describe("assertAdded", () => {
  test("passes for exactly these events, and gives what the work gives", async () => {
    const t = createTestbed();
    await add(t, "before");
    const value = await t.assertAdded(
      () =>
        t.transaction((tx, events) => {
          tx.table("orders").set("o-1", 42);
          events.add([placed("o-1", 42), { ...placed("o-1"), type: "OrderPaid", headers: { tenant: "a" } }]);
          return "done";
        }),
      [
        { type: "OrderPlaced", aggregateType: "Order", aggregateId: "o-1", payload: { total: 42, note: undefined } },
        { type: "OrderPaid", headers: { tenant: "a" }, eventVersion: 1 },
      ],
    );
    expect(value).toBe("done");
    expect((await t.added()).map(({ type, aggregateId, payload }) => [type, aggregateId, payload])).toEqual([
      ["OrderPlaced", "before", { total: 1 }],
      ["OrderPlaced", "o-1", { total: 42 }],
      ["OrderPaid", "o-1", { total: 1 }],
    ]);
  });

  test("fails for another payload, for one too few, one too many and another order, and says which", async () => {
    const t = createTestbed();
    const both = (): Promise<void> => add(t, "a", "b");
    expect(await failure(t.assertAdded(both, [{ type: "OrderPlaced", aggregateId: "a" }]))).toBe(
      "1 event was expected to be added, not 2: OrderPlaced of Order a, OrderPlaced of Order b",
    );
    expect(await failure(t.assertAdded(() => undefined, [{ type: "OrderPlaced" }]))).toBe("1 event was expected to be added, not 0");
    expect(
      await failure(
        t.assertAdded(both, [
          { type: "OrderPlaced", aggregateId: "b" },
          { type: "OrderPlaced", aggregateId: "a" },
        ]),
      ),
    ).toBe('other events were added than expected: aggregateId of the first is "a", not "b"');
    expect(await failure(t.assertAdded(() => add(t, "c"), [{ type: "OrderPlaced", payload: { total: 2 } }]))).toBe(
      'other events were added than expected: payload of the first is {"total":1}, not {"total":2}',
    );
  });

  test("carries both sides for the runner's difference", async () => {
    const t = createTestbed();
    await expect(t.assertAdded(() => add(t, "a"), [{ type: "OrderPlaced", aggregateId: "b" }])).rejects.toMatchObject({
      actual: [{ type: "OrderPlaced", aggregateId: "a" }],
      expected: [{ type: "OrderPlaced", aggregateId: "b" }],
    });
  });

  test("compares bytes as bytes", async () => {
    const t = createTestbed();
    const bytes = { ...placed("a"), payload: Buffer.from([1, 2, 255]) };
    await t.assertAdded(
      () => t.transaction((_, events) => events.add(bytes)),
      [{ type: "OrderPlaced", payload: Uint8Array.of(1, 2, 255) }],
    );
  });

  test("does not count what was rolled back, nor what an idempotency key kept out", async () => {
    const t = createTestbed();
    const once = { ...placed("a"), idempotencyKey: "k" };
    await t.transaction((_, events) => events.add(once));
    await t.assertNothingAdded(() => t.transaction((_, events) => events.add(once)));
    await t.assertNothingAdded(() =>
      expect(
        t.transaction((_, events) => {
          events.add(placed("b"));
          throw new Error("no");
        }),
      ).rejects.toThrow("no"),
    );
  });

  test("finds more events than one page holds", async () => {
    const t = createTestbed();
    const ids = Array.from({ length: 1_234 }, (_, i) => `o-${i}`);
    await t.assertAdded(
      () => add(t, ...ids),
      ids.map((aggregateId) => ({ type: "OrderPlaced", aggregateId })),
    );
  });

  test("assertNothingAdded fails for anything since the beginning", async () => {
    const t = createTestbed();
    await t.assertNothingAdded();
    await add(t, "a");
    expect(await failure(t.assertNothingAdded())).toBe("0 events were expected to be added, not 1: OrderPlaced of Order a");
    await t.assertNothingAdded(() => undefined);
  });
});

describe("publishing", () => {
  test("takes every event that is due to its topic, and no other", async () => {
    const t = createTestbed({ relay: { route: "{aggregate_type}.{event_type}" } });
    await t.transaction((_, events) =>
      events.add([placed("a"), { ...placed("b"), availableAt: new Date(t.clock.now() + 60_000) }, { ...placed("a"), type: "OrderPaid" }]),
    );
    expect(await t.publishAll()).toMatchObject({ published: 2 });
    await t.assertPublished("Order.OrderPlaced", [{ type: "OrderPlaced", aggregateId: "a" }]);
    await t.assertPublished("Order.OrderPaid", [{ type: "OrderPaid", aggregateId: "a" }]);
    await t.clock.advance(60_000);
    expect(await t.publishAll()).toMatchObject({ published: 1 });
    expect(await failure(t.assertPublished("Order.OrderPlaced", [{ type: "OrderPlaced" }]))).toMatch(
      /^1 event was expected to be published to Order\.OrderPlaced, not 2/,
    );
  });

  test("a relay that dies before it settles leaves every message twice, and each of them has one effect", async () => {
    const t = createTestbed();
    await add(t, "a", "b");
    await t.crashBeforeSettle();
    expect((await t.published("order.events")).map(({ aggregateId }) => aggregateId).sort()).toEqual(["a", "a", "b", "b"]);
    expect(await t.deliver(counting(t).subscriber)).toMatchObject({ handled: 2, seen: 2 });
    expect(await failure(t.crashBeforeSettle())).toMatch(/nothing is proven/);
  });

  test("what cannot be published fails a delivery instead of being passed over", async () => {
    const t = createTestbed({
      relay: {
        route: () => {
          throw new Error("no idea");
        },
      },
    });
    await add(t, "a");
    expect(await failure(t.deliver(counting(t).subscriber))).toMatch(/could not publish everything: OrderPlaced of a: .*no idea/);
  });
});

/** A subscriber that counts through its transaction, and beside it. */
function counting(t: Testbed<unknown, MemoryTx>) {
  let beside = 0;
  const subscriber: SubscriberUnderTest<MemoryTx> = {
    consumer: "stock",
    handlers: {
      OrderPlaced(event, tx) {
        beside++;
        const stock = tx.table<string, number>("stock");
        stock.set(event.aggregateId, (stock.get(event.aggregateId) ?? 0) + 1);
      },
    },
  };
  const within = (): unknown =>
    Object.fromEntries((t as Testbed<{ table(name: string): ReadonlyMap<string, number> }, MemoryTx>).db.table("stock"));
  return { subscriber, beside: () => beside, within };
}

describe("delivering", () => {
  test("gives a subscriber each event once, also over several calls", async () => {
    const t = createTestbed();
    const stock = counting(t);
    expect(await t.deliver(stock.subscriber)).toMatchObject({ handled: 0 });
    await add(t, "a", "b");
    expect(await t.deliver(stock.subscriber)).toEqual({ handled: 2, seen: 0, failed: 0, ignored: 0, parked: [] });
    await add(t, "c");
    await t.transaction((_, events) => events.add({ ...placed("c"), type: "OrderPaid" }));
    expect(await t.deliver(stock.subscriber)).toEqual({ handled: 1, seen: 0, failed: 0, ignored: 1, parked: [] });
    expect(stock.within()).toEqual({ a: 1, b: 1, c: 1 });
    expect(await t.deliver({ ...stock.subscriber, consumer: "another" })).toMatchObject({ handled: 3 });
  });

  test("repeats failed attempts without real waiting", async () => {
    const t = createTestbed();
    let attempts = 0;
    await add(t, "a");
    const report = await t.deliver({
      consumer: "stock",
      handlers: {
        OrderPlaced() {
          if (++attempts < 5) throw new Error("not yet");
        },
      },
    });
    expect(report).toMatchObject({ handled: 1, failed: 4 });
    expect(t.clock.now()).toBeGreaterThan(Date.UTC(2030, 0, 1) + 120_000);
  });

  test("fails when the subscriber gives up, and names event and reason", async () => {
    const t = createTestbed();
    await add(t, "a");
    const handlers = {
      OrderPlaced: (): never => {
        throw new Error("boom");
      },
    };
    expect(await failure(t.deliver({ consumer: "stock", handlers }))).toBe(
      "stock gave up on OrderPlaced of Order a after 5 attempts: boom",
    );
  });

  test("assertParked passes for exactly the events that the subscriber gives up on", async () => {
    const t = createTestbed();
    await add(t, "a", "bad", "b");
    const handlers = {
      OrderPlaced: ({ aggregateId }: { aggregateId: string }): void => {
        if (aggregateId === "bad") throw fatal(new Error("no such order"));
      },
    };
    const deadTopic = "{topic}.dead";
    const report = await t.assertParked({ consumer: "stock", handlers, deadTopic }, [{ type: "OrderPlaced", aggregateId: "bad" }]);
    expect(report).toMatchObject({ handled: 2, parked: [{ attempts: 1, error: "no such order" }] });
    expect(await t.published("order.events.dead")).toMatchObject([{ aggregateId: "bad" }]);
    expect(await failure(t.assertParked({ consumer: "other", handlers }, []))).toMatch(/^0 events were expected to be parked, not 1/);
  });

  test("a handler's own events are added with its effect, and are there for the next delivery", async () => {
    const t = createTestbed();
    await add(t, "a");
    const shipping: SubscriberUnderTest<MemoryTx> = {
      consumer: "shipping",
      topics: ["order.events"],
      handlers: {
        OrderPlaced: async (event, tx) =>
          void (await t.outbox.add(tx, { aggregateType: "Parcel", aggregateId: event.aggregateId, type: "ParcelSent", payload: {} })),
      },
    };
    await t.assertAdded(() => t.crashBeforeCommit(shipping), [{ type: "ParcelSent", aggregateId: "a" }]);
    expect(await t.deliver({ consumer: "mail", topics: ["parcel.events"], handlers: { ParcelSent: () => undefined } })).toMatchObject({
      handled: 1,
    });
  });

  test("a handler may wait for something real without meeting its time limit", async () => {
    const t = createTestbed();
    await add(t, "a");
    const handlers = { OrderPlaced: () => new Promise<void>((resolve) => setTimeout(resolve, 50)) };
    expect(await t.deliver({ consumer: "slow", handlers, handlerTimeoutMs: 5_000 })).toMatchObject({ handled: 1, failed: 0 });
  });

  test("payloads are checked and typed by the subscriber's catalogue", async () => {
    const events = defineEvents({ OrderPlaced: { schema: z.object({ total: z.number() }), aggregateType: "Order" } });
    const t = createTestbed({ events });
    let total = 0;
    await t.assertAdded(
      () => t.transaction((_, events) => events.add({ aggregateId: "a", type: "OrderPlaced", payload: { total: 7 } })),
      [{ type: "OrderPlaced", aggregateType: "Order" }],
    );
    await t.deliver({ consumer: "stock", events, handlers: { OrderPlaced: (event) => void (total += event.payload.total) } });
    expect(total).toBe(7);
    // @ts-expect-error not in the catalogue
    expect(await failure(t.assertAdded(() => undefined, [{ type: "OrderPlced" }]))).toMatch(/not 0/);
  });
});

describe("a fault", () => {
  test("deliverTwice: a second delivery does not reach the handler", async () => {
    const t = createTestbed();
    const stock = counting(t);
    await add(t, "a", "b");
    expect(await t.deliverTwice(stock.subscriber)).toMatchObject({ handled: 2, seen: 2 });
    expect([stock.beside(), stock.within()]).toEqual([2, { a: 1, b: 1 }]);
  });

  test("crashBeforeAck: what was applied is not applied again by the next process", async () => {
    const t = createTestbed();
    const stock = counting(t);
    await add(t, ...Array.from({ length: 400 }, (_, i) => `o-${i}`)); // more than the prefetch
    expect(await t.crashBeforeAck(stock.subscriber)).toMatchObject({ handled: 400, seen: 256 });
    expect(stock.beside()).toBe(400);
  });

  test("crashBeforeCommit: the transaction's work is there once, and work beside it is found out", async () => {
    const t = createTestbed();
    const stock = counting(t);
    await add(t, "a", "b");
    expect(await t.crashBeforeCommit({ ...stock.subscriber, retry: { delaysMs: [] } })).toMatchObject({ handled: 2, failed: 0 });
    expect([stock.beside(), stock.within()]).toEqual([4, { a: 1, b: 1 }]);
  });

  test.each(["deliverTwice", "crashBeforeAck", "crashBeforeCommit"] as const)("%s fails when there was nothing to handle", async (name) => {
    const t = createTestbed();
    expect(await failure(t[name](counting(t).subscriber))).toMatch(/^stock handled no event/);
    await t.transaction((_, events) => events.add({ ...placed("a"), type: "OrderPaid" }));
    expect(await failure(t[name](counting(t).subscriber))).toMatch(/^stock handled no event/);
  });
});

test("over a database of one's own, the same calls hold", async () => {
  const folder = mkdtempSync(join(tmpdir(), "waybill-testbed-"));
  cleanups.push(() => rmSync(folder, { recursive: true, force: true }));
  const path = join(folder, "shop.db");
  const clock = manualClock(Date.UTC(2031, 0, 1));
  const store = sqlite({ path, clock });
  cleanups.push(() => store[Symbol.asyncDispose]());
  await store.schema.migrate();
  const db = (await defaultDriver())(path);
  cleanups.push(() => db.close());
  db.exec("CREATE TABLE parcels (order_id TEXT)");

  const t = createTestbed({ store, db, clock });
  const shipping: SubscriberUnderTest<SqliteDatabase> = {
    consumer: "shipping",
    handlers: { OrderPlaced: (event, tx) => void tx.prepare("INSERT INTO parcels VALUES (?)").run(event.aggregateId) },
  };
  const parcels = (): unknown[] =>
    db
      .prepare("SELECT order_id FROM parcels ORDER BY order_id")
      .all()
      .map((row) => (row as { order_id: string }).order_id);
  await t.assertAdded(() => add(t, "a"), [{ type: "OrderPlaced", aggregateId: "a", payload: { total: 1 } }]);
  expect(await t.crashBeforeSettle()).toMatchObject({ published: 1 });
  expect(await t.crashBeforeAck(shipping)).toMatchObject({ handled: 1, seen: 3 });
  await add(t, "b");
  expect(await t.crashBeforeCommit(shipping)).toMatchObject({ handled: 1 });
  await add(t, "c");
  expect(await t.deliverTwice(shipping)).toMatchObject({ handled: 1, seen: 1 });
  expect(parcels()).toEqual(["a", "b", "c"]);
});

test("two testbeds of the same calls are alike to the last id", async () => {
  const ids = async (): Promise<unknown> => {
    const t = createTestbed();
    await add(t, "a", "b");
    return (await t.added()).map(({ id, createdAt }) => [id, createdAt]);
  };
  expect(await ids()).toEqual(await ids());
});

test("options that mean nothing are refused", () => {
  expect(() => createTestbed({ route: "x" } as object)).toThrow(/no option "route"/);
  expect(() => createTestbed({ db: {} } as object)).toThrow(/store and db together/);
});
