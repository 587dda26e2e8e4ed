import { Reader, readRecordsBatches } from "@platformatic/kafka";
import { expect, test } from "vitest";
import { BatchWriter } from "../../src/brokers/kafka/writing/batch-writer.ts";
import type { Batch } from "../../src/brokers/kafka/writing/batch.ts";
import { codes } from "../../src/brokers/kafka/codes.ts";
import { openProducer } from "../../src/brokers/kafka/writing/producer.ts";
import { sampleEvent } from "../../src/conformance/corpus.ts";
import { systemClock } from "../../src/core/clock.ts";

const never = new AbortController().signal;

/** A broker that says of the partitions of each request what it is told to. */
function scripted() {
  const sent: Buffer[][] = [];
  let code: number = codes.NONE;
  const connection = {
    ended: never,
    async ask(name: string, [body]: readonly [Buffer[]]) {
      if (name === "initProducerId") return { errorCode: 0, producerId: 7n, producerEpoch: 2 };
      sent.push(body.filter(({ length }) => length > 61).map((bytes) => Buffer.from(bytes)));
      const partitionResponses = [0, 1].map((index) => ({ index, errorCode: code, errorMessage: null, recordErrors: [] }));
      return { responses: [{ name: "t", partitionResponses }] };
    },
  };
  const link = { shown: "kafka://test", clock: systemClock, timeoutMs: 1_000, open: async () => connection, dial: async () => connection };
  const batch = (partition: number, count: number): Batch => {
    const writer = new BatchWriter();
    writer.begin();
    for (let n = 0; n < count; n++) writer.add(sampleEvent(), "/");
    return { topic: "t", partition, count, leader: { host: "h", port: 1 }, bytes: writer.end(0) };
  };
  /** The number of the first message of each batch, in turn. */
  const numbers = () =>
    sent.map((batches) => batches.map((bytes) => readRecordsBatches(Reader.from(bytes))[0]!).map(({ firstSequence }) => firstSequence));
  return { open: () => openProducer(link as never, null, never), batch, numbers, answer: (next: number) => void (code = next), sent };
}

test("kafka: a producer numbers the messages of a partition one after another, and what was refused has its number again", async () => {
  const { open, batch, numbers, answer, sent } = scripted();
  const producer = await open();
  await producer.send([batch(0, 3), batch(1, 2)], never);
  await producer.send([batch(0, 4)], never);
  answer(codes.MESSAGE_TOO_LARGE);
  await producer.send([batch(0, 5), batch(1, 1)], never);
  answer(codes.NONE);
  await producer.send([batch(1, 1), batch(0, 1)], never);
  await producer.send([batch(0, 1)], never);
  expect(numbers()).toEqual([[0, 0], [3], [7, 2], [2, 7], [8]]);
  const [first] = readRecordsBatches(Reader.from(sent[0]![0]!));
  expect(first).toMatchObject({ producerId: 7n, producerEpoch: 2, attributes: 0 });
  expect(first!.records).toHaveLength(3);
});
