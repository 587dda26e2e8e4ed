import assert from "node:assert/strict";
import { turn } from "../core/clock.ts";
import type { StoreSuite } from "./harness.ts";
import { batchCases } from "./inbox-batches.ts";
import { cases, code } from "./scene.ts";

/** One effect per event, alone and in batches: all that `once` does in the user's own transaction, and so all that differs between handles. */
export function effectCases<Db, Tx>(suite: StoreSuite<Db, Tx>): void {
  const test = cases(suite, "inbox");
  const key = { consumer: "billing", id: "e1" };
  batchCases(suite);

  test("an effect happens once", async ({ store, effect, effects }) => {
    assert.equal(await store.inbox.once(key, 1, (tx) => effect(tx, "paid")), "done");
    assert.equal(await store.inbox.once(key, 1, (tx) => effect(tx, "paid")), "seen");
    assert.equal(await store.inbox.once(key, 2, (tx) => effect(tx, "paid")), "seen", "a new version of the handler makes no second effect");
    assert.deepEqual(await effects(), ["paid"]);
  });

  test("each consumer and each event counts for itself, byte by byte", async ({ store, effect, effects }) => {
    const keys = [
      key,
      { consumer: "stock", id: "e1" },
      { consumer: "billing", id: "e2" },
      { consumer: "billing", id: "E1" },
      { consumer: "billing", id: "e1 " },
      { consumer: "billinge", id: "1" },
    ];
    for (const each of keys) assert.equal(await store.inbox.once(each, 1, (tx) => effect(tx, "x")), "done");
    for (const each of keys) assert.equal(await store.inbox.once(each, 1, (tx) => effect(tx, "x")), "seen");
    assert.equal((await effects()).length, keys.length);
  });

  test("work that fails leaves neither an effect nor a mark", async ({ store, effect, effects }) => {
    const no = (): never => {
      throw new Error("no");
    };
    const late = store.inbox.once(key, 1, async (tx) => {
      await effect(tx, "paid");
      no();
    });
    await assert.rejects(late, /^Error: no$/);
    await assert.rejects(store.inbox.once(key, 1, no), /^Error: no$/);
    assert.deepEqual(await effects(), []);
    assert.equal(await store.inbox.once(key, 1, (tx) => effect(tx, "paid")), "done");
    assert.deepEqual(await effects(), ["paid"]);
  });

  test("a second delivery that comes meanwhile waits, and works only if the first failed", async ({ store, effect, effects }) => {
    for (const fails of [false, true]) {
      const id = `e-${fails}`;
      let proceed = (): void => undefined;
      let started = (): void => undefined;
      const go = new Promise<void>((resolve) => (proceed = resolve));
      const running = new Promise<void>((resolve) => (started = resolve));
      const first = store.inbox.once({ consumer: "billing", id }, 1, async (tx) => {
        started();
        await go;
        await effect(tx, `first ${id}`);
        if (fails) throw new Error("no");
      });
      first.catch(() => undefined);
      await running;
      let second = "waiting";
      const other = store.inbox
        .once({ consumer: "billing", id }, 1, (tx) => effect(tx, `second ${id}`))
        .then((result) => (second = result));
      await turn();
      assert.equal(second, "waiting");
      proceed();
      if (fails) await assert.rejects(first, /no/);
      else assert.equal(await first, "done");
      assert.equal(await other, fails ? "done" : "seen");
    }
    assert.deepEqual([...(await effects())].sort(), ["first e-false", "second e-true"]);
  });

  test("many deliveries at once have one effect each", async ({ store, effect, effects }) => {
    const ids = Array.from({ length: 60 }, (_, n) => `e${n % 20}`);
    const results = await Promise.all(ids.map((id) => store.inbox.once({ ...key, id }, 1, (tx) => effect(tx, id))));
    assert.equal(results.filter((result) => result === "done").length, 20);
    assert.equal(new Set(await effects()).size, 20);
    assert.equal((await effects()).length, 20);
  });

  test("events that a handler adds go with its effect", async (scene, relay) => {
    const { store, effect } = scene;
    const failing = store.inbox.once(key, 1, async (tx) => {
      await store.writer.append(tx, [scene.row("order-1")]);
      throw new Error("no");
    });
    await assert.rejects(failing, /no/);
    assert.deepEqual(await store.operator.list({ limit: 10 }), []);
    const row = scene.row("order-1");
    await store.inbox.once(key, 1, async (tx) => {
      await effect(tx, "paid");
      await store.writer.append(tx, [row]);
    });
    assert.deepEqual(await relay.drain(), [row.id]);
  });

  test.needing("uniqueIds")("a swallowed error keeps mark and effects together", async (scene) => {
    const { store, effect, effects } = scene;
    const row = scene.row("order-1");
    await scene.add(row);
    const result = await store.inbox
      .once(key, 1, async (tx) => {
        await effect(tx, "before");
        try {
          await store.writer.append(tx, [scene.row("order-2"), row]);
        } catch {
          // A handler may swallow the error.
        }
        await effect(tx, "after");
      })
      .catch(() => "failed");
    const kept = result === "done";
    assert.deepEqual([...(await effects())].sort(), kept ? ["after", "before"] : []);
    assert.equal((await store.operator.list({ limit: 10 })).length, 1, "nothing is kept of a refused append");
    assert.equal(await store.inbox.once(key, 1, () => undefined), kept ? "seen" : "done");
  });

  test.needing("loseTransaction")("a transaction that ended under the handler leaves no mark", async ({ store, effect, effects, lose }) => {
    const lost = store.inbox.once(key, 1, async (tx) => {
      await effect(tx, "before");
      await lose!(tx);
    });
    await assert.rejects(lost, code("TRANSACTION_LOST"));
    assert.deepEqual(await effects(), []);
    assert.equal(await store.inbox.once(key, 1, (tx) => effect(tx, "paid")), "done");
    assert.deepEqual(await effects(), ["paid"]);
  });

  test("the handle is of no use once the work is done", async (scene) => {
    const { store } = scene;
    let kept: Tx | undefined;
    await store.inbox.once(key, 1, (tx) => void (kept = tx));
    await assert.rejects(async () => store.writer.append(kept!, [scene.row("order-1")]), code("NO_TRANSACTION"));
  });

  test("failed attempts are counted, and a count is no mark", async ({ store, effect, effects }) => {
    assert.equal(await store.inbox.failed(key, "no"), 1);
    assert.equal(await store.inbox.failed(key, "x".repeat(5_000)), 2);
    assert.equal(await store.inbox.failed({ ...key, consumer: "stock" }, "no"), 1);
    await assert.rejects(
      store.inbox.once(key, 1, () => Promise.reject(new Error("no"))),
      /no/,
    );
    assert.equal(await store.inbox.failed(key, "no"), 3);
    assert.equal(await store.inbox.once(key, 1, (tx) => effect(tx, "paid")), "done");
    assert.equal(await store.inbox.once(key, 1, (tx) => effect(tx, "paid")), "seen");
    assert.deepEqual(await effects(), ["paid"]);
  });

  test("counts of failed attempts go with their event's mark, and old ones are forgotten", async ({ store, clock }) => {
    await store.inbox.failed(key, "no");
    await store.inbox.failed(key, "no");
    await store.inbox.once(key, 1, () => undefined);
    assert.equal(await store.inbox.failed(key, "no"), 1, "the mark took the count away");
    await store.inbox.failed({ ...key, id: "parked" }, "no");
    await clock.advance(10_000);
    const between = new Date(clock.now() - 5_000);
    await store.inbox.failed({ ...key, id: "young" }, "no");
    await store.inbox.failed(key, "no");
    assert.ok((await store.inbox.forget(between, 1_000)) > 0);
    assert.equal(await store.inbox.failed({ ...key, id: "parked" }, "no"), 1);
    assert.equal(await store.inbox.failed({ ...key, id: "young" }, "no"), 2);
    assert.equal(await store.inbox.failed(key, "no"), 3, "what failed lately is not old");
  });

  for (const [name, end] of [
    ["a mark that a handler's statement committed is no success: what follows is refused", () => undefined],
    ["a handler that commits by itself and then fails leaves no success either", () => Promise.reject(new Error("no"))],
  ] as const) {
    test.needing("commitInside")(name, async ({ store, effect, commitInside }) => {
      const lost = store.inbox.once(key, 1, async (tx) => {
        await effect(tx, "half");
        await commitInside!(tx);
        await end();
      });
      await assert.rejects(lost);
      for (const _ of [1, 2]) {
        let ran = false;
        const again = store.inbox.once(key, 1, () => void (ran = true));
        await assert.rejects(again, code("EFFECT_UNFINISHED"));
        assert.equal(ran, false, "the effect may be there by half: it is not made again");
      }
      assert.equal(await store.inbox.once({ ...key, id: "e2" }, 1, (tx) => effect(tx, "whole")), "done");
      assert.equal(await store.inbox.once({ ...key, id: "e2" }, 1, () => undefined), "seen");
    });
  }
}
