import { expect, test } from "vitest";
import { quiet, within } from "../../src/conformance/corpus.ts";
import type { Delivery } from "../../src/contracts/source.ts";
import { publishRaw } from "../support/nats-raw.ts";
import { describeEachNats, freshTopic, never, using } from "./nats.ts";

await describeEachNats("nats: messages with thousands of headers", (start) => {
  test("count by what their headers take in memory", async () => {
    const server = await start();
    const topic = freshTopic();
    const lines = Array.from({ length: 9_000 }, (_, n) => `${n.toString(36)}:\r\n`).join("");
    const messages = Array.from({ length: 40 }, (_, n) => ({
      subject: topic,
      head: `NATS/1.0\r\nce-id: m${n}\r\nce-type: Changed\r\n${lines}\r\n`,
      data: "{}",
    }));
    await using({ url: server.url() }, async (broker) => {
      await broker.provision([topic], ["shop"]);
      await publishRaw(server.url(), messages);
      // All of them are 2 MB on the wire.
      const subscription = { consumer: "shop", topics: [topic], prefetch: 50, bytes: 8_000_000 };
      const deliveries = broker.receive(subscription, never)[Symbol.asyncIterator]();
      const take = async (): Promise<Delivery> => (await within(8_000, "a delivery", deliveries.next())).value as Delivery;
      const inHand: Delivery[] = [];
      for (let n = 0; n < 7; n++) inHand.push(await take());
      expect(inHand.map(({ envelope }) => envelope.id)).toEqual(["m0", "m1", "m2", "m3", "m4", "m5", "m6"]);
      const eighth = take();
      await quiet(500, "a delivery beyond the bytes", eighth);
      await inHand[0]!.ack();
      expect((await eighth).envelope.id).toBe("m7");
      await deliveries.return?.();
    });
    await server[Symbol.asyncDispose]();
  });
});
