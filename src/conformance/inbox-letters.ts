import assert from "node:assert/strict";
import { letterRow, type Letter, type LetterRow } from "../core/letter.ts";
import { idOfBytes, unreadableEnvelope } from "../core/unreadable.ts";
import { sampleEvent } from "./corpus.ts";
import type { StoreSuite } from "./harness.ts";
import { cases, type Scene } from "./scene.ts";

const sampleLetter = (change: Partial<Letter> = {}): Letter => ({
  envelope: sampleEvent({ headers: { tenant: "t1" } }),
  topic: "order.events",
  consumer: "billing",
  code: "HANDLER_FAILED",
  error: "no such account",
  attempts: 5,
  ...change,
});

/** For comparison: bytes as plain text, so that a Buffer equals a Uint8Array of the same bytes. */
const comparable = (row: LetterRow): object => ({
  ...row,
  data: Buffer.from(row.data).toString("hex"),
  raw: row.raw === null ? null : Buffer.from(row.raw).toString("hex"),
});

/** The inbox keeps these letters, in this order, and no other. */
async function keeps<Db, Tx>({ letters }: Scene<Db, Tx>, expected: readonly Letter[]): Promise<void> {
  assert.deepEqual((await letters()).map(comparable), expected.map(letterRow).map(comparable));
}

const nul = "\0";
const difficult: readonly (readonly [about: string, letter: () => Letter])[] = [
  ["an ordinary event", () => sampleLetter({ handlerVersion: 3 })],
  ["an id with NUL", () => sampleLetter({ envelope: sampleEvent({ id: `a${nul}b` }) })],
  ["an empty id", () => sampleLetter({ envelope: sampleEvent({ id: "" }) })],
  ["an id longer than the column", () => sampleLetter({ envelope: sampleEvent({ id: "x".repeat(10_000) }) })],
  ["an id of characters of four bytes", () => sampleLetter({ envelope: sampleEvent({ id: "🚚".repeat(40) }) })],
  ["an id with half a character", () => sampleLetter({ envelope: sampleEvent({ id: "a\ud83d" }) })],
  [
    "names that no column takes",
    () => sampleLetter({ envelope: sampleEvent({ aggregateType: `🚚${nul}`.repeat(200), aggregateId: "\ud83d", type: "" }) }),
  ],
  ["a topic and a consumer of characters of four bytes", () => sampleLetter({ topic: "𝒲".repeat(63), consumer: "دفتر 🚚" })],
  ["an error with NUL, half a character and many lines", () => sampleLetter({ error: `a${nul}b\ud83d\n🚚`.repeat(2_000) })],
  ["an error without a code", () => sampleLetter({ code: "", error: "no", detail: "no, 17 times" })],
  ["one that was cut", () => sampleLetter({ cut: true })],
  ["a message that is no event", () => sampleLetter({ raw: Uint8Array.from({ length: 512 }, (_, n) => n & 0xff) })],
  ["a raw message of no bytes", () => sampleLetter({ raw: new Uint8Array(0), envelope: sampleEvent({ data: new Uint8Array(0) }) })],
  ["data that is no text", () => sampleLetter({ envelope: sampleEvent({ data: Uint8Array.of(0, 255, 254, 0) }) })],
  [
    "a megabyte",
    () => sampleLetter({ raw: new Uint8Array(1_000_000).fill(7), envelope: sampleEvent({ data: new Uint8Array(1_000_000) }) }),
  ],
  [
    "headers that JSON escapes",
    () => sampleLetter({ envelope: sampleEvent({ headers: { [`a${nul}`]: "\ud83d", __proto__x: '"\\' }, idempotencyKey: nul }) }),
  ],
  ["the last moment a date can hold", () => sampleLetter({ envelope: sampleEvent({ createdAt: new Date(8.64e15), seq: 2n ** 63n }) })],
];

/** Dead letters in the inbox's own database, and its steps of forgetting. */
export function letterCases<Db, Tx>(suite: StoreSuite<Db, Tx>): void {
  const test = cases(suite, "inbox");
  const key = { consumer: "billing", id: "e1" };

  for (const [about, make] of difficult) {
    test(`a letter is kept whole: ${about}`, async (scene) => {
      const letter = make();
      await scene.store.inbox.park(letter);
      await keeps(scene, [letter]);
    });
  }

  test("the first letter is kept as it is: the same message is no second one, another message with its id is", async (scene) => {
    const { inbox } = scene.store;
    const letter = sampleLetter();
    const { envelope } = letter;
    const raw = Uint8Array.of(1);
    const others = [
      { ...letter, envelope: { ...envelope, data: Uint8Array.of(1) } },
      { ...letter, envelope: { ...envelope, headers: { tenant: "t2" } } },
      { ...letter, envelope: { ...envelope, type: "OrderForged" } },
      { ...letter, raw },
      { ...letter, raw: Uint8Array.of(2) },
      { ...letter, raw, envelope: { ...envelope, data: Uint8Array.of(1) } },
    ];
    for (const parked of [letter, ...others]) {
      await inbox.park(parked);
      await inbox.park({ ...parked, code: "OTHER", error: "later", attempts: 9, handlerVersion: 2 });
    }
    await inbox.park(letter);
    await keeps(scene, [letter, ...others]);
  });

  test("a message that is known by its bytes stays one letter, whatever the broker adds when it delivers it again", async (scene) => {
    const { inbox } = scene.store;
    const letter = sampleLetter({ envelope: unreadableEnvelope(idOfBytes(Uint8Array.of(1))), raw: Uint8Array.of(1) });
    await inbox.park(letter);
    await inbox.park({ ...letter, raw: Uint8Array.of(1, 2) });
    await keeps(scene, [letter]);
  });

  test("letters are told apart byte by byte, by consumer, topic and id", async ({ store, letters }) => {
    const envelope = sampleEvent({ id: "e1" });
    const long = "x".repeat(300);
    const given = [
      sampleLetter({ envelope }),
      sampleLetter({ envelope, consumer: "Billing" }),
      sampleLetter({ envelope, topic: "order.events " }),
      ...["E1", "e1 ", "é1", "e\u03011", `${long}1`, `${long}2`, `e1${nul}`].map((id) => sampleLetter({ envelope: { ...envelope, id } })),
    ];
    for (const letter of [...given, ...given]) await store.inbox.park(letter);
    const named = (rows: readonly LetterRow[]): string[] => rows.map((row) => JSON.stringify([row.consumer, row.topic, row.id])).sort();
    assert.deepEqual(named(await letters()), named(given.map(letterRow)));
  });

  test("a letter marks its event: a late copy is not applied behind its followers", async ({ store, effect, effects, letters }) => {
    await store.inbox.failed(key, "no");
    await store.inbox.park(sampleLetter({ envelope: sampleEvent({ id: key.id }) }));
    assert.equal(await store.inbox.once(key, 1, (tx) => effect(tx, "paid")), "parked");
    assert.equal(await store.inbox.once({ ...key, consumer: "stock" }, 1, (tx) => effect(tx, "other")), "done");
    assert.deepEqual([(await letters()).length, await effects()], [1, ["other"]]);
    assert.equal(await store.inbox.failed(key, "no"), 1, "the mark deletes the count");
  });

  test("a letter of an event that was applied leaves its mark as it is", async ({ store }) => {
    await store.inbox.once(key, 1, () => undefined);
    await store.inbox.park(sampleLetter({ envelope: sampleEvent({ id: key.id }) }));
    assert.equal(await store.inbox.once(key, 1, () => undefined), "seen");
  });

  test("a message that is no event leaves no mark", async ({ store }) => {
    await store.inbox.park(sampleLetter({ envelope: sampleEvent({ id: key.id }), raw: Uint8Array.of(1) }));
    assert.equal(await store.inbox.once(key, 1, () => undefined), "done");
  });

  test("old marks and counts are forgotten in steps, and both are counted", async ({ store, clock }) => {
    const { inbox } = store;
    for (let n = 0; n < 25; n++) await inbox.once({ ...key, id: `mark-${n}` }, 1, () => undefined);
    for (let n = 0; n < 12; n++) await inbox.failed({ ...key, id: `failed-${n}` }, "no");
    await clock.advance(10_000);
    const between = new Date(clock.now() - 5_000);
    await inbox.once({ ...key, id: "young" }, 1, () => undefined);
    await inbox.failed({ ...key, id: "young, too" }, "no");
    const steps: number[] = [];
    do steps.push(await inbox.forget(between, 10));
    while (steps.at(-1)! > 0);
    assert.ok(Math.max(...steps) <= 20, `${steps.join(", ")} at a time`);
    const forgotten = steps.reduce((sum, n) => sum + n);
    assert.equal(forgotten, 37);
    assert.equal(await inbox.once({ ...key, id: "mark-24" }, 1, () => undefined), "done");
    assert.equal(await inbox.once({ ...key, id: "young" }, 1, () => undefined), "seen");
    assert.equal(await inbox.failed({ ...key, id: "failed-11" }, "no"), 1);
    assert.equal(await inbox.failed({ ...key, id: "young, too" }, "no"), 2);
  });

  test("one consumer's marks and counts are forgotten without the others'", async ({ store, clock }) => {
    const { inbox } = store;
    for (const consumer of ["billing", "billing2", "stock"]) {
      await inbox.once({ consumer, id: "e1" }, 1, () => undefined);
      await inbox.failed({ consumer, id: "e2" }, "no");
    }
    await clock.advance(10_000);
    const before = new Date(clock.now() - 5_000);
    assert.equal(await inbox.forget(before, 1_000, "billing"), 2);
    assert.equal(await inbox.forget(before, 1_000, "billing"), 0);
    assert.equal(await inbox.once({ consumer: "billing", id: "e1" }, 1, () => undefined), "done");
    assert.equal(await inbox.once({ consumer: "billing2", id: "e1" }, 1, () => undefined), "seen");
    assert.equal(await inbox.failed({ consumer: "stock", id: "e2" }, "no"), 2);
    assert.equal(await inbox.forget(before, 1_000), 3);
  });
}
