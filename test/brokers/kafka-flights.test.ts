import { describe, expect, test } from "vitest";
import { BatchWriter } from "../../src/brokers/kafka/writing/batch-writer.ts";
import { loadFlights, type Loading } from "../../src/brokers/kafka/writing/flights.ts";
import { partitionOf } from "../../src/brokers/kafka/reading/partition.ts";
import { createRemainder } from "../../src/brokers/kafka/writing/remainder.ts";
import type { WritableTopic } from "../../src/brokers/kafka/topics.ts";
import { sampleEvent } from "../../src/conformance/corpus.ts";
import type { Outgoing, PublishResult } from "../../src/contracts/sink.ts";
import { skipped } from "../../src/brokers/kit/results.ts";

const place = (name: string, partitions: number, limit = 1_000_000): WritableTopic => ({
  topic: { name, id: name, partitions: Array.from({ length: partitions }, () => ({ leader: 1, replicas: 1 })) },
  ...{ limit, brokers: new Map([[1, { host: "h", port: 1 }]]) },
});
const refused: PublishResult = { status: "refused", blame: "destination", retryable: true, error: new Error("no") };

/** What was said of messages such as "a1": the first letter is the aggregate, and of "u:a1" the topic too. */
function loading(names: readonly string[], more: Partial<Loading> & { readonly large?: string; readonly reserved?: string } = {}) {
  const { large = "", reserved = "", ...rest } = more;
  const messages: Outgoing[] = names.map((name) => {
    const [topic, own] = name.includes(":") ? (name.split(":") as [string, string]) : ["t", name];
    const headers = own === reserved ? { ce_id: "1" } : undefined;
    const envelope = { aggregateId: own[0]!, data: Buffer.alloc(own === large ? 3_000 : 500, own), ...(headers && { headers }) };
    return { topic, source: "/", envelope: sampleEvent(envelope) };
  });
  const remainder = createRemainder(messages);
  const places = new Map([
    ["t", place("t", 1, 2_000)],
    ["u", place("u", 1)],
  ]);
  const usual = {
    messages,
    remainder,
    places,
    maxBytes: 1_000_000,
    limits: new Map(),
    writer: new BatchWriter(),
    now: 0,
    shown: "kafka://test",
  };
  const load = () => {
    const flights = loadFlights({ ...usual, forget: () => undefined, ...rest });
    return { flights, loaded: flights.map(({ key, indexes }) => [key, ...indexes.map((index) => names[index])]) };
  };
  return { remainder, load, said: () => remainder.results.map((result) => ("error" in result ? result.error.message : result.status)) };
}

describe("kafka: flights", () => {
  const four = ["a1", "b1", "a2", "b2"];

  test("take what waits for a partition in the order given, up to what its batches may hold, and the rest when that is stored", () => {
    const { load, remainder, said } = loading(["a1", "b1", "a2", "c1", "b2"]);
    const { flights, loaded } = load();
    expect(loaded).toEqual([["t:0", "a1", "b1"]]);
    expect(flights[0]!.batch).toMatchObject({ count: 2, topic: "t", partition: 0 });
    remainder.store(flights[0]!.indexes);
    expect(load().loaded).toEqual([["t:0", "a2", "c1"]]);
    expect(said()).toEqual(["stored", "stored", "skipped", "skipped", "skipped"]);
  });

  test("take nothing of a partition behind a message that has to wait, however small it is: it may be of the same aggregate", () => {
    const { load } = loading(["a1", "b1", "a2", "a3"], { large: "a2", places: new Map([["t", place("t", 1, 4_500)]]) });
    expect(load().loaded).toEqual([["t:0", "a1", "b1"]]);
  });

  test("hold no more than a batch has turned out to be, and a message alone always", () => {
    expect(loading(four, { limits: new Map([["t:0", 1_000]]) }).load().loaded).toEqual([["t:0", "a1"]]);
    expect(loading(four, { limits: new Map([["t:0", 0]]) }).load().loaded).toEqual([["t:0", "a1"]]);
  });

  test("take a batch that is as large as the topic allows to the byte, and refuse a message that is one byte larger", () => {
    const only = (limit: number) => loading(["a1"], { maxBytes: limit });
    const bytes = only(2_000).load().flights[0]!.batch.bytes.length;
    expect(only(bytes).load().loaded).toEqual([["t:0", "a1"]]);
    const smaller = only(bytes - 1);
    expect(smaller.load().loaded).toEqual([]);
    expect(smaller.said()).toEqual([expect.stringContaining(`takes ${bytes} bytes with its headers, and t takes ${bytes - 1}`)]);
  });

  test("leave out a message that is refused here and what stands behind it, and take those of other aggregates", () => {
    const { load, said } = loading(["a1", "a2", "a3", "b1"], { large: "a2", maxBytes: 2_600 });
    expect(load().loaded).toEqual([["t:0", "a1", "b1"]]);
    expect(said()).toEqual(["skipped", expect.stringMatching(/takes 3\d+ bytes/), "skipped", "skipped"]);
    const other = loading(["a1", "a2", "b1"], { reserved: "a1" });
    expect(other.load().loaded).toEqual([["t:0", "b1"]]);
    expect(other.said()).toEqual([expect.stringContaining('header "ce_id"'), "skipped", "skipped"]);
  });

  test("a message that was refused here is skipped when one of its aggregate before it is not stored", () => {
    const { load, remainder, said } = loading(["a1", "a2", "a3"], { large: "a2", maxBytes: 2_600 });
    const [flight] = load().flights;
    for (const index of flight!.indexes) remainder.stop(index, refused);
    expect(said()).toEqual(["no", "skipped", "skipped"]);
    expect(remainder.waiting()).toEqual([]);
    expect(remainder.results[1]).toBe(skipped);
  });

  test("of an aggregate that spans topics take what comes next and has one topic, and the others' all", () => {
    const { load, remainder } = loading(["a1", "u:a2", "a3", "u:b1", "u:b2", "c1"]);
    const first = load();
    expect(first.loaded).toEqual([["t:0", "a1", "c1"], ["u:0", "u:b1", "u:b2"]]); // prettier-ignore
    for (const { indexes } of first.flights) remainder.store(indexes);
    const second = load();
    expect(second.loaded).toEqual([["u:0", "u:a2"]]);
    for (const { indexes } of second.flights) remainder.store(indexes);
    expect(load().loaded).toEqual([["t:0", "a3"]]);
  });

  test("go to the partition of the key, each with its own batch", () => {
    const names = ["a1", "b1", "c1", "d1", "e1", "f1"];
    const { load } = loading(names, { places: new Map([["t", place("t", 3)]]) });
    const { flights, loaded } = load();
    expect(flights.length).toBeGreaterThan(1);
    for (const { batch, indexes } of flights)
      for (const index of indexes) expect(partitionOf(Buffer.from(names[index]![0]!), 3)).toBe(batch.partition);
    expect(loaded.flatMap(([, ...own]) => own).toSorted()).toEqual(names);
  });

  test("carry eight megabytes together, and one message that has more alone", () => {
    const messages = ["a", "b", "c"].map((aggregateId) => ({
      topic: "t",
      source: "/",
      envelope: sampleEvent({ aggregateId, data: Buffer.alloc(5_000_000) }),
    }));
    const remainder = createRemainder(messages);
    const more = { messages, remainder, maxBytes: 20_000_000, places: new Map([["t", place("t", 3, 20_000_000)]]) };
    for (const left of [2, 1, 0]) {
      const { flights } = loading([], more).load();
      expect(flights.map(({ indexes }) => indexes.length)).toEqual([1]);
      for (const { indexes } of flights) remainder.store(indexes);
      expect(remainder.waiting()).toHaveLength(left);
    }
  });
});
