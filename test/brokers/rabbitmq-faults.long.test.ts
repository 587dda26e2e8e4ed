import { connect } from "amqplib";
import { expect, test } from "vitest";
import { rabbitmq } from "../../src/brokers/rabbitmq/index.ts";
import { sampleEvent, within } from "../../src/conformance/corpus.ts";
import type { RabbitmqServer } from "../servers/rabbitmq.ts";
import { pause } from "./kit/changes.ts";
import { faultSuite } from "./kit/faults.ts";
import { describeOn, freshTopic, many, never, outgoing, provision, raw, refused, stored, subjectOn, tapOf, using } from "./rabbitmq.ts";

await describeOn(["rabbitmq"], "rabbitmq: whatever happens to the server, nothing is lost or reordered", (on) => {
  const { server: started, scene: openScene } = faultSuite(subjectOn(on));
  const server = (): RabbitmqServer => started() as RabbitmqServer;
  const url = (): string => server().url();

  test("killed, it has what it told a bare client: a loss would be the server's own", async () => {
    const queue = freshTopic("control");
    await raw(url(), (channel) => channel.assertQueue(queue, { durable: true }));
    const connection = await connect(url());
    connection.on("error", () => undefined);
    const channel = await connection.createConfirmChannel();
    channel.on("error", () => undefined);
    let told = 0;
    let on = true;
    const writing = (async () => {
      while (on) {
        for (let n = 0; n < 10; n++) channel.sendToQueue(queue, Buffer.from("x"), { persistent: true }, (no) => void (no ?? told++));
        await channel.waitForConfirms();
      }
    })().catch(() => undefined);
    await expect.poll(() => told, { timeout: 60_000 }).toBeGreaterThan(100);
    await server().kill9();
    on = false;
    await writing;
    await server().start();
    const there = (): Promise<number> => raw(url(), async (one) => (await one.checkQueue(queue)).messageCount);
    await expect.poll(there, { timeout: 60_000 }).toBeGreaterThanOrEqual(told);
  });

  test("a server that is low on memory: it is seen why, waited out, nothing is spent, and subscribers go on reading", async () => {
    await using scene = await openScene();
    const load = scene.load();
    await scene.warm(100);
    const [topic, unread] = [freshTopic(), many(1)];
    await provision(url(), [topic], ["shop"]);
    await using both = rabbitmq({ url: url() });
    expect(await both.publish(outgoing(unread, topic), never)).toEqual([stored]);
    await server().control("set_vm_memory_high_watermark", "0.00000001");
    try {
      await scene.seen(/takes no messages at present, and says why: low on memory/);
      await load.end();
      await expect(scene.sink.probe(scene.topic, never)).rejects.toThrow(/low on memory/);
      expect(await scene.sink.publish(outgoing(many(1), scene.topic), never)).toMatchObject([refused(/low on memory/)]);
      const blocked = await both.publish(outgoing(many(1), topic), AbortSignal.timeout(1_000));
      expect(blocked).toMatchObject([{ status: "unknown", error: { message: expect.stringMatching(/low on memory/) as string } }]);
      const reading = both.receive({ consumer: "shop", topics: [topic], prefetch: 1 }, never)[Symbol.asyncIterator]();
      expect((await within(5_000, "a delivery", reading.next())).value).toMatchObject({ envelope: { id: unread[0]!.id } });
      await pause(3_000);
      expect(scene.events.filter(({ type }) => type === "destination.opened")).toHaveLength(1);
    } finally {
      await server().control("set_vm_memory_high_watermark", "0.4");
    }
    await scene.healed();
    await scene.done();
    await scene.judge(1);
  });

  test("a queue that does not answer holds up its own topic and no other", async () => {
    const topics = [freshTopic(), freshTopic()] as const;
    await provision(url(), topics);
    const tell = (what: string) => server().control("eval", `sys:${what}(whereis(list_to_atom("%2F_${tapOf(topics[0])}"))).`);
    await using({ url: url(), timeoutMs: 1_000 }, async (broker) => {
      const both = (): Promise<readonly string[]> =>
        broker
          .publish([...outgoing(many(1), topics[0]), ...outgoing([sampleEvent({ aggregateId: "other" })], topics[1])], never)
          .then((results) => results.map(({ status }) => status));
      expect(await both()).toEqual(["stored", "stored"]);
      await tell("suspend");
      try {
        let silent = true;
        const waiting = both().finally(() => (silent = false));
        while (silent) expect(await broker.publish(outgoing(many(3), topics[1]), never)).toEqual([stored, stored, stored]);
        expect(await waiting).toEqual(["unknown", "stored"]);
        expect(await broker.publish(outgoing(many(3), topics[1]), never)).toEqual([stored, stored, stored]);
      } finally {
        await tell("resume");
      }
      await expect.poll(both).toEqual(["stored", "stored"]);
    });
  });

  test("connections that the server closes are opened anew, and nothing ends the process", async () => {
    const topic = freshTopic();
    await provision(url(), [topic], ["shop"]);
    await using({ url: url() }, async (broker) => {
      const deliveries = broker.receive({ consumer: "shop", topics: [topic], prefetch: 5 }, never)[Symbol.asyncIterator]();
      expect(await broker.publish(outgoing(many(1), topic), never)).toEqual([stored]);
      await deliveries.next();
      const waiting = expect(deliveries.next()).rejects.toMatchObject({ code: "DESTINATION_UNAVAILABLE" });
      await server().control("close_all_connections", "for the test");
      await waiting;
      await expect.poll(async () => (await broker.publish(outgoing(many(1), topic), never))[0]?.status).toBe("stored");
    });
  });

  test("a server that stands still keeps nobody from closing, publishing or receiving in time", async () => {
    const topic = freshTopic();
    await provision(url(), [topic], ["shop"]);
    const broker = rabbitmq({ url: url(), timeoutMs: 1_000 });
    await broker.publish(outgoing(many(1), topic), never);
    const deliveries = broker.receive({ consumer: "shop", topics: [topic], prefetch: 5 }, never)[Symbol.asyncIterator]();
    await deliveries.next();
    const other = rabbitmq({ url: url(), timeoutMs: 1_000 });
    server().freeze();
    try {
      expect(await within(4_000, "a publish", broker.publish(outgoing(many(1), topic), never))).toMatchObject([{ status: "unknown" }]);
      await expect(within(3_000, "connecting", other.connect(never))).rejects.toThrow(/took no connection within 1000 ms/);
      await within(4_000, "closing", broker[Symbol.asyncDispose]());
      await within(4_000, "closing", other[Symbol.asyncDispose]());
    } finally {
      server().thaw();
    }
  });

  test("for comparison: a bare client is told that an unroutable message was stored, unless it asks", async () => {
    const connection = await connect(url());
    const channel = await connection.createConfirmChannel();
    await channel.assertExchange("waybill", "topic");
    const acked = await new Promise(
      (resolve) => void channel.publish("waybill", freshTopic(), Buffer.from("x"), {}, (error: unknown) => resolve(error === null)),
    );
    expect(acked).toBe(true);
    await connection.close();
  });
});
