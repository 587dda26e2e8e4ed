import assert from "node:assert/strict";
import type { StoreSuite } from "./harness.ts";
import { cases } from "./scene.ts";

export function schemaSuite<Db, Tx>(suite: StoreSuite<Db, Tx>): void {
  const test = cases(suite, "schema");

  test("migrating again applies nothing and touches nothing", async (scene, relay) => {
    const ids = await scene.addTo("order-1", 2);
    assert.deepEqual(await scene.store.schema.migrate(), []);
    await scene.store.schema.check();
    assert.equal(typeof scene.store.schema.print(), "string");
    assert.deepEqual(await relay.drain(), ids);
  });

  test("migrations beside each other and beside traffic", async (scene, relay) => {
    const [added, ...applied] = await Promise.all([
      scene.addTo("order-1", 2),
      ...Array.from({ length: 4 }, () => scene.store.schema.migrate()),
    ]);
    assert.deepEqual(applied.flat(), []);
    assert.deepEqual(await relay.drain(), added);
  });
}
