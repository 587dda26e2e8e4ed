import assert from "node:assert/strict";
import type { StoreSuite } from "./harness.ts";
import { cases, code } from "./scene.ts";

/** Several events in one transaction: their marks and their effects commit together, or not at all. */
export function batchCases<Db, Tx>(suite: StoreSuite<Db, Tx>): void {
  const test = cases(suite, "inbox");
  const consumer = "billing";
  const keys = { consumer, id: "a", also: ["B", "b", "it's \\ 'c'"] };
  const ids = [keys.id, ...keys.also];
  const one = (id: string) => ({ consumer, id });

  test("several events are applied together, each once", async ({ store, effect, effects }) => {
    const paid = async (tx: Tx, fresh: ReadonlySet<string>): Promise<void> => {
      for (const id of ids) if (fresh.has(id)) await effect(tx, `paid ${ids.indexOf(id)}`);
    };
    assert.equal(await store.inbox.once(keys, 1, paid), "done");
    assert.equal(await store.inbox.once(keys, 1, paid), "seen");
    for (const id of ids) assert.equal(await store.inbox.once(one(id), 1, () => undefined), "seen", id);
    assert.deepEqual([...(await effects())].sort(), ["paid 0", "paid 1", "paid 2", "paid 3"]);
  });

  test("of several events, those with a mark are left out", async ({ store, effect, effects }) => {
    await store.inbox.once(one("B"), 1, (tx) => effect(tx, "before"));
    let told: readonly string[] = [];
    const result = await store.inbox.once(keys, 1, async (tx, fresh) => {
      told = [...fresh].sort();
      await effect(tx, "after");
    });
    assert.deepEqual([result, told], ["done", ids.filter((id) => id !== "B").sort()]);
    await store.inbox.once({ consumer, id: "B", also: ["d"] }, 1, (_tx, fresh) => void (told = [...fresh]));
    assert.deepEqual(told, ["d"]);
    assert.deepEqual([...(await effects())].sort(), ["after", "before"]);
  });

  test("when the work for several events fails, none of them has a mark or an effect", async ({ store, effect, effects }) => {
    const failing = store.inbox.once(keys, 1, async (tx) => {
      await effect(tx, "half");
      throw new Error("no");
    });
    await assert.rejects(failing, /^Error: no$/);
    for (const id of ids) assert.equal(await store.inbox.once(one(id), 1, (tx) => effect(tx, "whole")), "done", id);
    assert.deepEqual(new Set(await effects()), new Set(["whole"]));
  });

  test("the marks of several events delete their counts of failed attempts", async ({ store }) => {
    for (const id of ids) await store.inbox.failed(one(id), "no");
    await store.inbox.once(keys, 1, () => undefined);
    for (const id of ids) assert.equal(await store.inbox.failed(one(id), "no"), 1, id);
  });

  test("batches that meet have one effect for each event", async ({ store, effect, effects }) => {
    const batches = Array.from({ length: 12 }, (_, n) => Array.from({ length: 8 }, (__, at) => `e${(n * 5 + at * 7) % 40}`));
    const apply = ([id, ...also]: readonly string[]): Promise<unknown> =>
      store.inbox.once({ consumer, id: id!, also }, 1, async (tx, fresh) => {
        for (const each of fresh) await effect(tx, each);
      });
    const refused = await Promise.allSettled(batches.map(apply));
    // Of batches that conflict, the database may refuse all but one.
    const again = batches.filter((_, at) => refused[at]!.status === "rejected");
    assert.ok(again.length < batches.length);
    for (const batch of again) await apply(batch);
    assert.deepEqual([...(await effects())].sort(), [...new Set(batches.flat())].sort());
  });

  test.needing("loseTransaction")("a transaction of several events that ended under the handler leaves no mark", async (scene) => {
    const { store, effect, effects, lose } = scene;
    const lost = store.inbox.once(keys, 1, async (tx) => {
      await effect(tx, "before");
      await lose!(tx);
    });
    await assert.rejects(lost, code("TRANSACTION_LOST"));
    for (const id of ids) assert.equal(await store.inbox.once(one(id), 1, () => undefined), "done", id);
    assert.deepEqual(await effects(), []);
  });

  test.needing("commitInside")("one event whose work never finished refuses all that come with it", async (scene) => {
    const { store, effect, effects, commitInside } = scene;
    await assert.rejects(store.inbox.once(one("b"), 1, (tx) => commitInside!(tx)));
    await assert.rejects(
      store.inbox.once(keys, 1, (tx) => effect(tx, "with the others")),
      code("EFFECT_UNFINISHED"),
    );
    assert.deepEqual(await effects(), []);
    assert.equal(await store.inbox.once(one("a"), 1, (tx) => effect(tx, "by itself")), "done");
  });

  test.needing("commitInside")("of several events, one whose work commits leaves the others with one effect each", async (scene) => {
    const { store, effect, effects, commitInside } = scene;
    const names = ids.map((_, at) => `paid ${at}`);
    const ended = store.inbox.once(keys, 1, async (_tx, fresh, next) => {
      assert.deepEqual([...fresh].sort(), [...ids].sort());
      for (const [at, id] of ids.entries()) {
        const own = await next([id]);
        await effect(own, names[at]!);
        if (at === 1) await commitInside!(own);
      }
    });
    await assert.rejects(ended);
    // Nothing was done after the failure: this is what another process finds, too.
    for (const [at, id] of ids.entries()) {
      const again = store.inbox.once(one(id), 1, (tx) => effect(tx, names[at]!));
      if (at === 1) await again.catch((error: unknown) => assert.ok(code("EFFECT_UNFINISHED")(error)));
      else await again;
    }
    assert.deepEqual(
      (await effects()).filter((name) => name !== names[1]).sort(),
      names.filter((name) => name !== names[1]),
    );
  });
}
