import assert from "node:assert/strict";
import type { StoreSuite } from "./harness.ts";
import { by, cases, code, ids, idsOf, judgeBy, near, retry, returned } from "./scene.ts";

const bytes = (...values: number[]): Uint8Array => Uint8Array.from(values);

/** What goes in must come out, to the byte. */
const payloads: readonly (string | Uint8Array)[] = [
  "{}",
  "null",
  '{ "a":1.0,\n"a":2 }',
  '{"n":9007199254740993,"x":1e400}',
  '{"text":"😀 𝄞 é é \\u0000 \\u2028"}',
  "not json at all",
  "'; DROP TABLE outbox; --",
  `"${"ä".repeat(60_000)}"`,
  bytes(),
  bytes(0),
  bytes(0, 1, 0, 255, 254, 0),
  bytes(0xff, 0xfe, 0xc3, 0x28, 0xf0, 0x9f),
  Uint8Array.from({ length: 256 }, (_, n) => n),
  new Uint8Array(200_000).fill(0xa5),
  Uint8Array.from({ length: 20 }, (_, n) => n).subarray(5, 9),
];

export function addingCases<Db, Tx>(suite: StoreSuite<Db, Tx>): void {
  const test = cases(suite, "adding");

  test("what was added is what is claimed", async (scene, relay) => {
    const row = scene.row("order-1", {
      aggregateType: "Commande",
      type: "CommandePassée",
      eventVersion: 7,
      contentType: "application/json; charset=utf-8",
      headers: { traceparent: "00-1-2-01", tenant: "größe, 店", constructor: "x", empty: "" },
      idempotencyKey: "key-1",
    });
    assert.deepEqual(await scene.add(row), [{ id: row.id, duplicate: false }]);
    const { claims } = await relay.claim();
    assert.equal(claims.length, 1);
    const { envelope, failures, deaths, lane, epoch } = claims[0]!;
    const { payload, availableAt, ...attributes } = row;
    assert.equal(availableAt, null);
    const { data, seq, createdAt, ...stored } = envelope;
    assert.deepEqual({ ...stored, headers: { ...stored.headers } }, attributes);
    assert.equal(Buffer.from(data).toString("utf8"), payload);
    assert.equal(typeof seq, "bigint");
    near(createdAt, scene.clock.now());
    assert.deepEqual([failures, deaths], [0, 0]);
    assert.equal((await relay.holding()).lanes.get(lane), epoch);
  });

  test("payloads keep every byte", async (scene, relay) => {
    const rows = payloads.map((payload) => scene.row("order-1", { payload }));
    await scene.add(...rows);
    const { claims } = await relay.claim();
    assert.equal(claims.length, payloads.length);
    for (const [n, { envelope }] of claims.entries()) {
      const given = payloads[n]!;
      assert.deepEqual(Buffer.from(envelope.data), Buffer.from(given), `payload ${n}`);
      const shown = (await scene.show(rows[n]!.id)).payload;
      assert.equal(typeof shown, typeof given, `payload ${n} is text or bytes as before`);
      assert.deepEqual(Buffer.from(shown!), Buffer.from(given), `payload ${n}, shown`);
    }
  });

  test("a buffer that is used again after the call changes nothing", async (scene, relay) => {
    const payload = bytes(1, 2, 3);
    await scene.store.transactor.transaction(scene.db, async (tx) => {
      await scene.store.writer.append(tx, [scene.row("order-1", { payload })]);
      payload.fill(9);
    });
    const { claims } = await relay.claim();
    assert.deepEqual([...claims[0]!.envelope.data], [1, 2, 3]);
  });

  test("many rows of one call keep their order", async (scene, relay) => {
    const rows = Array.from({ length: 2_500 }, (_, n) => scene.row(`order-${n % 3}`));
    const added = await scene.add(...rows);
    assert.deepEqual(ids(added), ids(rows));
    assert.deepEqual(idsOf(await relay.claim({ limit: 5_000 })), ids(rows));
  });

  test("no rows are no work", async (scene, relay) => {
    assert.deepEqual(await scene.add(), []);
    assert.equal((await relay.claim()).id, null);
  });

  test("rolled back rows are never claimed, and their keys are free again", async (scene, relay) => {
    const open = await scene.begin();
    await scene.store.writer.append(open.tx, [scene.row("order-1", { idempotencyKey: "k" })]);
    await open.rollback();
    assert.equal((await relay.claim()).id, null);
    assert.deepEqual(await scene.store.operator.list({ limit: 10 }), []);
    const [again] = await scene.add(scene.row("order-1", { idempotencyKey: "k" }));
    assert.equal(again!.duplicate, false);
    assert.deepEqual(idsOf(await relay.claim()), [again!.id]);
  });

  test("a transaction that fails leaves nothing", async (scene) => {
    const failing = scene.store.transactor.transaction(scene.db, async (tx) => {
      await scene.store.writer.append(tx, [scene.row("order-1")]);
      await scene.effect(tx, "paid");
      throw new Error("no");
    });
    await assert.rejects(failing, /^Error: no$/);
    assert.deepEqual(await scene.effects(), []);
    assert.deepEqual(await scene.store.operator.list({ limit: 10 }), []);
    const value = await scene.store.transactor.transaction(scene.db, async (tx) => {
      await scene.effect(tx, "paid");
      return 7;
    });
    assert.equal(value, 7);
    assert.deepEqual(await scene.effects(), ["paid"]);
  });

  test("a handle without an open transaction is refused", async (scene) => {
    const { writer } = scene.store;
    const append = async (tx: Tx): Promise<unknown> => writer.append(tx, [scene.row("order-1")]);
    await assert.rejects(append(scene.db as unknown as Tx), code("NO_TRANSACTION"));
    for (const end of ["commit", "rollback"] as const) {
      const ended = await scene.begin();
      await ended[end]();
      await assert.rejects(append(ended.tx), code("NO_TRANSACTION"), end);
    }
    assert.deepEqual(await scene.store.operator.list({ limit: 10 }), []);
  });

  test("an idempotency key adds once: in one call, in one transaction, later, and for another aggregate", async (scene, relay) => {
    const first = scene.row("order-1", { idempotencyKey: "k" });
    const same = scene.row("order-1", { idempotencyKey: "k" });
    const other = scene.row("order-1", { idempotencyKey: "K" });
    const added = await scene.store.transactor.transaction(scene.db, async (tx) => {
      const now = await scene.store.writer.append(tx, [first, same, other]);
      return [...now, ...(await scene.store.writer.append(tx, [scene.row("order-1", { idempotencyKey: "k" })]))];
    });
    const duplicate = { id: first.id, duplicate: true };
    assert.deepEqual(added, [{ id: first.id, duplicate: false }, duplicate, { id: other.id, duplicate: false }, duplicate]);
    assert.deepEqual(await scene.add(scene.row("order-1", { idempotencyKey: "k" })), [duplicate]);
    assert.deepEqual(await scene.add(scene.row("order-2", { idempotencyKey: "k" })), [duplicate]);
    assert.deepEqual(await relay.drain(), [first.id, other.id]);
    assert.deepEqual(await scene.add(scene.row("order-1", { idempotencyKey: "k" })), [duplicate]);
    assert.deepEqual(await relay.drain(), []);
  });

  test("a key outlives its event", async (scene, relay) => {
    const first = scene.row("order-1", { idempotencyKey: "k" });
    await scene.add(first);
    await relay.drain();
    await scene.clock.advance(60_000);
    assert.equal(await scene.store.operator.purge(new Date(scene.clock.now() - 1_000), by), 1);
    assert.deepEqual(await scene.add(scene.row("order-1", { idempotencyKey: "k" })), [{ id: first.id, duplicate: true }]);
  });

  test("the same draft again, with its id and its key, is a duplicate and no mistake", async (scene, relay) => {
    const row = scene.row("order-1", { idempotencyKey: "k" });
    await scene.add(row);
    assert.deepEqual(await scene.add(row), [{ id: row.id, duplicate: true }]);
    const twin = scene.row("order-2", { idempotencyKey: "l" });
    assert.deepEqual(await scene.add(twin, twin), [
      { id: twin.id, duplicate: false },
      { id: twin.id, duplicate: true },
    ]);
    assert.deepEqual(await relay.drain(), [row.id, twin.id]);
  });

  test.needing("uniqueIds")("nothing is kept of a large call that was refused, even when the user goes on", async (scene) => {
    const first = scene.row("order-1");
    await scene.add(first);
    const rows = Array.from({ length: 700 }, (_, n) => scene.row("order-2", { idempotencyKey: `k${n}` }));
    await scene.store.transactor
      .transaction(scene.db, async (tx) => {
        try {
          await scene.store.writer.append(tx, [...rows, { ...first, aggregateId: "order-3" }]);
        } catch {
          // The user swallows the error.
        }
      })
      .catch(() => undefined);
    assert.deepEqual(ids(await scene.store.operator.list({ limit: 10 })), [first.id]);
    assert.equal((await scene.add(...rows)).filter(({ duplicate }) => duplicate).length, 0);
  });

  test.needing("uniqueIds")("an id that exists is refused by name, with everything beside it", async (scene, relay) => {
    const first = scene.row("order-1");
    await scene.add(first);
    const again = scene.row("order-2", { id: first.id });
    const refused = (error: unknown): boolean => {
      assert.ok((error as Error).message.includes(first.id), String(error));
      return code("INVALID_DRAFT")(error);
    };
    await assert.rejects(scene.add(scene.row("order-3", { idempotencyKey: "k" }), again), refused);
    const twin = scene.row("order-4");
    await assert.rejects(scene.add(twin, { ...twin, aggregateId: "order-5" }), code("INVALID_DRAFT"));
    const [free] = await scene.add(scene.row("order-3", { idempotencyKey: "k" }));
    assert.equal(free!.duplicate, false);
    assert.deepEqual(await relay.drain(), [first.id, free!.id]);
  });

  test("aggregates are told apart byte by byte", async (scene, relay) => {
    const names = ["order-a", "order-A", "order-a ", "órder-a", "o\u0301rder-a", "ORDER-A", "0", "00", "0.0", "1e0", "1"];
    const rows = names.flatMap((name) => [scene.row(name), scene.row(name)]);
    rows.push(scene.row("order-a", { aggregateType: "order" }));
    await scene.add(...rows);
    const window = await relay.claim();
    assert.equal(window.claims.length, rows.length);
    const [refused, behind, ...others] = ids(rows);
    const outcomes = new Map([
      [refused!, retry(10_000)],
      [behind!, returned],
    ]);
    await relay.settle(window, judgeBy(outcomes));
    assert.deepEqual(await relay.drain(), []);
    assert.deepEqual(await scene.states(ids(rows)), ["FAILED", "BLOCKED", ...others.map(() => "PUBLISHED")]);
    for (const name of names) {
      const listed = await scene.store.operator.list({ aggregateType: "Order", aggregateId: name, limit: 10 });
      assert.ok(listed.length === 2 && listed.every(({ aggregateId }) => aggregateId === name), name);
    }
  });
}
