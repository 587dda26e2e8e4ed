import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Begins, Handle, SqlWriter } from "../../src/contracts/handle.ts";
import type { Store } from "../../src/contracts/store.ts";
import type { ErrorCode } from "../../src/core/errors.ts";
import type { Draft } from "../../src/core/event.ts";
import { createOutbox, type Outbox } from "../../src/outbox/outbox.ts";
import { draft } from "../support/outbox.ts";
import type { Adapter, Opened } from "./adapter.ts";

export type AnyHandle = Handle<unknown, unknown, Begins>;
type AnyOutbox = Outbox<unknown, unknown>;

/** A database with tables of its own for one adapter. */
export interface Ground {
  /** Where the library finds it. */
  readonly place: string;
  readonly store: { readonly writer: SqlWriter } & Pick<Store<unknown>, "operator" | "wake">;
  /** The store in the library's transactions; not on a database whose store has handlers in its own. */
  through?(handle: AnyHandle, db: unknown): Store<unknown>;
  /** A statement of a user's own, by another way than the library. */
  execute(sql: string): Promise<unknown>;
  /** A table with one column of text. */
  readonly effects: string;
  readEffects(): Promise<readonly string[]>;
  close(): Promise<void>;
}

export const refused = (code: ErrorCode): Error => expect.objectContaining({ code }) as Error;

/** What an outbox promises, in the transactions of any library. */
export function worksIn(adapter: Adapter, prepare: () => Promise<Ground>): void {
  const handle = adapter.handle as AnyHandle;

  describe(`${adapter.library} on ${adapter.database}`, () => {
    let ground: Ground;
    let library: Opened;
    let outbox: AnyOutbox;
    let asked: string[];
    beforeAll(async () => {
      ground = await prepare();
      library = await adapter.open(ground.place);
      outbox = createOutbox({ store: ground.store, tx: counting(handle, (sql) => asked.push(sql)) });
      asked = [];
    });
    afterAll(async () => {
      await library?.close();
      await ground?.close();
    });

    const stored = async (aggregateId: string): Promise<readonly string[]> => {
      const found = await ground.store.operator.list({ aggregateId, limit: 1_000 });
      return found.map(({ id }) => id).reverse();
    };
    const effect = async (tx: unknown, name: string): Promise<void> =>
      void (await library.run(tx, `INSERT INTO ${ground.effects} VALUES ('${name}')`));
    const hasEffect = async (name: string): Promise<boolean> => (await ground.readEffects()).includes(name);

    test("an event is kept with the commit", async () => {
      const event = draft("commit", 1);
      const added = await library.transaction(async (tx) => {
        await effect(tx, "commit");
        const one = await outbox.add(tx, event);
        expect(await stored("commit"), "before the commit").toEqual(adapter.database === "SQLite" ? expect.anything() : []);
        return one;
      });
      expect(added).toEqual({ id: event.id, duplicate: false });
      expect(await stored("commit")).toEqual([event.id]);
      expect(await hasEffect("commit")).toBe(true);
    });

    test("an event goes with the rollback", async () => {
      const failing = library.transaction(async (tx) => {
        await effect(tx, "rollback");
        await outbox.add(tx, draft("rollback", 1));
        throw new Error("no");
      });
      await expect(failing).rejects.toThrow("no");
      expect(await stored("rollback")).toEqual([]);
      expect(await hasEffect("rollback")).toBe(false);
    });

    test("an event inside a savepoint goes with its rollback, and the others stay", async () => {
      const [before, inside, kept, after] = [1, 2, 3, 4].map((n) => draft("savepoint", n)) as [Event, Event, Event, Event];
      await library.transaction(async (tx) => {
        await outbox.add(tx, before);
        const failing = library.savepoint(tx, async (inner) => {
          await outbox.add(inner, inside);
          throw new Error("no");
        });
        await expect(failing).rejects.toThrow("no");
        await library.savepoint(tx, async (inner) => void (await outbox.add(inner, kept)));
        await outbox.add(tx, after);
      });
      expect(await stored("savepoint")).toEqual([before.id, kept.id, after.id]);
    });

    test(`without a transaction, an event is ${adapter.refuses.none ? "refused" : "stored at once"}`, async () => {
      for (const [what, none] of Object.entries(library.none)) {
        const adding = (async () => outbox.add(none, draft("none", 1)))();
        if (adapter.refuses.none) await expect(adding, what).rejects.toThrow(refused("NO_TRANSACTION"));
        else await adding;
      }
      expect(await stored("none")).toHaveLength(adapter.refuses.none ? 0 : Object.keys(library.none).length);
    });

    test(`after its transaction, an event is ${adapter.refuses.ended ? "refused" : "stored at once"}`, async () => {
      let committed: unknown;
      let rolledBack: unknown;
      await library.transaction(async (tx) => void (await outbox.add((committed = tx), draft("in time", 1))));
      const failing = library.transaction(async (tx) => {
        await outbox.add((rolledBack = tx), draft("in time", 2));
        throw new Error("no");
      });
      await expect(failing).rejects.toThrow("no");
      for (const late of [committed, rolledBack]) {
        const adding = (async () => outbox.add(late, draft("late", 1)))();
        if (adapter.refuses.ended) await expect(adding).rejects.toThrow(refused("NO_TRANSACTION"));
        else await adding;
      }
      expect(await stored("late")).toHaveLength(adapter.refuses.ended ? 0 : 2);
    });

    test("a key adds once: in one call, in one transaction, and in the next", async () => {
      const key = { idempotencyKey: "clé 🔑 ?$1" };
      const first = draft("key", 1, key);
      const once = { id: first.id, duplicate: false };
      const again = { id: first.id, duplicate: true };
      await library.transaction(async (tx) => {
        expect(await outbox.add(tx, [first, draft("key", 2, key)])).toEqual([once, again]);
        expect(await outbox.add(tx, draft("key", 3, key))).toEqual(again);
      });
      const other = draft("key", 4);
      const added = await library.transaction((tx) => outbox.add(tx, [draft("key", 5, key), other]));
      expect(added).toEqual([again, { id: other.id, duplicate: false }]);
      expect(await stored("key")).toEqual([first.id, other.id]);
    });

    test("an id that is taken is refused in Waybill's words", async () => {
      const event = draft("taken", 1);
      await library.transaction((tx) => outbox.add(tx, event));
      const adding = library.transaction((tx) => outbox.add(tx, { ...draft("taken", 2), id: event.id }));
      const error = await adding.then(
        () => expect.unreachable(),
        (caught: unknown) => caught as Error,
      );
      expect(error).toMatchObject({ code: "INVALID_DRAFT" });
      expect(`${error.message} ${(error.cause as Error).message}`, "a payload has no place in a log").not.toContain('{"n"');
      expect(await stored("taken")).toEqual([event.id]);
    });

    test("every byte comes out as it went in", async () => {
      const bytes = Uint8Array.from({ length: 256 }, (_, n) => n);
      const words = "𝔘𝔫𝔦 🦉 \"quoted\" 'single' back\\slash ? $1 :name %s \n\t\u2028 \\u0000";
      const events = [
        draft("bytes", 1, { payload: bytes }),
        draft("bytes", 2, { payload: { words }, headers: { tenant: "ä🦉?$1" } }),
        draft("bytes", 3, { payload: new Uint8Array() }),
      ];
      await library.transaction((tx) => outbox.add(tx, events));
      const [first, second, third] = await Promise.all(events.map(({ id }) => ground.store.operator.show(id)));
      expect(new Uint8Array(first?.payload as Uint8Array)).toEqual(bytes);
      expect(second).toMatchObject({ payload: JSON.stringify({ words }), headers: { tenant: "ä🦉?$1" } });
      expect(new Uint8Array(third?.payload as Uint8Array)).toEqual(new Uint8Array());
    });

    test("many events are one statement, and keep their order", async () => {
      const events = Array.from({ length: 500 }, (_, n) => draft("many", n, { headers: { n: String(n) } }));
      asked = [];
      const added = await library.transaction((tx) => outbox.add(tx, events));
      expect(asked.filter(isOfTheWork)).toHaveLength(1);
      expect(added.map(({ id }) => id)).toEqual(events.map(({ id }) => id));
      expect(await stored("many")).toEqual(events.map(({ id }) => id));
    });

    describe("outbox.transaction", () => {
      test("begins the library's own, inserts last, and commits", async () => {
        const event = draft("own", 1);
        const result = await outbox.transaction(library.db, async (tx, events) => {
          events.add(event);
          await effect(tx, "own");
          asked = [];
          return [1, 2];
        });
        expect(result).toEqual([1, 2]);
        expect(asked.filter(isOfTheWork)).toHaveLength(1);
        expect(await stored("own")).toEqual([event.id]);
        expect(await hasEffect("own")).toBe(true);
      });

      test("rolls back when its work fails, or an event is refused", async () => {
        const events = [draft("undone", 1), draft("undone", 2)];
        const failing = outbox.transaction(library.db, async (tx, buffer) => {
          await effect(tx, "undone");
          buffer.add(events);
          throw new Error("no");
        });
        await expect(failing).rejects.toThrow("no");
        const refusing = outbox.transaction(library.db, async (tx, buffer) => {
          await effect(tx, "undone");
          buffer.add([events[0]!, { ...events[1]!, id: events[0]!.id }]);
        });
        await expect(refusing).rejects.toThrow(refused("INVALID_DRAFT"));
        expect(await stored("undone")).toEqual([]);
        expect(await hasEffect("undone")).toBe(false);
      });

      test("is refused inside another, which would be a savepoint", async () => {
        const inside = library.transaction((tx) => outbox.transaction(tx, async () => undefined));
        await expect(inside).rejects.toThrow(refused("ALREADY_IN_TRANSACTION"));
      });

      test("gives a transaction that is refused once it has ended", async () => {
        let late: unknown;
        await outbox.transaction(library.db, async (tx) => void (late = tx));
        await expect((async () => outbox.add(late, draft("kept", 1)))()).rejects.toThrow(refused("NO_TRANSACTION"));
        await expect((async () => library.run(late, `INSERT INTO ${ground.effects} VALUES ('kept')`))()).rejects.toThrow();
        expect(await stored("kept")).toEqual([]);
        expect(await hasEffect("kept")).toBe(false);
      });

      test("rejects when a failure was swallowed that undid everything", async () => {
        const run = outbox.transaction(library.db, async (tx) => {
          await effect(tx, "swallowed");
          await Promise.resolve(library.run(tx, "SELECT * FROM no_such_table")).catch(() => undefined);
        });
        // Only PostgreSQL gives a transaction up for a failed statement.
        if (adapter.database === "PostgreSQL") await expect(run).rejects.toThrow();
        else await run;
        expect(await hasEffect("swallowed")).toBe(adapter.database !== "PostgreSQL");
      });
    });

    // On SQLite, a handler has the store's own client.
    if (adapter.database === "SQLite") return;
    describe("a store in the library's transactions", () => {
      const key = (id: string): { consumer: string; id: string } => ({ consumer: "billing", id });

      test("has handlers whose effect, events and mark are kept together, once", async () => {
        await using store = ground.through!(handle, library.db);
        const event = draft("handled", 1);
        const applying = (): Promise<string> =>
          store.inbox.once(key("e1"), 1, async (tx) => {
            await effect(tx, "handled");
            await createOutbox({ store }).add(tx, event);
          });
        expect(await applying()).toBe("done");
        expect(await applying()).toBe("seen");
        expect((await ground.readEffects()).filter((name) => name === "handled")).toHaveLength(1);
        expect(await stored("handled")).toEqual([event.id]);
      });

      test("keeps nothing of a handler that fails", async () => {
        await using store = ground.through!(handle, library.db);
        const failing = store.inbox.once(key("e2"), 1, async (tx) => {
          await effect(tx, "failed");
          await createOutbox({ store }).add(tx, draft("failed", 1));
          throw new Error("no");
        });
        await expect(failing).rejects.toThrow("no");
        expect(await hasEffect("failed")).toBe(false);
        expect(await stored("failed")).toEqual([]);
        expect(await store.inbox.once(key("e2"), 1, (tx) => effect(tx, "failed, then done"))).toBe("done");
        expect(await hasEffect("failed, then done")).toBe(true);
      });

      test("refuses what a handler does too late", async () => {
        await using store = ground.through!(handle, library.db);
        let late: unknown;
        await store.inbox.once(key("e3"), 1, (tx) => void (late = tx));
        await expect((async () => library.run(late, `INSERT INTO ${ground.effects} VALUES ('too late')`))()).rejects.toThrow();
        expect(await hasEffect("too late")).toBe(false);
      });

      test("has an outbox without a further handle", async () => {
        await using store = ground.through!(handle, library.db);
        const own = createOutbox({ store });
        const [one, two] = [draft("in its own", 1), draft("in its own", 2)];
        await library.transaction((tx) => own.add(tx, one));
        await own.transaction(library.db, async (tx, events) => {
          events.add(two);
          await effect(tx, "in its own");
        });
        expect(await stored("in its own")).toEqual([one.id, two.id]);
        expect(await hasEffect("in its own")).toBe(true);
      });
    });
  });
}

type Event = Draft & { readonly id: string };

/** Not a check of the transaction: MySQL cannot make it within the INSERT, and PostgreSQL's is for what is asked after the commit. */
const isOfTheWork = (sql: string): boolean =>
  !/^(RELEASE SAVEPOINT|SET @@transaction_read_only|SELECT pg_catalog\.pg_current_xact_id_if_assigned)/.test(sql);

function counting(handle: AnyHandle, asked: (sql: string) => void): AnyHandle {
  const counted = (tx: unknown): ReturnType<AnyHandle> => {
    const inner = handle(tx);
    return {
      query: (sql, values) => {
        asked(sql);
        return inner.query(sql, values);
      },
    };
  };
  return Object.assign(counted, { begin: handle.begin });
}
