import { expect, test } from "vitest";
import { collect } from "../support/collect.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";
import { systemClock, turn } from "../../src/core/clock.ts";
import type { Outgoing, PublishResult } from "../../src/contracts/sink.ts";
import type { FedWindow } from "../../src/relay/feed.ts";
import { createOrder, type Order } from "../../src/relay/order.ts";
import { pack, type Parcel } from "../../src/relay/parcel.ts";
import { claim, publishing } from "./publishing.ts";

let moment = 0;
const settled = (order: Order, ...stopped: readonly Parcel[]): void => order.settled(stopped, ++moment);

/** A window that is read now. */
function parcels(...names: readonly (readonly [aggregate: string, n: number])[]): readonly Parcel[] {
  const window: FedWindow = { asOf: ++moment, claims: names.map(([aggregate, n]) => claim(aggregate, n)) };
  return pack(window, { topics: null, route: () => "t", source: "/", sink: { name: "s", can: { maxBytes: 1e6 } } });
}

test("an aggregate's next event may go when the one before it is published; others do not wait", () => {
  const order = createOrder();
  const [a1, a2, b3, a4] = parcels(["a", 1], ["a", 2], ["b", 3], ["a", 4]);
  expect([a1, a2, b3, a4].map((each) => order.admit(each!))).toEqual(["go", "wait", "go", "wait"]);
  expect(order.published(a1!)).toBe(a2);
  expect(order.published(b3!)).toBeNull();
  expect(order.published(a2!)).toBe(a4);
  expect(order.published(a4!)).toBeNull();
  const [a5] = parcels(["a", 5]);
  expect(order.admit(a5!)).toBe("go");
});

test("behind an event that was not published, all followers go back, and an earlier event that waits may go", () => {
  const order = createOrder();
  const [a5, a6, a3, a7] = parcels(["a", 5], ["a", 6], ["a", 3], ["a", 7]);
  for (const each of [a5, a6, a3, a7]) order.admit(each!);
  const { next, back } = order.stopped(a5!);
  expect(next).toBe(a3);
  expect(back).toEqual([a6, a7]);
  expect(order.published(a3!)).toBeNull();
});

test("what the sink has of a stopped aggregate is concluded by its own result", () => {
  const order = createOrder();
  const [a1, a2, a3] = parcels(["a", 1], ["a", 2], ["a", 3]);
  for (const each of [a1, a2, a3]) order.admit(each!);
  a1!.sent = a2!.sent = true;
  expect(order.stopped(a1!)).toEqual({ next: a2, back: [a3] });
  expect(order.stopped(a2!)).toEqual({ next: null, back: [] });
});

test("followers read before a stop was settled go back; events before it, and windows read later, do not", () => {
  const order = createOrder();
  const [stopped] = parcels(["x", 5]);
  const [follower, earlier, other] = parcels(["x", 6], ["x", 4], ["y", 6]);
  const [late] = parcels(["x", 7]);
  order.admit(stopped!);
  order.stopped(stopped!);
  expect([follower, earlier, other].map((each) => order.admit(each!))).toEqual(["back", "go", "go"]);
  settled(order, stopped!);
  expect(order.admit(late!), "its read began before that").toBe("back");
  settled(order, follower!, late!);
  order.published(earlier!);
  const [after] = parcels(["x", 6]);
  expect(order.admit(after!)).toBe("go");
});

test("a stop that is settled is forgotten with the next window that is read, whatever else is on its way: no failure stays in memory", async () => {
  const order = createOrder();
  const stopped = (): WeakRef<object> => {
    const [under, failed] = parcels(["on-its-way", 1], ["x", 2]);
    for (const each of [under, failed]) order.admit(each!);
    order.stopped(failed!);
    const [meanwhile] = parcels(["y", 3]);
    settled(order, failed!);
    order.admit(meanwhile!);
    return new WeakRef(failed!.stop!);
  };
  const stop = stopped();
  await turn();
  collect();
  expect(stop.deref(), "a window that is being read may hold its followers").toBeDefined();
  order.admit(parcels(["z", 4])[0]!);
  await turn();
  collect();
  expect(stop.deref()).toBeUndefined();
});

/** A sink whose publishes the test answers. */
function heldSink(run?: number) {
  const flights: { readonly ids: readonly string[]; answer(results?: readonly PublishResult[]): Promise<void> }[] = [];
  const publish = (batch: readonly Outgoing[]): Promise<readonly PublishResult[]> =>
    new Promise((resolve) =>
      flights.push({
        ids: batch.map(({ envelope }) => envelope.id),
        answer: async (results = batch.map(() => ({ status: "stored" }) as const)) => {
          resolve(results);
          for (let turns = 0; turns < 5; turns++) await turn();
        },
      }),
    );
  const can = { maxBytes: 1e6, ...(run === undefined ? {} : { run }) };
  const nothing = async (): Promise<void> => undefined;
  return { flights, sink: { name: "held", can, connect: nothing, probe: nothing, publish, [Symbol.asyncDispose]: nothing } };
}

test("windows of one topic go side by side where their aggregates differ; an event waits only for its own aggregate's", async () => {
  const { flights, sink } = heldSink(1);
  const { claimed, publish } = publishing({ sink, clock: systemClock, route: () => "t" });
  await publish(claimed(claim("a", 1), claim("b", 2)));
  await publish(claimed(claim("a", 3), claim("c", 4)));
  expect(flights.map(({ ids }) => ids)).toEqual([["a1", "b2"], ["c4"]]);
  await flights[0]!.answer();
  expect(flights[2]!.ids).toEqual(["a3"]);
});

test("an aggregate that needs many round trips goes apart: neither waits for the other's answer", async () => {
  const { flights, sink } = heldSink(1);
  const { claimed, publish } = publishing({ sink, clock: manualClock(0), route: () => "t" });
  await publish(claimed(claim("hot", 1), claim("cold", 2), claim("hot", 3), claim("hot", 4), claim("hot", 5)));
  expect(flights.map(({ ids }) => ids)).toEqual([["hot1"], ["cold2"]]);
  await flights[0]!.answer();
  await flights[2]!.answer();
  expect(flights.slice(2).map(({ ids }) => ids)).toEqual([["hot3", "hot4"], ["hot5"]]);
});

test("a sink that takes a whole run at once gets it with its topic", async () => {
  const { flights, sink } = heldSink();
  const { claimed, publish } = publishing({ sink, clock: systemClock, route: () => "t" });
  await publish(claimed(claim("hot", 1), claim("cold", 2), claim("hot", 3)));
  expect(flights.map(({ ids }) => ids)).toEqual([["hot1", "hot3", "cold2"]]);
});

test("where an aggregate spans topics, its next event waits for the one before, whatever their topics; the topic does not", async () => {
  const { flights, sink } = heldSink();
  const { claimed, publish } = publishing({ sink, clock: systemClock, route: ({ type }) => type });
  await publish(claimed(claim("a", 1, "slow"), claim("a", 2, "t"), claim("b", 3, "t")));
  expect(flights.map(({ ids }) => ids)).toEqual([["a1"], ["b3"]]);
  await flights[0]!.answer();
  expect(flights[2]!.ids).toEqual(["a2"]);
});

test("an outage is told of the first event of an aggregate only: its followers cost and hold nothing by themselves", async () => {
  const { flights, sink } = heldSink();
  const { claimed, publish } = publishing({ sink, clock: systemClock, route: () => "t" });
  const window = claimed(claim("a", 1), claim("a", 2), claim("b", 3));
  const published = publish(window);
  await turn();
  const lost = { status: "unknown", error: new Error("lost") } as const;
  await flights[0]!.answer([lost, lost, { status: "stored" }]);
  expect(await published).toEqual(["returned", "returned", "published"]);
});

test("where hot aggregates have all flights of a topic, the next one is for the others that wait, and so on by turns", async () => {
  const { flights, sink } = heldSink(1);
  const { claimed, publish } = publishing({ sink, clock: manualClock(0), route: () => "t" });
  for (let n = 1; n <= 8; n++) await publish(claimed(...[0, 1, 2, 3].map((i) => claim(`hot${n}-`, 10 * n + i))));
  await publish(claimed(claim("cold", 900), claim("cool", 901)));
  expect(flights).toHaveLength(8);
  for (const n of [0, 1, 2]) await flights[n]!.answer();
  const [first, ...others] = flights.slice(8).map(({ ids }) => ids);
  expect(first).toEqual(["cold900", "cool901"]);
  expect(others).toHaveLength(2);
  for (const ids of others) expect(ids[0]).toMatch(/^hot/);
});
