import assert from "node:assert/strict";
import type { ConsumerState } from "../contracts/consumers.ts";
import type { LetterFilter, LetterRecord } from "../contracts/letters.ts";
import { MarkHeld } from "../core/blameless.ts";
import type { Letter } from "../core/letter.ts";
import { isWaybillError, type ErrorCode } from "../core/errors.ts";
import { sampleEvent } from "./corpus.ts";
import type { StoreSuite } from "./harness.ts";
import { cases, type Scene } from "./scene.ts";

const ann = { who: "ann", dryRun: false };
const consumer = "billing";
const topic = "order.events";

const letterFor = (id: string, change: Partial<Letter> = {}): Letter => ({
  envelope: sampleEvent({ id, aggregateId: `order-${id}`, headers: { tenant: "t1" } }),
  ...{ consumer, topic, code: "NO_ACCOUNT", error: "no such account", detail: `no such account: ${id}`, attempts: 5 },
  ...change,
});

async function parked<Db, Tx>({ store }: Scene<Db, Tx>, letters: readonly Letter[]): Promise<void> {
  for (const letter of letters) await store.inbox.park(letter);
}

/** Redrives the letter of this event, and answers its number. */
async function redriven<Db, Tx>({ store }: Scene<Db, Tx>, id: string): Promise<bigint> {
  assert.equal((await store.letters.redrive({ consumer, ids: [id] }, ann)).letters, 1);
  const found = (await store.letters.redriven(consumer, topic, 100)).find((letter) => letter.id === id);
  return found!.seq;
}

const idsOf = (letters: readonly LetterRecord[]): readonly string[] => letters.map(({ id }) => id);

const rejectsWith = async (code: ErrorCode, call: Promise<unknown>): Promise<void> => {
  await assert.rejects(call, (error) => isWaybillError(error, code));
};

/** What an operator sees of letters and does with them, and how a subscriber applies those that were redriven. */
export function lettersSuite<Db, Tx>(suite: StoreSuite<Db, Tx>): void {
  const test = cases(suite, "letters");

  test("letters of one cause are one group, by consumer and topic", async (scene) => {
    const cause = { code: "", error: "the carrier is closed" };
    await parked(scene, [
      ...["a", "b", "c"].map((id) => letterFor(id)),
      ...["d", "e"].map((id) => letterFor(id, cause)),
      letterFor("a", { consumer: "stock" }),
      letterFor("b", { topic: "parcel.events" }),
    ]);
    const { letters } = scene.store;
    await letters.redrive({ consumer, topic, ids: ["b"] }, ann);
    const groups = async (filter: LetterFilter): Promise<readonly string[]> =>
      (await letters.groups(filter)).map((group) => `${group.consumer} ${group.topic} ${group.error} ${group.letters} ${group.redriven}`);
    assert.deepEqual(await groups({ consumer, topic }), [
      "billing order.events NO_ACCOUNT: no such account 3 1",
      "billing order.events the carrier is closed 2 0",
    ]);
    assert.equal((await groups({})).length, 4);
    assert.deepEqual(await groups({ consumer: "stock" }), ["stock order.events NO_ACCOUNT: no such account 1 0"]);
    assert.deepEqual(await groups({ consumer, error: "NO_ACC" }), [
      "billing order.events NO_ACCOUNT: no such account 3 1",
      "billing parcel.events NO_ACCOUNT: no such account 1 0",
    ]);
    assert.deepEqual(await groups({ consumer, error: "the carrier" }), ["billing order.events the carrier is closed 2 0"]);
    assert.deepEqual(await groups({ consumer, error: "carrier%" }), []);
    const [first] = await letters.groups({ consumer, topic });
    assert.ok(["a", "b", "c"].includes(first!.example));
    assert.ok(Math.abs(first!.oldest.getTime() - scene.clock.now()) < 600_000);
  });

  test("a look counts each consumer's letters by topic, and events that are retried", async (scene) => {
    const { consumers, inbox, letters } = scene.store;
    assert.deepEqual(await consumers.look(), []);
    assert.deepEqual(await consumers.look(consumer), [{ consumer, reads: [], letters: [], retrying: null, handled: 0 }]);
    // More causes than `groups` answers.
    await parked(scene, [
      ...Array.from({ length: 120 }, (_, n) => letterFor(`e${n}`, { error: `cause ${"x".repeat(n + 1)}` })),
      letterFor("a", { topic: "parcel.events" }),
      letterFor("a", { consumer: "stock" }),
    ]);
    await letters.redrive({ consumer, topic, ids: ["e0", "e1"] }, ann);
    await inbox.failed({ consumer, id: "f" }, "no");
    for (let times = 0; times < 3; times++) await inbox.failed({ consumer, id: "g" }, "no");
    await inbox.failed({ consumer: "mail", id: "f" }, "no");
    await inbox.once({ consumer, id: "done" }, 1, () => undefined);
    const told = async (name?: string): Promise<readonly string[]> =>
      (await consumers.look(name)).map((of) => {
        const byTopic = of.letters.map((each) => `${each.topic} ${each.letters} ${each.redriven}`);
        return `${of.consumer}: ${byTopic.join(", ")}; ${of.retrying?.events} ${of.retrying?.attempts}; ${of.handled}`;
      });
    const billing = "billing: order.events 120 2, parcel.events 1 0; 2 3;";
    assert.deepEqual(await told(), [`${billing} null`, "mail: ; 1 1; null", "stock: order.events 1 0; undefined undefined; null"]);
    assert.deepEqual(await told(consumer), [`${billing} 1`]);
    const [{ letters: counts, retrying }] = (await consumers.look(consumer)) as [ConsumerState];
    const recent = (moment: Date): boolean => Math.abs(moment.getTime() - scene.clock.now()) < 600_000;
    assert.ok(recent(retrying!.failedAt) && counts.every(({ oldest }) => recent(oldest)));
    await inbox.once({ consumer, id: "g" }, 1, () => undefined);
    await parked(scene, [letterFor("f")]);
    assert.equal((await consumers.look(consumer))[0]!.retrying, null, "what was applied or parked is not retried");
  });

  test("letters are listed newest first, page by page, and shown whole", async (scene) => {
    const given = ["a", "b", "c", "d"].map((id) => letterFor(id));
    await parked(scene, given);
    const { letters } = scene.store;
    const page = await letters.list({ consumer, limit: 3 });
    assert.deepEqual(idsOf(page), ["d", "c", "b"]);
    assert.deepEqual(idsOf(await letters.list({ consumer, limit: 3, beforeSeq: page[2]!.seq })), ["a"]);
    const { envelope, raw, ...shown } = (await letters.show(page[0]!.seq))!;
    assert.deepEqual(shown, page[0]);
    assert.deepEqual({ ...envelope, data: [...envelope.data] }, { ...given[3]!.envelope, data: [...given[3]!.envelope.data] });
    assert.equal(raw, null);
    const { error, errorCode, errorDetail, attempts, handlerVersion, unfit, redrivenAt, aggregateId, bytes } = page[0]!;
    assert.deepEqual(
      [errorCode, error, errorDetail, attempts, handlerVersion],
      ["NO_ACCOUNT", "no such account", "no such account: d", 5, 1],
    );
    assert.deepEqual([unfit, redrivenAt, aggregateId, bytes], [null, null, "order-d", given[3]!.envelope.data.byteLength]);
    assert.equal(await letters.show(page[0]!.seq + 1_000n), null);
  });

  test("a redrive gives letters to their consumer and no other, in the order in which they were parked", async (scene) => {
    await parked(scene, [
      ...["a", "b", "c", "d"].map((id) => letterFor(id)),
      letterFor("a", { consumer: "stock" }),
      letterFor("x", { topic: "parcel.events" }),
    ]);
    const { letters } = scene.store;
    const { last: _, ...dry } = await letters.redrive({ consumer, topic }, { ...ann, dryRun: true });
    assert.deepEqual(dry, { letters: 4, unfit: 0, ids: ["a", "b", "c", "d"] });
    assert.deepEqual(await letters.redriven(consumer, topic, 100), [], "a dry run changes nothing");
    const first = await letters.redrive({ consumer, topic }, { ...ann, most: 3 });
    assert.deepEqual(first.ids, ["a", "b", "c"]);
    // One of them has failed again meanwhile. A redrive that goes on with `after` does not redrive it a second time.
    const [again] = await letters.redriven(consumer, topic, 1);
    await scene.store.inbox.park(letterFor("a", { again: again!.seq }));
    assert.deepEqual((await letters.redrive({ consumer, topic }, { ...ann, most: 3, after: first.last! })).ids, ["d"]);
    assert.deepEqual((await letters.redrive({ consumer, topic }, { ...ann, most: 3 })).ids, ["a"]);
    assert.equal((await letters.redrive({ consumer, topic }, { ...ann, most: 3 })).letters, 0);
    assert.deepEqual(idsOf(await letters.redriven(consumer, topic, 100)), ["a", "b", "c", "d"]);
    assert.deepEqual(idsOf(await letters.redriven(consumer, topic, 2)), ["a", "b"]);
    assert.deepEqual(await letters.redriven("stock", topic, 100), []);
    assert.deepEqual(await letters.redriven(consumer, "parcel.events", 100), []);
    assert.deepEqual(await scene.audit(), [
      { who: "ann", action: "redrive", events: 3 },
      { who: "ann", action: "redrive", events: 1 },
      { who: "ann", action: "redrive", events: 1 },
    ]);
  });

  test("what no handler can be given is refused by its id, and counted otherwise", async (scene) => {
    await parked(scene, [letterFor("a"), letterFor("raw", { raw: Uint8Array.of(1) }), letterFor("cut", { cut: true })]);
    const { letters } = scene.store;
    await rejectsWith("WRONG_STATE", letters.redrive({ consumer, ids: ["raw"] }, ann));
    await rejectsWith("WRONG_STATE", letters.redrive({ consumer, ids: ["a", "cut"] }, ann));
    await rejectsWith("NOT_FOUND", letters.redrive({ consumer, ids: ["none"] }, ann));
    await rejectsWith("NOT_FOUND", letters.discard({ consumer: "stock", ids: ["a"] }, ann));
    assert.deepEqual(await letters.redriven(consumer, topic, 100), [], "nothing was redriven");
    const { last: _, ...told } = await letters.redrive({ consumer }, ann);
    assert.deepEqual(told, { letters: 1, unfit: 2, ids: ["a"] });
    assert.equal((await letters.discard({ consumer, ids: ["raw", "cut"] }, ann)).letters, 2);
  });

  test("a redriven letter is applied once, and goes away with its effect", async (scene) => {
    const { store, effect, effects } = scene;
    await parked(scene, [letterFor("a"), letterFor("b")]);
    const seq = await redriven(scene, "a");
    const key = { consumer, id: "a" };
    await assert.rejects(
      store.inbox.once(
        key,
        2,
        async (tx) => {
          await effect(tx, "half");
          throw new Error("no");
        },
        seq,
      ),
    );
    assert.deepEqual(idsOf(await store.letters.redriven(consumer, topic, 9)), ["a"], "a failure keeps the letter");
    assert.equal(await store.inbox.once(key, 1, (tx) => effect(tx, "late copy")), "parked", "and its mark");
    const both = await Promise.allSettled([1, 2].map(() => store.inbox.once(key, 2, (tx) => effect(tx, "paid"), seq)));
    const [first, second] = both.map((each) => (each.status === "fulfilled" ? each.value : (each.reason as unknown)));
    assert.ok([first, second].includes("done"), "one of two at once applies it");
    assert.ok(
      [first, second].some((each) => each === "seen" || each instanceof MarkHeld),
      "and the other sees it, or does not wait for it",
    );
    assert.equal(await store.inbox.once(key, 2, (tx) => effect(tx, "again")), "seen");
    assert.deepEqual(await effects(), ["paid"]);
    assert.deepEqual(idsOf(await store.letters.list({ consumer, limit: 9 })), ["b"]);
    // Of two concurrent calls, the second deletes what the first has left. Here there is only one.
    const alone = await redriven(scene, "b");
    assert.equal(await store.inbox.once({ consumer, id: "b" }, 2, (tx) => effect(tx, "alone"), alone), "done");
    assert.deepEqual([await effects(), await store.letters.list({ consumer, limit: 9 })], [["paid", "alone"], []]);
  });

  test("a letter that was not redriven, or was discarded, is not applied", async (scene) => {
    const { store, effect, effects } = scene;
    await parked(scene, [letterFor("a"), letterFor("b")]);
    const [b, a] = await store.letters.list({ consumer, limit: 2 });
    assert.equal(await store.inbox.once({ consumer, id: "a" }, 1, (tx) => effect(tx, "paid"), a!.seq), "seen");
    await redriven(scene, "b");
    assert.equal((await store.letters.discard({ consumer, ids: ["b"] }, ann)).letters, 1);
    assert.equal(await store.inbox.once({ consumer, id: "b" }, 1, (tx) => effect(tx, "paid"), b!.seq), "seen");
    assert.deepEqual(await effects(), []);
    assert.equal(await store.inbox.once({ consumer, id: "b" }, 1, () => undefined), "parked", "its mark stays");
    assert.deepEqual(idsOf(await store.letters.list({ consumer, limit: 2 })), ["a"]);
  });

  test("a letter of an event that was applied before goes away without an effect", async (scene) => {
    const { store, effect, effects } = scene;
    await store.inbox.once({ consumer, id: "a" }, 1, (tx) => effect(tx, "paid"));
    await parked(scene, [letterFor("a")]);
    assert.equal(await store.inbox.once({ consumer, id: "a" }, 1, (tx) => effect(tx, "twice"), await redriven(scene, "a")), "seen");
    assert.deepEqual(await effects(), ["paid"]);
    assert.deepEqual(await store.letters.list({ consumer, limit: 9 }), []);
  });

  test("a letter without a mark is applied as well: a mark may have been forgotten", async (scene) => {
    const { store, effect, effects, clock } = scene;
    await parked(scene, [letterFor("a")]);
    await clock.advance(10_000);
    await store.inbox.forget(new Date(clock.now() - 1_000), 100);
    const seq = await redriven(scene, "a");
    assert.equal(await store.inbox.once({ consumer, id: "a" }, 1, (tx) => effect(tx, "paid"), seq), "done");
    assert.deepEqual([await effects(), await store.letters.list({ consumer, limit: 9 })], [["paid"], []]);
  });

  test("a letter that fails again stays one letter, with its new reason", async (scene) => {
    const { store } = scene;
    await parked(scene, [letterFor("a"), letterFor("b")]);
    const seq = await redriven(scene, "a");
    assert.equal(await store.inbox.failed({ consumer, id: "a" }, "no"), 1, "attempts begin anew");
    await store.inbox.park(
      letterFor("a", { again: seq, code: "CLOSED", error: "the carrier is closed", detail: "", attempts: 3, handlerVersion: 2 }),
    );
    const [b, a] = await store.letters.list({ consumer, limit: 9 });
    assert.deepEqual([b!.id, a!.id, a!.seq], ["b", "a", seq]);
    const { errorCode, error, errorDetail, attempts, handlerVersion, redrivenAt } = a!;
    assert.deepEqual([errorCode, error, errorDetail, attempts, handlerVersion], ["CLOSED", "the carrier is closed", "", 3, 2]);
    assert.equal(redrivenAt, null);
    assert.equal(await store.inbox.failed({ consumer, id: "a" }, "no"), 1);
    await store.inbox.park(letterFor("a", { again: seq + 1_000n }));
    assert.equal((await store.letters.list({ consumer, limit: 9 })).length, 2, "one that is gone does not come back");
  });
}
