import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { turn } from "../../src/core/clock.ts";
import { WaybillError, type ErrorCode } from "../../src/core/errors.ts";
import type { Draft } from "../../src/core/event.ts";
import { seededRandom } from "../../src/core/random.ts";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";
import { fakeStore, type FakeTx } from "./fake-store.ts";

const draft = (aggregateId: string, more: Partial<Draft> = {}): Draft => ({
  aggregateType: "Order",
  aggregateId,
  type: "OrderPlaced",
  payload: { n: aggregateId },
  ...more,
});
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

describe("add", () => {
  test("adds one event and says under which id", async () => {
    const { store, asynchronously, committed } = fakeStore({ synchronous: false });
    const outbox = createOutbox({ store, clock: manualClock(0x018f_2f65_1234), random: seededRandom(1) });
    const added = await asynchronously((tx) => outbox.add(tx, draft("1")));
    expect(added).toEqual({ id: committed[0]!.id, duplicate: false });
    expect(added.id).toMatch(/^018f2f65-1234-7/);
    expect(committed).toMatchObject([{ aggregateType: "Order", aggregateId: "1", type: "OrderPlaced", payload: '{"n":"1"}' }]);
  });

  test.each([true, false])("adds many in one statement and in their order (synchronous: %s)", async (synchronous) => {
    const { store, asynchronously, committed, log } = fakeStore({ synchronous });
    const outbox = createOutbox({ store });
    const added = await asynchronously((tx) => outbox.add(tx, [draft("1"), draft("2"), draft("3")]));
    expect(added.map(({ id }) => id)).toEqual(committed.map(({ id }) => id));
    expect(log.filter((entry) => entry !== "wake")).toEqual(["begin", "append 1 2 3", "commit"]);
  });

  test("tells that an idempotency key had been used, and whose id it has", async () => {
    const { store, asynchronously, committed } = fakeStore({ synchronous: false });
    const outbox = createOutbox({ store });
    const first = await asynchronously((tx) => outbox.add(tx, draft("1", { idempotencyKey: "k" })));
    const again = await asynchronously((tx) => outbox.add(tx, [draft("2"), draft("1", { idempotencyKey: "k" })]));
    expect(again[1]).toEqual({ id: first.id, duplicate: true });
    expect(committed).toHaveLength(2);
  });

  test("of no drafts touches nothing", async () => {
    const { store, asynchronously, log } = fakeStore({ synchronous: false });
    const outbox = createOutbox({ store });
    expect(await asynchronously((tx) => outbox.add(tx, []))).toEqual([]);
    expect(log).toEqual(["begin", "commit"]);
  });

  test("writes through the handle that `tx` makes of the user's", async () => {
    const { store, asynchronously, committed } = fakeStore({ synchronous: false });
    const outbox = createOutbox({ store, tx: (orm: { readonly session: Parameters<typeof store.writer.append>[0] }) => orm.session });
    await asynchronously((session) => outbox.add({ session }, draft("1")));
    expect(committed).toHaveLength(1);
  });

  test("uses the given newId", async () => {
    const { store, asynchronously } = fakeStore({ synchronous: false });
    const outbox = createOutbox({ store, newId: () => "01ARZ3NDEKTSV4RRFFQ69G5FAV" });
    expect(await asynchronously((tx) => outbox.add(tx, draft("1")))).toMatchObject({ id: "01ARZ3NDEKTSV4RRFFQ69G5FAV" });
  });

  test("wakes the relay once, soon after, where nobody tells when the transaction ends", async () => {
    const { store, asynchronously, log } = fakeStore({ synchronous: false });
    const clock = manualClock();
    const outbox = createOutbox({ store, clock });
    for (const id of ["1", "2"]) await asynchronously((tx) => outbox.add(tx, draft(id)));
    expect(log).toEqual(["begin", "append 1", "commit", "begin", "append 2", "commit"]);
    await clock.advance(10);
    expect(log.slice(6)).toEqual(["wake"]);
  });

  test("wakes the relay when the transaction has ended, where the client tells", async () => {
    const { store, asynchronously, log } = fakeStore({ synchronous: false });
    const ends: (() => void)[] = [];
    const writer = { ...store.writer, onEnd: (_: unknown, then: () => void) => ends.push(then) > 0 };
    const outbox = createOutbox({ store: { ...store, writer } });
    await asynchronously((tx) => outbox.add(tx, draft("1")));
    for (const end of ends) end();
    expect(log).toEqual(["begin", "append 1", "commit", "wake"]);
  });

  test("a failed insert rejects, and wakes nobody", async () => {
    const { store, asynchronously, committed, log } = fakeStore({ synchronous: false, failAppend: new Error("disk full") });
    const outbox = createOutbox({ store });
    await expect(asynchronously((tx) => outbox.add(tx, draft("1")))).rejects.toThrow("disk full");
    expect(committed).toEqual([]);
    expect(log).toEqual(["begin", "rollback"]);
  });

  test("keeps bytes as they were when they were given", async () => {
    const { store, asynchronously, committed } = fakeStore({ synchronous: false });
    const outbox = createOutbox({ store });
    await asynchronously(async (tx) => {
      const payload = Buffer.from("abc");
      const added = outbox.add(tx, draft("1", { payload }));
      payload.fill(0);
      await added;
    });
    expect(committed[0]!.payload).toEqual(new Uint8Array([97, 98, 99]));
  });
});

describe("add in a synchronous transaction, in which nobody awaits", () => {
  test("has inserted when it returns, and the commit keeps it", () => {
    const { store, synchronously, committed, log } = fakeStore({ synchronous: true });
    const outbox = createOutbox({ store });
    synchronously((tx) => void outbox.add(tx, [draft("1"), draft("2")]));
    expect(committed.map((row) => row.aggregateId)).toEqual(["1", "2"]);
    expect(log).toEqual(["begin", "append 1 2", "wake", "commit"]);
  });

  const cases: [string, () => unknown, ErrorCode][] = [
    ["a draft that is no object", () => null, "INVALID_DRAFT"],
    ["an empty aggregate id", () => draft(""), "INVALID_DRAFT"],
    ["an unknown field", () => ({ ...draft("1"), paylod: 1 }), "INVALID_DRAFT"],
    ["a header that ends its line", () => draft("1", { headers: { a: "b\r\nc" } }), "INVALID_HEADER"],
    ["a reserved header", () => draft("1", { headers: { "ce-id": "x" } }), "RESERVED_HEADER"],
    ["a BigInt", () => draft("1", { payload: 1n }), "PAYLOAD_NOT_SERIALISABLE"],
    ["a payload that was not awaited", () => draft("1", { payload: Promise.resolve(1) }), "PAYLOAD_NOT_SERIALISABLE"],
    ["a payload over the limit", () => draft("1", { payload: "x".repeat(99) }), "PAYLOAD_TOO_LARGE"],
    ["a hole in the list", () => new Array<Draft>(1), "INVALID_DRAFT"],
  ];
  test.each(cases)("throws for %s, so that everything is rolled back", (_, make, code) => {
    const { store, synchronously, committed, log } = fakeStore({ synchronous: true });
    const outbox = createOutbox({ store, maxPayloadBytes: 100 });
    const run = () =>
      synchronously((tx) => {
        void outbox.add(tx, draft("before"));
        void outbox.add(tx, make() as Draft);
      });
    expect(run).toThrow(refused(code));
    expect(committed).toEqual([]);
    expect(log.at(-1)).toBe("rollback");
  });

  test("writes none of a list of which one is refused", () => {
    const { store, synchronously, log } = fakeStore({ synchronous: true });
    const outbox = createOutbox({ store });
    expect(() => synchronously((tx) => void outbox.add(tx, [draft("1"), draft(""), draft("3")]))).toThrow(refused("INVALID_DRAFT"));
    expect(log).toEqual(["begin", "rollback"]);
  });

  test("throws what the writer throws", () => {
    const { store, synchronously, committed } = fakeStore({ synchronous: true });
    const outbox = createOutbox({ store });
    let ended: FakeTx | null = null;
    synchronously((tx) => void (ended = tx));
    expect(() => outbox.add(ended!, draft("1"))).toThrow(refused("NO_TRANSACTION"));
    expect(committed).toEqual([]);
  });

  test.each([null, undefined])("throws for %s in place of a transaction", (tx) => {
    const { store } = fakeStore({ synchronous: true });
    const outbox = createOutbox({ store, tx: () => expect.unreachable() });
    expect(() => outbox.add(tx as never, draft("1"))).toThrow(
      refused("NO_TRANSACTION", /was given (null|undefined) in place of a transaction/),
    );
  });
});

describe.each([true, false])("transaction (synchronous: %s)", (synchronous) => {
  test("inserts what was added as the last statement, commits, then wakes the relay", async () => {
    const { store, db, log, committed } = fakeStore({ synchronous });
    const outbox = createOutbox({ store });
    const result = await outbox.transaction(db, async (tx, events) => {
      events.add(draft("1"));
      log.push("work");
      events.add([draft("2"), draft("3")]);
      await turn();
      log.push("more work");
      events.add([]);
      expect(tx.open).toBe(true);
      return "done";
    });
    expect(result).toBe("done");
    expect(log).toEqual(["begin", "work", "more work", "append 1 2 3", "commit", "wake"]);
    expect(committed).toHaveLength(3);
  });

  test("without events inserts nothing and wakes nobody", async () => {
    const { store, db, log } = fakeStore({ synchronous });
    expect(await createOutbox({ store }).transaction(db, () => 7)).toBe(7);
    expect(log).toEqual(["begin", "commit"]);
  });

  test.each([
    [
      "throws",
      () => {
        throw new Error("no stock");
      },
    ],
    ["rejects", () => Promise.reject(new Error("no stock"))],
  ])("whose work %s is rolled back", async (_, fail: () => Promise<void>) => {
    const { store, db, log, committed } = fakeStore({ synchronous });
    const run = createOutbox({ store }).transaction(db, (_tx, events) => {
      events.add(draft("1"));
      return fail();
    });
    await expect(run).rejects.toThrow("no stock");
    expect(committed).toEqual([]);
    expect(log).toEqual(["begin", "rollback"]);
  });

  test("refuses a wrong event where it is added, and goes on without it if the work does", async () => {
    const { store, db, committed } = fakeStore({ synchronous });
    await createOutbox({ store }).transaction(db, (_tx, events) => {
      expect(() => events.add([draft("0"), draft("")])).toThrow(refused("INVALID_DRAFT"));
      events.add(draft("1"));
    });
    expect(committed.map((row) => row.aggregateId)).toEqual(["1"]);
  });

  test("that fails to insert or to commit rejects and wakes nobody", async () => {
    for (const fault of [{ failAppend: new Error("disk full") }, { failCommit: new WaybillError("COMMIT_UNKNOWN", "connection lost") }]) {
      const { store, db, log, committed } = fakeStore({ synchronous, ...fault });
      const run = createOutbox({ store }).transaction(db, (_tx, events) => events.add(draft("1")));
      await expect(run).rejects.toThrow(Object.values(fault)[0]);
      expect(committed).toEqual([]);
      expect(log).not.toContain("wake");
    }
  });

  test("takes no event after it has ended, well or badly", async () => {
    const { store, db, committed } = fakeStore({ synchronous });
    const outbox = createOutbox({ store });
    const kept: { add(given: Draft): void }[] = [];
    await outbox.transaction(db, (_tx, events) => void kept.push(events));
    await outbox.transaction(db, async (_tx, events) => void kept.push(events));
    await expect(
      outbox.transaction(db, (_tx, events) => {
        kept.push(events);
        throw new Error("no");
      }),
    ).rejects.toThrow("no");
    expect(kept).toHaveLength(3);
    for (const events of kept) expect(() => events.add(draft("1"))).toThrow(refused("NO_TRANSACTION", /after its transaction had ended/));
    expect(committed).toEqual([]);
  });

  test("takes no event that comes while the others are being inserted", async () => {
    const { store, db, committed } = fakeStore({ synchronous });
    let late: unknown = null;
    await createOutbox({ store }).transaction(db, (_tx, events) => {
      events.add(draft("1"));
      queueMicrotask(() => {
        try {
          events.add(draft("late"));
        } catch (error) {
          late = error;
        }
      });
    });
    expect(late).toEqual(refused("NO_TRANSACTION"));
    expect(committed.map((row) => row.aggregateId)).toEqual(["1"]);
  });

  test("waits for a query that only runs when it is awaited", async () => {
    const { store, db, log } = fakeStore({ synchronous });
    const query = {
      then(resolve: (value: string) => void): void {
        log.push("query");
        resolve("rows");
      },
    } as unknown as Promise<string>;
    const result = await createOutbox({ store }).transaction(db, (_tx, events) => {
      events.add(draft("1"));
      return query;
    });
    expect(result).toBe("rows");
    expect(log).toEqual(["begin", "query", "append 1", "commit", "wake"]);
  });
});

test("a transaction takes more events than a call takes arguments", async () => {
  const { store, db } = fakeStore({ synchronous: true });
  let appended = 0;
  const append: typeof store.writer.append = (_tx, rows) => {
    appended = rows.length;
    return Promise.resolve([]);
  };
  const outbox = createOutbox({ store: { ...store, writer: { synchronous: true, append } }, newId: () => "01ARZ3NDEKTSV4RRFFQ69G5FAV" });
  await outbox.transaction(db, (_tx, events) => events.add(new Array<Draft>(150_000).fill(draft("1"))));
  expect(appended).toBe(150_000);
});

describe("a synchronous transaction", () => {
  test("is over before anything else can run", async () => {
    const { store, db, log } = fakeStore({ synchronous: true });
    const outbox = createOutbox({ store });
    const running = outbox.transaction(db, (_tx, events) => {
      queueMicrotask(() => log.push("other work on the handle"));
      log.push("work");
      events.add(draft("1"));
      return 5;
    });
    expect(log).toEqual(["begin", "work", "append 1", "commit"]);
    expect(await running).toBe(5);
    expect(log).toEqual(["begin", "work", "append 1", "commit", "other work on the handle", "wake"]);
  });
});

describe("createOutbox refuses", () => {
  const { store } = fakeStore({ synchronous: true });
  test.each<[string, object, RegExp]>([
    ["a misspelt option", { store, maxPayloadByte: 1 }, /createOutbox has no option "maxPayloadByte": did you mean maxPayloadBytes\?/],
    ["no store", {}, /createOutbox needs a store.*, not undefined/],
    ["something else as a store", { store: "sqlite:app.db" }, /needs a store.*, not "sqlite:app.db"/],
    ["a limit of 0", { store, maxPayloadBytes: 0 }, /maxPayloadBytes must be a whole number/],
    ["a limit that is no number", { store, maxPayloadBytes: "1kb" }, /maxPayloadBytes .* not "1kb"/],
    ["a catalogue that is none", { store, events: { OrderPlaced: 7 } }, /event "OrderPlaced" needs a schema .*, not 7/],
  ])("%s", (_, options, message) => {
    expect(() => createOutbox(options as Parameters<typeof createOutbox>[0])).toThrow(refused("INVALID_OPTION", message));
  });
});
