import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { rabbitmq } from "../../src/brokers/rabbitmq/index.ts";
import { sampleEvent, within } from "../../src/conformance/corpus.ts";
import type { Delivery } from "../../src/contracts/source.ts";
import { startRabbitmq, type RabbitmqServer } from "../servers/rabbitmq.ts";
import { describeOn, freshTopic, never, outgoing, provision, using } from "./rabbitmq.ts";

const [header, body] = [2, 3];

/** Hands on frames, and lets a test change the next one of a kind on its way from the server. */
async function startDamagingProxy(target: number) {
  let damage: { readonly type: number; readonly change: (frame: Buffer) => void } | null = null;
  const sockets = new Set<Socket>();
  const server = createServer((near) => {
    const far = connect(target, "127.0.0.1");
    for (const socket of [near, far]) {
      sockets.add(socket);
      socket.on("error", () => undefined).on("close", () => void (near.destroy(), far.destroy(), sockets.delete(socket)));
    }
    near.pipe(far);
    let bytes = Buffer.alloc(0);
    far.on("data", (chunk) => {
      bytes = Buffer.concat([bytes, chunk]);
      while (bytes.length >= 7 && bytes.length >= 8 + bytes.readUInt32BE(3)) {
        const frame = bytes.subarray(0, 8 + bytes.readUInt32BE(3));
        bytes = bytes.subarray(frame.length);
        const now = damage;
        if (now !== null && frame[0] === now.type) {
          damage = null;
          now.change(frame);
        }
        near.write(frame);
      }
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port,
    next: (type: number, change: (frame: Buffer) => void) => void (damage = { type, change }),
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, "close");
    },
  };
}

await describeOn(["rabbitmq", "rabbitmq4"], "rabbitmq: bytes that are damaged on their way", (on) => {
  let server: RabbitmqServer;
  beforeAll(async () => void (server = await startRabbitmq(on)));
  afterAll(() => server[Symbol.asyncDispose]());

  test.each<[string, number, (frame: Buffer) => void]>([
    ["a frame's length", body, (frame) => void frame.writeUInt32BE(frame.readUInt32BE(3) + 50_000, 3)],
    ["a message's length", header, (frame) => void frame.writeBigUInt64BE(frame.readBigUInt64BE(11) + 50_000n, 11)],
  ])("%s: the reader is not deaf behind it, though heartbeats come, and the event is delivered", async (_, type, change) => {
    const [topic, event] = [freshTopic(), sampleEvent()];
    await provision(server.url(), [topic], ["shop"]);
    await using proxy = await startDamagingProxy(server.port);
    const broker = rabbitmq({ url: server.url().replace(`:${server.port}`, `:${proxy.port}`), timeoutMs: 2_000 });
    onTestFinished(() => broker[Symbol.asyncDispose]());
    const receive = () => broker.receive({ consumer: "shop", topics: [topic], prefetch: 10 }, never)[Symbol.asyncIterator]();
    const first = receive().next();
    first.catch(() => undefined);
    await expect.poll(() => broker.lag!(topic, never, "shop")).toBe(0);
    proxy.next(type, change);
    await using({ url: server.url() }, (sender) => sender.publish(outgoing([event], topic), never));
    await expect(within(20_000, "the end of a deaf reading", first)).rejects.toMatchObject({ code: "DESTINATION_UNAVAILABLE" });
    const { value } = (await within(20_000, "delivery", receive().next())) as { value: Delivery };
    expect(value.envelope.id).toBe(event.id);
    await value.ack();
  });
});
