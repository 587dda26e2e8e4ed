import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { summarise, type Summary } from "../../src/dev/summary.ts";
import { inWords, judge } from "../../src/dev/verdict.ts";
import { changed, removeFolders, rows, soundShop } from "./dev-shop.ts";

let shop: string;
let ids: Record<string, string>;

beforeAll(async () => {
  shop = await soundShop();
  const history = await rows(shop, "orders", "SELECT event_id, order_id || version AS name FROM history");
  ids = Object.fromEntries(history.map(({ event_id, name }) => [name, String(event_id)] as [string, string]));
});

afterAll(removeFolders);

const nothingWrong = { lost: 0, undelivered: 0, invented: 0, outOfOrder: 0, doubled: 0, duplicatesInLog: 0, dead: 0, blocked: 0 };
const message = (id: string): string => `json_extract(attributes, '$.id') = '${id}'`;
const copyAs = (from: string, id: string): string =>
  `INSERT INTO waybill_broker_messages (topic, "key", attributes, data)
   SELECT topic, "key", json_set(attributes, '$.id', '${id}'), data FROM waybill_broker_messages WHERE ${message(from)};`;
/** Two events change places. */
const other = (column: string, a: string, b: string): string => `CASE ${column} WHEN '${a}' THEN '${b}' ELSE '${a}' END`;
const gone = (...names: string[]): { broker: string; inventory: string; payment: string; notification: string } => {
  const list = names.map((name) => `'${ids[name]}'`).join(", ");
  return {
    broker: `DELETE FROM waybill_broker_messages WHERE json_extract(attributes, '$.id') IN (${list})`,
    inventory: `DELETE FROM movements WHERE event_id IN (${list})`,
    payment: `DELETE FROM charges WHERE event_id IN (${list})`,
    notification: `DELETE FROM mails WHERE event_id IN (${list})`,
  };
};

describe("the summary", () => {
  test("of a shop in which all went well says so", async () => {
    const summary = await summarise(shop);
    expect(summary).toMatchObject({ ...nothingWrong, ordersCommitted: 2, rolledBack: 1, events: 6, published: 6, duplicateDeliveries: 0 });
    expect(summary.effects).toEqual({ inventory: 6, payment: 6, notification: 6 });
    const verdict = judge(summary, false);
    expect(verdict).toMatchObject({ held: true, broken: [] });
    expect(Object.values(verdict.promises)).toEqual([true, true, true, true, true]);
    expect(inWords(summary, verdict, false).at(-1)).toBe("Every promise held.");
  });

  type Planted = readonly [what: string, plant: () => Parameters<typeof changed>[1], found: Partial<Summary>, words: RegExp];
  const planted: readonly Planted[] = [
    ["an event that never reached the log", () => gone("a2"), { lost: 1, published: 5 }, /1 event was lost/],
    [
      "an event that a subscriber acknowledged and did not apply",
      () => ({ payment: `DELETE FROM charges WHERE event_id = '${ids["b1"]}'` }),
      { lost: 1, undelivered: 0 },
      /1 event was lost/,
    ],
    [
      "an event that a subscriber has not come to yet",
      () => ({
        payment: `DELETE FROM charges WHERE event_id = '${ids["b3"]}'`,
        broker: `UPDATE waybill_broker_consumers SET "offset" = "offset" - 1 WHERE consumer = 'payment'`,
      }),
      { lost: 0, undelivered: 1 },
      /not delivered in time/,
    ],
    [
      "an event that still waits in the outbox",
      () => ({ ...gone("a3"), orders: `UPDATE outbox SET status = 'PENDING' WHERE id = '${ids["a3"]}'` }),
      { lost: 0, undelivered: 1 },
      /not delivered in time/,
    ],
    [
      "an effect that happened twice",
      () => ({
        inventory: `INSERT INTO movements (event_id, order_id, version, units) SELECT event_id, order_id, version, units FROM movements WHERE event_id = '${ids["a1"]}'`,
      }),
      { doubled: 1, duplicateDeliveries: 1, outOfOrder: 0 },
      /1 effect happened twice/,
    ],
    [
      "a duplicate in the log that no fault explains",
      () => ({ broker: copyAs(ids["a1"]!, ids["a1"]!) }),
      { duplicatesInLog: 1, duplicatesAllowed: 0, doubled: 0, outOfOrder: 0 },
      /the faults explain 0/,
    ],
    [
      "two events of an order in the wrong order in the log",
      () => ({
        broker: `UPDATE waybill_broker_messages SET attributes = json_set(attributes, '$.id', ${other("json_extract(attributes, '$.id')", ids["a1"]!, ids["a2"]!)})
          WHERE ${message(ids["a1"]!)} OR ${message(ids["a2"]!)}`,
      }),
      { outOfOrder: 1, lost: 0 },
      /1 event came out of order/,
    ],
    [
      "two events of an order applied in the wrong order",
      () => ({
        notification: `UPDATE mails SET event_id = ${other("event_id", ids["b2"]!, ids["b3"]!)} WHERE event_id IN ('${ids["b2"]}', '${ids["b3"]}')`,
      }),
      { outOfOrder: 1, lost: 0 },
      /out of order/,
    ],
    [
      "an event in the log that nobody committed",
      () => ({ broker: copyAs(ids["a1"]!, "phantom") }),
      { invented: 1 },
      /1 event was invented/,
    ],
    [
      "an event that is published though its transaction rolled back",
      () => ({ orders: `DELETE FROM orders WHERE id = 'b'; DELETE FROM history WHERE order_id = 'b'` }),
      { invented: 3, ordersCommitted: 1, events: 3 },
      /3 events were invented/,
    ],
    [
      "an effect of an event that nobody committed",
      () => ({ notification: "INSERT INTO mails (event_id, order_id, version, text) VALUES ('phantom', 'a', 1, '')" }),
      { invented: 1 },
      /invented/,
    ],
    [
      "a follower that overtook a dead event",
      () => ({ ...gone("a2"), orders: `UPDATE outbox SET status = 'DEAD' WHERE id = '${ids["a2"]}'` }),
      { outOfOrder: 1, dead: 1, lost: 0 },
      /out of order/,
    ],
    [
      "an event that died though nobody poisoned it",
      () => ({ ...gone("a3"), orders: `UPDATE outbox SET status = 'DEAD' WHERE id = '${ids["a3"]}'` }),
      { dead: 1, undelivered: 1, lost: 0 },
      /not delivered/,
    ],
  ];

  test.each(planted)("finds %s", async (_, plant, found, words) => {
    const summary = await summarise(await changed(shop, plant()));
    expect(summary).toMatchObject(found);
    const verdict = judge(summary, false);
    expect(verdict.held).toBe(false);
    expect(inWords(summary, verdict, false).at(-1)).toMatch(words);
  });

  test("allows a poisoned event to be dead and its followers to be blocked", async () => {
    const folder = await changed(shop, {
      ...gone("a2", "a3"),
      orders: `UPDATE outbox SET status = 'DEAD', headers = '{"shop-poison":"yes"}' WHERE id = '${ids["a2"]}';
        UPDATE outbox SET status = 'BLOCKED' WHERE id = '${ids["a3"]}'`,
    });
    const summary = await summarise(folder);
    expect(summary).toMatchObject({ ...nothingWrong, dead: 1, blocked: 1, published: 4 });
    expect(judge(summary, false).held).toBe(true);
  });

  test("allows as many duplicates in the log as the faults may have caused, and no effect of them", async () => {
    const folder = await changed(shop, {
      broker: copyAs(ids["a1"]!, ids["a1"]!),
      orders: "INSERT INTO faults VALUES ('now', 'relay killed', 'relay-1')",
      payment: `INSERT INTO redeliveries VALUES ('${ids["a1"]}')`,
    });
    const summary = await summarise(folder);
    expect(summary).toMatchObject({ duplicatesInLog: 1, duplicateDeliveries: 1, doubled: 0, faults: { "relay killed": 1 } });
    expect(judge(summary, false).held).toBe(true);
  });

  test("of a naive shop turns on losses alone, and says what they mean", async () => {
    const invented = await summarise(await changed(shop, { broker: copyAs(ids["a1"]!, "phantom") }));
    expect(judge(invented, true)).toMatchObject({ held: true, promises: { noPhantom: false } });
    const lost = await summarise(await changed(shop, gone("a2")));
    const verdict = judge(lost, true);
    expect(verdict.held).toBe(false);
    expect(inWords(lost, verdict, true).join("\n")).toMatch(/Dual writes: 1 event was lost\.\nNobody will ever deliver what was lost/);
  });
});
