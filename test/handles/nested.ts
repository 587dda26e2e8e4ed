import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Adapter, Opened } from "./adapter.ts";
import type { AnyHandle, Ground } from "./body.ts";

/** A handler that times out inside a nested transaction of its library, which goes on later. */
export function outlivesNestedTransactions(adapter: Adapter, prepare: () => Promise<Ground>): void {
  describe(`${adapter.library} on ${adapter.database}: a nested transaction`, () => {
    let ground: Ground;
    let library: Opened;
    beforeEach(async () => {
      ground = await prepare();
      library = await adapter.open(ground.place);
    });
    afterEach(async () => {
      await library?.close();
      await ground?.close();
    });
    const insert = (tx: unknown, name: string): PromiseLike<unknown> => library.run(tx, `INSERT INTO ${ground.effects} VALUES ('${name}')`);
    const key = { consumer: "billing", id: "e1" };

    test("that outlives its handler keeps nothing, neither at once nor later", async () => {
      await using store = ground.through!(adapter.handle as AnyHandle, library.db);
      let open = (): void => undefined;
      const gate = new Promise<void>((resolve) => (open = resolve));
      let rest: Promise<unknown> = Promise.resolve();
      const first = store.inbox.once(key, 1, async (tx) => {
        await insert(tx, "first");
        await new Promise<void>((resolve) => {
          rest = library.savepoint(tx, async (inner) => {
            await insert(inner, "nested");
            resolve();
            await gate;
            await insert(inner, "late");
          });
          rest.catch(() => undefined);
        });
        throw new Error("timed out");
      });
      await expect(first).rejects.toThrow("timed out");
      expect(await ground.readEffects(), "after the failure").toEqual([]);
      // Its session goes to others, whose transactions are their own.
      for (const id of ["e2", "e3", "e1"])
        expect(await store.inbox.once({ ...key, id }, 1, async (tx) => void (await insert(tx, id)))).toBe("done");
      open();
      await expect(rest, "a late statement is refused").rejects.toThrow();
      for (const id of ["e4", "e5"])
        expect(await store.inbox.once({ ...key, id }, 1, async (tx) => void (await insert(tx, id)))).toBe("done");
      expect([...(await ground.readEffects())].sort()).toEqual(["e1", "e2", "e3", "e4", "e5"]);
    });

    if (adapter.library !== "TypeORM") return;
    test("that the handler does not await fails it", async () => {
      await using store = ground.through!(adapter.handle as AnyHandle, library.db);
      let open = (): void => undefined;
      const gate = new Promise<void>((resolve) => (open = resolve));
      let rest: Promise<unknown> = Promise.resolve();
      const first = store.inbox.once(key, 1, async (tx) => {
        await new Promise<void>((resolve) => {
          rest = library.savepoint(tx, async (inner) => {
            await insert(inner, "nested");
            resolve();
            await gate;
          });
          rest.catch(() => undefined);
        });
      });
      await expect(first).rejects.toMatchObject({ code: "TRANSACTION_LOST" });
      open();
      await expect(rest).rejects.toThrow();
      expect(await store.inbox.once(key, 1, async (tx) => void (await insert(tx, "again")))).toBe("done");
      expect(await ground.readEffects()).toEqual(["again"]);
    });
  });
}
