import { Reader, readRecordsBatches } from "@platformatic/kafka";
import { expect, test } from "vitest";
import { BatchWriter } from "../../src/brokers/kafka/writing/batch-writer.ts";
import type { Batch } from "../../src/brokers/kafka/writing/batch.ts";
import { codes } from "../../src/brokers/kafka/codes.ts";
import { openProducer } from "../../src/brokers/kafka/writing/producer.ts";
import { createProducers } from "../../src/brokers/kafka/writing/producers.ts";
import { sampleEvent } from "../../src/conformance/corpus.ts";
import { systemClock } from "../../src/core/clock.ts";

const never = new AbortController().signal;

/** A broker that says of the partitions of each request what it is told to. */
function scripted() {
  const sent: Buffer[][] = [];
  let code: number = codes.NONE;
  let first = { producerId: 7n, producerEpoch: 2 };
  let given = 0;
  let lost = false;
  const connection = {
    ended: never,
    async ask(name: string, [body]: readonly [Buffer[]]) {
      if (name === "initProducerId") return { errorCode: 0, ...first, producerId: first.producerId + BigInt(given++) };
      if (lost) throw new Error("did not answer");
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
  return {
    open: () => openProducer(link as never, null, never),
    producers: () => createProducers({ link: link as never, transactions: null }),
    ...{ batch, numbers, answer: (next: number) => void (code = next), sent },
    lose: (is: boolean) => void (lost = is),
    begin: (id: bigint, epoch: number) => void (first = { producerId: id, producerEpoch: epoch }),
  };
}

/** Of the last batch that was sent. */
const producerOf = (sent: readonly Buffer[][]) => {
  const { producerId, producerEpoch, firstSequence } = readRecordsBatches(Reader.from(sent.at(-1)![0]!))[0]!;
  return { producerId, producerEpoch, firstSequence };
};

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

test("kafka: behind a lost batch, the next producer has the same number with the next epoch, and asks no broker for another", async () => {
  const { producers, batch, sent, lose, begin } = scripted();
  const all = producers();
  const one = await all.take(never);
  await one.send([batch(0, 3)], never);
  lose(true);
  begin(100n, 0);
  for (const epoch of [3, 4]) {
    const producer = epoch === 3 ? one : await all.take(never);
    expect(await producer.send([batch(0, 2)], never)).toMatchObject([{ lost: { message: "did not answer" } }]);
    all.give(producer);
  }
  lose(false);
  const next = await all.take(never);
  await next.send([batch(0, 2)], never);
  expect(producerOf(sent)).toEqual({ producerId: 7n, producerEpoch: 4, firstSequence: 0 });
  // Beside it, a second one needs a number of its own.
  const second = await all.take(never);
  await second.send([batch(0, 1)], never);
  expect(producerOf(sent)).toMatchObject({ producerId: 101n, producerEpoch: 0 });
  all.close();
});

test("kafka: a producer whose number or epoch the broker does not take, or that has had every epoch, leaves none behind", async () => {
  for (const [epoch, disowned] of [
    [2, true],
    [32_767, false],
  ] as const) {
    // prettier-ignore
    const { producers, batch, sent, lose, begin } = scripted();
    begin(7n, epoch);
    const all = producers();
    const one = await all.take(never);
    lose(true);
    await one.send([batch(0, 3)], never);
    if (disowned) one.disown();
    all.give(one);
    lose(false);
    begin(100n, 0);
    await (await all.take(never)).send([batch(0, 2)], never);
    expect(producerOf(sent)).toEqual({ producerId: 101n, producerEpoch: 0, firstSequence: 0 });
    all.close();
  }
});
