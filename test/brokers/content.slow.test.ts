import fc from "fast-check";
import { expect, test } from "vitest";
import { comparable, sampleEvent, within } from "../../src/conformance/corpus.ts";
import type { Envelope } from "../../src/core/event.ts";
import { describeWith } from "../servers/available.ts";
import type { Subject } from "./kit/subject.ts";
import { subject as natsSubject } from "./nats.ts";
import { subject as rabbitmqSubject } from "./rabbitmq.ts";
import { subject as redisSubject } from "./redis.ts";

const never = new AbortController().signal;

/** What an outbox takes: any characters but NUL, line breaks in names too; in values of headers no line breaks, and none at their ends. */
const text = (maxLength: number) => fc.string({ unit: "binary", maxLength }).map((value) => value.replaceAll("\0", "\r\n"));
const name = text(40).map((value) => `n${value}`);
const headerName = fc
  .string({ unit: fc.constantFrom(..."abcXYZ019!#$%&'*+.^_`|~-"), minLength: 1, maxLength: 30 })
  .map((value) => `u${value}`);
const headerValue = fc.oneof(fc.constant(""), text(300)).map((value) => value.replaceAll(/[\r\n]/g, "é").trim());
const data = fc.oneof(
  fc.constant(new Uint8Array()),
  fc.uint8Array({ maxLength: 300 }),
  fc
    .constantFrom("\r\n", "\r\nHPUB x 1 1\r\n", "$5\r\nhello\r\n*1\r\n", "\xce\x01\x00\x01")
    .map((value) => new Uint8Array(Buffer.from(value))),
  fc.nat(255).map((byte) => new Uint8Array(100_000).fill(byte)),
);
const event = fc
  .record({
    ...{ aggregateType: name, aggregateId: name, type: name, data, contentType: text(60).map((value) => `text/${value}`) },
    headers: fc.dictionary(headerName, headerValue, { maxKeys: 8, noNullPrototype: true }),
    idempotencyKey: fc.option(name),
    createdAt: fc.date({ min: new Date(0), max: new Date("9999-12-31"), noInvalidDate: true }),
  })
  .map((change): Envelope => sampleEvent(change));
const manyHeaders = sampleEvent({
  headers: Object.fromEntries(Array.from({ length: 400 }, (_, n) => [`h-${n}`, n % 3 === 0 ? "" : `ü${n}`])),
});

for (const subject of [natsSubject, redisSubject, rabbitmqSubject]) {
  await describeWith(subject.name, `${subject.name}: whatever an event holds`, () => {
    test("the source reads back what the sink wrote", () => readsBack(subject), 60_000);
  });
}

async function readsBack(subject: Subject): Promise<void> {
  await using server = await subject.start();
  const topic = `content.${Date.now()}.events`;
  await subject.provision(server.url(), [topic], ["shop"]);
  const seed = Number(process.env["WAYBILL_SEED"] ?? Date.now() % 2 ** 31);
  const events = [...fc.sample(event, { numRuns: 150, seed }), manyHeaders];
  const broker = subject.open(server.url());
  const results = await broker.publish(
    events.map((envelope) => ({ topic, source: "/test", envelope })),
    never,
  );
  expect(
    results.filter(({ status }) => status !== "stored"),
    `WAYBILL_SEED=${seed}`,
  ).toEqual([]);
  const got = new Map<string, Envelope>();
  await within(
    30_000,
    "the deliveries",
    (async () => {
      for await (const delivery of broker.receive({ consumer: "shop", topics: [topic], prefetch: 50 }, never)) {
        got.set(delivery.envelope.id, delivery.envelope);
        await delivery.ack();
        if (got.size === events.length) return;
      }
    })(),
  );
  for (const one of events) expect(comparable(got.get(one.id)!), `WAYBILL_SEED=${seed}`).toEqual(comparable(one));
  await broker[Symbol.asyncDispose]();
}
