import { expect, test } from "vitest";
import { inFlights } from "../../src/brokers/kit/flights.ts";
import { skipped, stored, unknown } from "../../src/brokers/kit/results.ts";
import { sampleEvent } from "../../src/conformance/corpus.ts";
import type { PublishResult } from "../../src/contracts/sink.ts";
import { never } from "../../src/core/time.ts";

/** Messages of these aggregates and sizes; what each flight takes, and what is said of each message in the end. */
async function flown(
  all: readonly { readonly of: string; readonly type?: string; readonly bytes?: number }[],
  answer: (n: number) => PublishResult = () => stored,
  signal: AbortSignal = never,
  clock?: { monotonic(): number },
) {
  const messages = all.map(({ of, type = "Order", bytes = 1 }) => ({
    topic: "t",
    source: "/",
    envelope: sampleEvent({ aggregateId: of, aggregateType: type, data: new Uint8Array(bytes), headers: {} }),
  }));
  const flights: number[][] = [];
  const results = await inFlights(
    messages,
    signal,
    async (flight) => {
      const places = flight.map((message) => messages.indexOf(message));
      flights.push(places);
      return places.map(answer);
    },
    clock,
  );
  return { flights, results };
}

const different = (count: number, bytes = 1) => Array.from({ length: count }, (_, n) => ({ of: `order-${n}`, bytes }));

test("messages of different aggregates go in one flight, each result in its place", async () => {
  const lost = unknown(new Error("lost"));
  const { flights, results } = await flown(different(5), (n) => (n === 3 ? lost : stored));
  expect(flights).toEqual([[0, 1, 2, 3, 4]]);
  expect(results).toEqual([stored, stored, stored, lost, stored]);
});

test("a flight has no more than 2 MiB and 2,048 messages, and a larger message goes alone", async () => {
  const sizes = [1_000_000, 1_000_000, 1_000_000, 5_000_000, 10, 10].map((bytes, n) => ({ of: `order-${n}`, bytes }));
  expect((await flown(sizes)).flights).toEqual([[0, 1, 4, 5], [2], [3]]);
  expect((await flown(different(3_000))).flights.map(({ length }) => length)).toEqual([2_048, 952]);
});

test("an aggregate's next message goes when the one before it is stored, and the same id of another type does not wait", async () => {
  const all = [{ of: "a" }, { of: "b" }, { of: "a" }, { of: "a", type: "Invoice" }, { of: "b" }, { of: "a" }];
  const { flights, results } = await flown(all);
  expect(flights).toEqual([[0, 1, 3], [2, 4], [5]]);
  expect(results).toEqual(all.map(() => stored));
});

test("after one that is not stored, the rest of its aggregate is skipped and all others go on", async () => {
  const refused = unknown(new Error("too large"));
  const all = [{ of: "a" }, { of: "b" }, { of: "a" }, { of: "b" }, { of: "c" }, { of: "a" }, { of: "b" }, { of: "c" }];
  const { flights, results } = await flown(all, (n) => (n === 2 || n === 3 ? refused : stored));
  expect(flights).toEqual([
    [0, 1, 4],
    [2, 3, 7],
  ]);
  expect(results).toEqual([stored, stored, refused, refused, stored, skipped, skipped, stored]);
});

test("once the publish is called off nothing more is sent, and what was stored counts", async () => {
  const calling = new AbortController();
  const all = [{ of: "a" }, { of: "a" }, { of: "b" }, { of: "a" }];
  const { flights, results } = await flown(
    all,
    (n) => {
      if (n === 1) calling.abort();
      return stored;
    },
    calling.signal,
  );
  expect(flights).toEqual([[0, 2], [1]]);
  expect(results).toEqual([stored, stored, stored, skipped]);
});

test("once a publish has taken a second no aggregate's next message is sent, and first ones still are", async () => {
  let now = 0;
  const all = [{ of: "a" }, { of: "a" }, { of: "a" }, { of: "large", bytes: 3_000_000 }, { of: "a" }];
  const answer = (): PublishResult => {
    now += 400;
    return stored;
  };
  const { results } = await flown(all, answer, never, { monotonic: () => now });
  expect(results).toEqual([stored, stored, skipped, stored, skipped]);
});

test("no message gives no flight", async () => {
  expect(await flown([])).toEqual({ flights: [], results: [] });
});
