import assert from "node:assert/strict";
import type { Claim, Window } from "../contracts/outbox-store.ts";
import { turn } from "../core/clock.ts";
import { deathsToPark } from "../core/retry.ts";
import type { Row } from "../core/event.ts";
import type { StoreSuite } from "./harness.ts";
import { cases, code, ids, idsOf, inOrder, judgeBy, parked, retry, returned, type SceneRelay } from "./scene.ts";

const bytesOf = ({ claims }: Pick<Window, "claims">): number => claims.reduce((sum, { envelope }) => sum + envelope.data.byteLength, 0);

/** Claims and publishes all there is, and checks each window against the bound. */
async function drain(relay: SceneRelay, bytes: number, narrow = false): Promise<Claim[]> {
  const taken: Claim[] = [];
  for await (const window of relay.windows({ bytes, narrow })) {
    assert.ok(window.id !== null, "an empty window promises more");
    assert.ok(bytesOf(window) <= bytes, `${window.claims.length} events take ${bytesOf(window)} bytes`);
    for (const { unread, envelope } of window.claims)
      if (unread !== undefined) assert.deepEqual([window.claims.length, envelope.data.byteLength], [1, 0], "what is unread is alone");
    for (const claim of window.claims) taken.push(await relay.read(claim));
  }
  return taken;
}

function assertWhole(claims: readonly Claim[], rows: readonly Row[]): void {
  const data = new Map(claims.map(({ envelope }) => [envelope.id, Buffer.from(envelope.data)]));
  assert.equal(claims.length, rows.length);
  for (const { id, payload } of rows) assert.ok(data.get(id)?.equals(Buffer.from(payload as string)), `the payload of ${id} is not whole`);
}

/** How many payload bytes a window may hold: memory per relay is bounded, whatever was added. */
export function byteCases<Db, Tx>(suite: StoreSuite<Db, Tx>): void {
  const test = cases(suite, "bytes");

  test("the window is cut at the bound, and `more` says so", async (scene, relay) => {
    const rows = Array.from({ length: 12 }, (_, n) => scene.row(`order-${n}`, { payload: "x".repeat(1_000) }));
    await scene.add(...rows);
    const window = await relay.claim({ bytes: 3_500 });
    assert.deepEqual([window.claims.length, bytesOf(window), window.more], [3, 3_000, true]);
    const rest = await drain(relay, 3_500);
    assertWhole([...window.claims, ...rest], rows);
  });

  test("a bound that everything fits into cuts nothing", async (scene, relay) => {
    const ids = await scene.addTo("order-1", 20);
    const window = await relay.claim({ bytes: 1_000_000 });
    assert.deepEqual([idsOf(window), window.more], [ids, false]);
  });

  test("an event that alone is larger is claimed alone, with its whole payload, and others are not held up", async (scene, relay) => {
    const payload = `"${"🚚é1".repeat(40_000)}"`;
    const rows = [scene.row("small-1"), scene.row("large", { payload }), scene.row("small-2"), scene.row("large"), scene.row("small-3")];
    await scene.add(...rows);
    const claims = await drain(relay, 10_000);
    assertWhole(claims, rows);
    await scene.shows(rows[1]!.id, { payload });
  });

  test("bytes that are no text are bounded too", async (scene, relay) => {
    const bytes = Uint8Array.from({ length: 50_000 }, (_, n) => n & 0xff);
    const row = scene.row("order-1", { payload: bytes, contentType: "application/octet-stream" });
    await scene.add(row, scene.row("order-2"));
    const claims = await drain(relay, 1_000);
    assert.ok(Buffer.from(claims.find(({ envelope }) => envelope.id === row.id)!.envelope.data).equals(bytes));
  });

  test("an aggregate keeps its order across the cut, failed events and larger ones among them", async (scene, relay) => {
    const sizes = [100, 900, 10, 5_000, 400, 400, 20, 3_000, 1, 999];
    const rows = sizes.flatMap((size, n) => ["a", "b", "c"].map((name) => scene.row(name, { payload: "y".repeat(size + n) })));
    await scene.add(...rows);
    await relay.settle(await relay.claim({ limit: 3 }), retry(0));
    const claims = await drain(relay, 1_000);
    assertWhole(claims, rows);
    for (const name of ["a", "b", "c"]) inOrder(idsOf({ claims }), ids(rows.filter(({ aggregateId }) => aggregateId === name)));
  });

  test("narrow claims keep to the bound", async (scene, relay) => {
    const rows = Array.from({ length: 60 }, (_, n) => scene.row(`order-${n}`, { payload: "z".repeat(n === 30 ? 9_000 : 700) }));
    await scene.add(...rows);
    assert.equal((await relay.claim()).claims.length, 60);
    const claims = await drain(await scene.heir("r2"), 1_500, true);
    assertWhole(claims, rows);
  });

  test("an event larger than the bound that ends its relay is counted as alone", async (scene, dying) => {
    await scene.add(scene.row("large", { payload: "x".repeat(5_000) }), scene.row("small"));
    const window = await dying.claim({ bytes: 1_000 });
    assert.equal(window.claims.length, 1);
    const again = await (await scene.heir("r2")).claim({ bytes: 1_000, narrow: true });
    assert.deepEqual([idsOf(again), again.claims[0]!.deaths], [idsOf(window), 1]);
  });

  test("an event larger than the bound that has ended many relays is still claimed without its payload", async (scene) => {
    await scene.add(scene.row("large", { payload: "x".repeat(5_000) }));
    const found: unknown[] = [];
    for (let n = 0; n <= deathsToPark; n++) {
      const { claims } = await (await scene.heir(`r${n}`)).claim({ bytes: 1_000, narrow: n > 0 });
      found.push(claims.map(({ deaths, unread, envelope }) => [deaths, unread, envelope.data.byteLength]));
    }
    assert.deepEqual(
      found,
      Array.from({ length: deathsToPark + 1 }, (_, n) => [[n, 5_000, 0]]),
    );
  });

  test("an event larger than the sink takes is claimed unread, in its place, and others are not held up", async (scene, relay) => {
    const large = scene.row("large", { payload: `"${"é".repeat(2_000)}"` });
    const [first, follower, ...others] = [scene.row("large"), scene.row("large"), ...["a", "b", "c"].map((name) => scene.row(name))];
    await scene.add(others[0]!, first, large, others[1]!, follower, others[2]!);
    const seen: string[] = [];
    for await (const window of relay.windows({ bytes: 1_000_000, largest: 1_000 })) {
      seen.push(...idsOf(window));
      for (const { unread, envelope } of window.claims) {
        assert.equal(unread, envelope.id === large.id ? 4_002 : undefined);
        if (unread !== undefined) assert.equal(envelope.data.byteLength, 0);
      }
      // As a relay does it: the followers of a parked event were not sent.
      const judged = new Map([[large.id, parked(false, "MESSAGE_TOO_LARGE: no")]]);
      if (idsOf(window).includes(large.id)) judged.set(follower.id, returned);
      await relay.settle(window, judgeBy(judged));
    }
    assert.ok(seen.indexOf(first.id) < seen.indexOf(large.id));
    assert.deepEqual(await scene.states([first.id, large.id, follower.id]), ["PUBLISHED", "DEAD", "BLOCKED"]);
    assert.deepEqual(new Set(await scene.states(ids(others))), new Set(["PUBLISHED"]));
    await scene.shows(large.id, { lastError: "MESSAGE_TOO_LARGE: no" });
  });

  test("events larger than the sink takes share a window with others, and take none of its bytes", async (scene, relay) => {
    const tooLarge = ["x", "y"].flatMap((letter) =>
      Array.from({ length: 20 }, (_, n) => scene.row(`${letter}-${n}`, { payload: letter.repeat(letter === "x" ? 2_000 : 5_000) })),
    );
    const small = Array.from({ length: 20 }, (_, n) => scene.row(`order-${n}`, { payload: "z".repeat(100) }));
    const rows = Array.from({ length: 60 }, (_, n) => (n % 3 === 2 ? small : tooLarge)[n % 3 === 2 ? (n - 2) / 3 : n - Math.floor(n / 3)]!);
    await scene.add(...rows);
    const window = await relay.claim({ bytes: 4_000, largest: 1_000 });
    assert.deepEqual(idsOf(window), ids(rows));
    assert.equal(window.more, false);
    assert.deepEqual(
      window.claims.map(({ unread, envelope }) => unread ?? envelope.data.byteLength),
      rows.map(({ payload }) => payload.length),
    );
    assert.equal(bytesOf(window), 2_000);
  });

  test("an event that must be read is alone, with events before and behind it that the sink does not take", async (scene, relay) => {
    const sizes = [9_000, 3_000, 9_000, 100, 9_000, 3_000];
    await scene.add(...sizes.map((size, n) => scene.row(`order-${n}`, { payload: "x".repeat(size) })));
    const found: number[] = [];
    for await (const window of relay.windows({ bytes: 1_000, largest: 5_000 })) {
      const each = window.claims.map(({ unread, envelope }) => unread ?? envelope.data.byteLength);
      if (each.includes(3_000)) assert.deepEqual(each, [3_000]);
      found.push(...each);
    }
    assert.deepEqual(found, sizes);
  });

  test("narrow claims take events larger than the sink takes along", async (scene, relay) => {
    const rows = Array.from({ length: 60 }, (_, n) => scene.row(`order-${n}`, { payload: "z".repeat(n % 2 === 0 ? 9_000 : 100) }));
    await scene.add(...rows);
    const request = { bytes: 4_000, largest: 1_000 };
    assert.equal((await relay.claim(request)).claims.length, 60);
    const narrow = await (await scene.heir("r2")).claim({ ...request, narrow: true });
    assert.deepEqual(
      narrow.claims.map(({ unread }) => unread),
      [9_000, undefined, 9_000, undefined, 9_000, undefined],
    );
  });

  test("an event whose payload could not be read is claimed unread again, counts its attempts, and ends dead", async (scene, relay) => {
    const large = scene.row("large", { payload: "x".repeat(5_000) });
    await scene.add(large, scene.row("large"), scene.row("small"));
    const failures: number[] = [];
    for (let n = 0; n < 3; n++) {
      let window = await relay.claim({ bytes: 1_000 });
      while (!idsOf(window).includes(large.id)) {
        await relay.publish(window);
        window = await relay.claim({ bytes: 1_000 });
      }
      assert.deepEqual([window.claims.length, window.claims[0]!.unread], [1, 5_000]);
      failures.push(window.claims[0]!.failures);
      await relay.settle(window, n < 2 ? retry(0, "it did not arrive") : parked());
    }
    assert.deepEqual(failures, [0, 1, 2]);
    await scene.shows(large.id, { state: "DEAD" });
    assert.equal((await relay.drain({ bytes: 1_000 })).includes(large.id), false);
  });

  test("the payload of a row that has gone is refused in words", async (scene, relay) => {
    await scene.add(scene.row("large", { payload: "x".repeat(5_000) }));
    const { claims } = await relay.claim({ bytes: 1_000 });
    const gone = { ...claims[0]!, envelope: { ...claims[0]!.envelope, seq: claims[0]!.envelope.seq + 1_000n } };
    await assert.rejects(scene.store.outbox.payload(gone, new AbortController().signal), code("ROW_UNREADABLE"));
  });

  test("a payload read that is called off ends at once, leaves no connection in use, and can be repeated", async (scene, relay) => {
    const payload = "x".repeat(3_000_000);
    await scene.add(scene.row("large", { payload }));
    const window = await relay.claim({ bytes: 1_000 });
    const [claim] = window.claims;
    for (let n = 0; n < 30; n++) {
      const calling = new AbortController();
      if (n % 3 === 0) calling.abort();
      const reading = scene.store.outbox.payload(claim!, calling.signal).then(
        (data) => data.byteLength,
        (error: unknown) => error,
      );
      if (n % 3 === 1) await turn();
      calling.abort();
      const found = await reading;
      // A store that does not wait for a server may have read it already.
      if (found !== payload.length) assert.ok(code("STORE_UNAVAILABLE")(found), `not called off, but ${String(found)}`);
    }
    assertWhole([await relay.read(claim!)], [{ payload, id: claim!.envelope.id } as Row]);
    await relay.publish(window);
  });
}
