import assert from "node:assert/strict";
import type { WholeEvent } from "../contracts/operator.ts";
import type { Row } from "../core/event.ts";
import type { StoreSuite } from "./harness.ts";
import { by, cases, type Scene } from "./scene.ts";

const mib = 1024 * 1024;
/** The largest payload that a list reads, and the most payload bytes that one call of an archive receives. */
const [listed, archived] = [64 * 1024, 8 * mib];

const bytesOf = (payload: string | Uint8Array): Buffer => Buffer.from(payload as string);

function assertSame(actual: string | Uint8Array | null, expected: string | Uint8Array, id: string): void {
  assert.ok(actual !== null, `the payload of ${id} was not read`);
  assert.equal(typeof actual, typeof expected);
  assert.ok(bytesOf(actual).equals(bytesOf(expected)), `the payload of ${id} is not whole`);
}

/** One by one: a server may not take all of them in one statement. */
async function addEach<Db, Tx>(scene: Scene<Db, Tx>, rows: readonly Row[]): Promise<void> {
  for (const row of rows) await scene.add(row);
}

/** Operators read a bounded amount of payloads, whatever plain SQL or a service has written. */
export function payloadCases<Db, Tx>(suite: StoreSuite<Db, Tx>): void {
  const test = cases(suite, "operator");
  const binary = { contentType: "application/octet-stream" };
  const random = (length: number): Uint8Array => Uint8Array.from({ length }, (_, n) => (n * 7 + (n >> 8)) & 0xff);

  test("list leaves out a payload above 64 KiB and tells its size, and show has it whole", async (scene) => {
    const rows = [
      scene.row("small", { payload: `"${"é".repeat(10)}"` }),
      scene.row("small-bytes", { payload: Uint8Array.of(0, 255), ...binary }),
      scene.row("empty", { payload: new Uint8Array(0), ...binary }),
      scene.row("just", { payload: "x".repeat(listed) }),
      scene.row("just-bytes", { payload: random(listed), ...binary }),
      scene.row("text", { payload: `"${"é".repeat(listed / 2)}"` }),
      scene.row("bytes", { payload: random(listed + 1), ...binary }),
      scene.row("large", { payload: `"${"🚚".repeat(mib / 2)}"` }),
    ];
    await addEach(scene, rows);
    const found = new Map((await scene.store.operator.list({ limit: 100 })).map((event) => [event.id, event]));
    assert.equal(found.size, rows.length);
    for (const { id, aggregateId, payload } of rows) {
      const event = found.get(id)!;
      assert.equal(event.payloadBytes, bytesOf(payload).length, aggregateId);
      if (bytesOf(payload).length > listed) assert.equal(event.payload, null, `the payload of ${aggregateId} is in a list`);
      else assertSame(event.payload, payload, aggregateId);
      const shown = await scene.show(id);
      assertSame(shown.payload, payload, aggregateId);
      assert.deepEqual({ ...shown, payload: null }, { ...event, payload: null });
    }
  });

  test("an archive is given 8 MiB of payloads at once, and each event whole", async (scene, relay) => {
    const sizes = [3 * mib, 10, 3 * mib, 100_000, 6 * mib, 3 * mib, 20, 5 * mib, 3 * mib - 30, 10];
    const rows = sizes.map((size, n) =>
      scene.row(`order-${n}`, n % 2 === 0 ? { payload: `"${"x".repeat(size - 2)}"` } : { payload: random(size), ...binary }),
    );
    await addEach(scene, rows);
    assert.equal((await relay.drain({ bytes: mib })).length, rows.length);
    const given: WholeEvent[] = [];
    const purged = await scene.store.operator.purge(new Date(scene.clock.now() + 60_000), by, {
      async archive(events) {
        const bytes = events.reduce((sum, { payload }) => sum + bytesOf(payload).length, 0);
        assert.ok(bytes <= archived, `${events.length} events take ${bytes} bytes`);
        given.push(...events);
      },
    });
    assert.equal(purged, rows.length);
    assert.equal(given.length, rows.length);
    const payloads = new Map(given.map(({ id, payload, payloadBytes }) => [id, { payload, payloadBytes }]));
    for (const [n, { id, payload }] of rows.entries()) {
      assertSame(payloads.get(id)?.payload ?? null, payload, id);
      assert.equal(payloads.get(id)!.payloadBytes, sizes[n]);
    }
    assert.deepEqual(await scene.store.operator.list({ limit: 10 }), []);
  });
}
