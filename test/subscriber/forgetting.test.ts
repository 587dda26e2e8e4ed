import { expect, it } from "vitest";
import { WaybillError } from "../../src/core/errors.ts";
import { eventually } from "./fakes.ts";
import { setup } from "./setup.ts";

const [hour, day] = [3_600_000, 86_400_000];

it("forgets a consumer's old marks in steps, soon after the start and then by the hour", async () => {
  const { inbox, subscriber, clock, of } = setup();
  inbox.old.push(1_000, 700);
  await subscriber({}).start();
  await clock.advance(8 * 60_000);
  await eventually(() => of("subscriber.forgot").length === 1);
  expect(inbox.forgets).toHaveLength(3);
  const [before, limit, consumer] = inbox.forgets[0] as [string, number, string];
  expect([limit, consumer]).toEqual([1_000, "stock"]);
  expect(clock.now() - Date.parse(before)).toBeGreaterThanOrEqual(30 * day);
  expect(clock.now() - Date.parse(before)).toBeLessThan(30 * day + 8 * 60_000);
  expect(of("subscriber.forgot")).toMatchObject([{ rows: 1_700, before, keptFor: null }]);
  await clock.advance(3 * hour);
  await eventually(() => of("subscriber.forgot").length >= 2);
});

it("keeps a mark for as long as the broker may deliver its event again, whatever the retention says", async () => {
  const { broker, inbox, subscriber, clock, of } = setup();
  const oldest = new Date(clock.now() - 90 * day);
  broker.oldest.set("order.events", oldest);
  await subscriber({ inboxRetentionMs: day }).start();
  await clock.advance(8 * 60_000);
  await eventually(() => of("subscriber.forgot").length === 1);
  const [before] = inbox.forgets[0] as [string];
  expect(Date.parse(before)).toBeLessThanOrEqual(oldest.getTime() - day);
  expect(of("subscriber.forgot")).toMatchObject([{ keptFor: "order.events" }]);
});

it("is done by one of several processes", async () => {
  const { inbox, subscriber, clock, of } = setup();
  for (let n = 0; n < 4; n++) await subscriber({}).start();
  await clock.advance(8 * 60_000);
  await eventually(() => of("subscriber.forgot").length === 1);
  expect(inbox.forgets).toHaveLength(1);
});

it("forgets nothing when it cannot ask the broker, and tells of it", async () => {
  const { broker, inbox, subscriber, clock, of } = setup();
  const source = { ...broker.both, oldest: () => Promise.reject(new WaybillError("DESTINATION_UNAVAILABLE", "away")) };
  await subscriber({ source }).start();
  await clock.advance(8 * 60_000);
  await eventually(() => of("subscriber.trouble").length === 1);
  expect(of("subscriber.trouble")).toMatchObject([{ step: "forget", error: "DESTINATION_UNAVAILABLE: away" }]);
  expect(inbox.forgets).toEqual([]);
});

it("is not done where it is switched off", async () => {
  const { inbox, subscriber, clock } = setup();
  await subscriber({ inboxRetentionMs: false }).start();
  await clock.advance(5 * hour);
  expect(inbox.forgets).toEqual([]);
});
