import { describe, expect, test } from "vitest";
import { codes } from "../../src/brokers/kafka/codes.ts";
import type { Link } from "../../src/brokers/kafka/link.ts";
import { seal, type BatchAnswer, type Batch } from "../../src/brokers/kafka/writing/batch.ts";
import { batchesIn } from "../../src/brokers/kafka/reading/batches.ts";
import type { Producer } from "../../src/brokers/kafka/writing/producer.ts";
import { createSink } from "../../src/brokers/kafka/sink.ts";
import type { Directory, WritableTopic } from "../../src/brokers/kafka/topics.ts";
import { sampleEvent } from "../../src/conformance/corpus.ts";
import { systemClock } from "../../src/core/clock.ts";

const never = new AbortController().signal;
const link = { shown: "kafka://test", clock: { ...systemClock, sleep: () => Promise.resolve() } } as unknown as Link;
const address = { host: "h", port: 1 };
const place: WritableTopic = {
  topic: { name: "t", id: "1", partitions: [{ leader: 1, replicas: 1 }] },
  limit: 1_000_000,
  brokers: new Map([[1, address]]),
};
const code = (number: number): BatchAnswer => ({ code: number, said: null });

const valuesOf = (batch: Batch): string[] => {
  seal(batch, { id: 1n, epoch: 0, sequence: 0, isTransactional: false });
  return [...batchesIn(batch.bytes)].flatMap(({ records }) => records.map(({ value }) => String(value)));
};

/** A sink whose partition gives these answers, one after the other, and stores everything when there are no more. */
function scripted(...script: readonly ((batch: Batch) => BatchAnswer)[]) {
  const sent: string[][] = [];
  const looks: string[] = [];
  let opened = 0;
  let disowned = 0;
  let left = [...script];
  const directory: Directory = {
    find: async (topics) => new Map(topics.map((topic) => [topic, topic === "gone" ? new Error("no topic") : place])),
    forget: (topic) => void looks.push(topic),
  };
  const producers = {
    async take(): Promise<Producer> {
      opened += 1;
      let spent = false;
      return {
        get spent() {
          return spent;
        },
        end: () => void (spent = true),
        heir: null,
        disown: () => void (disowned += 1),
        send: async (batches) =>
          batches.map((batch) => {
            sent.push(valuesOf(batch));
            const [next, ...rest] = left;
            left = rest;
            const answer = next?.(batch) ?? code(0);
            if ("lost" in answer) spent = true;
            return answer;
          }),
      };
    },
    give: () => undefined,
    close: () => undefined,
  };
  const sink = createSink({ link, directory, producers, maxBytes: 1_000_000 });
  const publish = async (...values: readonly string[]) => {
    const batch = values.map((value) => {
      const [aggregateId = ""] = value;
      return { topic: "t", source: "/", envelope: sampleEvent({ aggregateId, data: Buffer.from(value) }) };
    });
    return (await sink.publish(batch, never)).map((result) =>
      result.status === "refused" ? `${result.status}: ${result.blame}${result.retryable ? "" : " for good"}` : result.status,
    );
  };
  return { publish, sent, looks, opened: () => opened, disowned: () => disowned };
}

describe("kafka: a batch that the broker does not take", () => {
  test("for its size is sent in parts, until the one that is too large is alone: its followers are skipped, the others stored", async () => {
    const tooLarge = (batch: Batch): BatchAnswer => code(valuesOf(batch).includes("a3") ? codes.MESSAGE_TOO_LARGE : 0);
    const { publish, sent } = scripted(...Array.from({ length: 20 }, () => tooLarge));
    expect(await publish("a1", "b1", "a2", "a3", "a4", "b2", "c1")).toEqual([
      ...["stored", "stored", "stored", "refused: event for good", "skipped", "stored", "stored"],
    ]);
    const stored = sent.filter((batch) => !batch.includes("a3")).flat();
    expect(stored.toSorted()).toEqual(["a1", "a2", "b1", "b2", "c1"]);
    expect(stored.indexOf("a1")).toBeLessThan(stored.indexOf("a2"));
    expect(sent).toContainEqual(["a3"]);
  });

  test("for a record in it is sent one by one", async () => {
    const invalid = (batch: Batch): BatchAnswer => code(valuesOf(batch).includes("b1") ? codes.INVALID_RECORD : 0);
    const { publish } = scripted(...Array.from({ length: 20 }, () => invalid));
    expect(await publish("a1", "b1", "a2", "b2", "c1")).toEqual(["stored", "refused: event for good", "stored", "skipped", "stored"]);
  });

  test.each(["OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"] as const)(
    "for its producer (%s) goes again with another",
    async (name) => {
      const { publish, sent, opened, disowned } = scripted(() => code(codes[name]));
      expect(await publish("a1", "a2")).toEqual(["stored", "stored"]);
      expect(disowned()).toBe(1);
      expect(sent).toEqual([["a1", "a2"], ["a1", "a2"]]); // prettier-ignore
      expect(opened()).toBe(2);
      const stubborn = scripted(...Array.from({ length: 9 }, () => () => code(codes[name])));
      expect(await stubborn.publish("a1", "a2")).toEqual(["unknown", "unknown"]);
      expect(stubborn.sent).toHaveLength(3);
    },
  );

  test("since its leader has moved, goes to the new one; where there is none, the destination is to blame", async () => {
    const { publish, looks } = scripted(() => code(codes.NOT_LEADER_OR_FOLLOWER));
    expect(await publish("a1")).toEqual(["stored"]);
    expect(looks).toEqual(["t"]);
    const stubborn = scripted(...Array.from({ length: 9 }, () => () => code(codes.NOT_LEADER_OR_FOLLOWER)));
    expect(await stubborn.publish("a1", "a2")).toEqual(["refused: destination", "refused: destination"]);
  });

  test("for too few replicas, or for want of rights, is the destination's fault", async () => {
    for (const name of ["NOT_ENOUGH_REPLICAS", "TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"] as const) {
      const { publish, sent } = scripted(() => code(codes[name]));
      expect(await publish("a1", "a2")).toEqual(["refused: destination", "refused: destination"]);
      expect(sent).toHaveLength(1);
    }
  });

  test("or of which nobody knows, is unknown, whole, and its producer is not used again", async () => {
    for (const answer of [
      code(codes.REQUEST_TIMED_OUT),
      code(codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
      code(9_999),
      { lost: new Error("cut") },
    ]) {
      const { publish, sent, opened, looks, disowned } = scripted(() => answer);
      expect(await publish("a1", "a2", "b1")).toEqual(["unknown", "unknown", "unknown"]);
      expect(sent).toHaveLength(1);
      expect(opened()).toBe(1);
      // Its leader may be gone, or frozen: then the partition has another, which only the brokers know.
      expect(looks).toEqual(["t"]);
      expect(disowned()).toBe("code" in answer && answer.code === 9_999 ? 1 : 0);
    }
  });

  test("in a transaction that another has spoilt, goes again", async () => {
    const { publish } = scripted(() => ({ undone: true }));
    expect(await publish("a1", "a2")).toEqual(["stored", "stored"]);
  });

  test("or of which nobody knows, keeps its bytes, which may still be on their way, whatever is published next", async () => {
    const kept: { readonly batch: Batch; readonly bytes: Buffer }[] = [];
    const lose = (batch: Batch): BatchAnswer => {
      kept.push({ batch, bytes: Buffer.from(batch.bytes) });
      return { lost: new Error("cut") };
    };
    const { publish } = scripted(lose, () => code(0), lose);
    expect(await publish("a1", "b1")).toEqual(["unknown", "unknown"]);
    expect(await publish("c1")).toEqual(["stored"]);
    expect(await publish("d1")).toEqual(["unknown"]);
    expect(await publish("e1", "f1", "g1")).toEqual(["stored", "stored", "stored"]);
    expect(kept.map(({ batch, bytes }) => batch.bytes.equals(bytes))).toEqual([true, true]);
  });
});
