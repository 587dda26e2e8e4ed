import { afterAll, beforeAll, expect, test } from "vitest";
import { framesOf } from "../../src/brokers/nats/frames.ts";
import { sampleEvent } from "../../src/conformance/corpus.ts";
import type { NatsServer } from "../servers/nats.ts";
import { startTcpProxy } from "../support/tcp-proxy.ts";
import { describeEachNats, freshTopic, never, outgoing, raw, storedIn, using } from "./nats.ts";

await describeEachNats("nats: streams", (start) => {
  let server: NatsServer;
  beforeAll(async () => void (server = await start()));
  afterAll(() => server[Symbol.asyncDispose]());

  const broker = <T>(work: Parameters<typeof using<T>>[1], more: object = {}): Promise<T> => using({ url: server.url(), ...more }, work);
  const stream = (config: { name: string; subjects: string[] } & Record<string, unknown>) =>
    raw(server.url(), async (_, manager) => void (await manager.streams.add(config as never)));
  const destination = { status: "refused", blame: "destination", retryable: true, error: { code: "DESTINATION_UNAVAILABLE" } };
  const stored = { status: "stored" };

  test("an event that is published twice is stored once", async () => {
    const topic = freshTopic();
    const event = sampleEvent();
    await broker(async (nats) => {
      await nats.provision([topic]);
      expect(await nats.publish(outgoing([event], topic), never)).toEqual([stored]);
      expect(await nats.publish(outgoing([event], topic), never)).toEqual([stored]);
    });
    expect(await storedIn(server.url(), topic)).toHaveLength(1);
  });

  test("a stream that takes the subject already is used as it is", async () => {
    await stream({ name: "EVERYTHING", subjects: ["everything.>"], max_age: 3_600_000_000_000 });
    await broker(async (nats) => {
      await nats.provision(["everything.of.all"], ["shop"]);
      await nats.probe("everything.of.all", never);
      expect(await nats.publish(outgoing([sampleEvent()], "everything.of.all"), never)).toEqual([stored]);
    });
    await raw(server.url(), async (_, manager) => {
      expect(await manager.streams.find("everything.of.all")).toBe("EVERYTHING");
      expect((await manager.streams.info("EVERYTHING")).config).toMatchObject({ subjects: ["everything.>"], max_age: 3_600_000_000_000 });
    });
  });

  test("a stream of our own is on files, refuses when it is full, and making it again changes nothing", async () => {
    const topics = ["own.topic", "own_topic", "own-topic", "own/Größe.🚚", "own.*x>"];
    await broker(async (nats) => {
      await nats.provision(topics);
      for (const topic of topics) expect(await nats.publish(outgoing([sampleEvent()], topic), never)).toEqual([stored]);
    });
    await broker((nats) => nats.provision(topics));
    await raw(server.url(), async (_, manager) => {
      const { config, state } = await manager.streams.info("own_topic");
      expect(config).toMatchObject({ subjects: ["own.topic"], storage: "file", discard: "new", retention: "limits", max_msgs: -1 });
      expect(state.messages).toBe(1);
    });
    for (const topic of topics) expect(await storedIn(server.url(), topic)).toHaveLength(1);
  });

  test("whose name somebody else has for other subjects is not changed, and that is said", async () => {
    await stream({ name: "taken_events", subjects: ["something.else"] });
    await broker(async (nats) => {
      await expect(nats.provision(["taken.events"])).rejects.toThrow(/taken_events for the subject "taken\.events".*10058/);
    });
  });

  test("is found on the servers of the URL in turn", async () => {
    await using({ url: `nats://127.0.0.1:1,127.0.0.1:${server.port}`, provision: true }, async (nats) => {
      expect(await nats.publish(outgoing([sampleEvent()], freshTopic()), never)).toEqual([stored]);
    });
  });

  test("comes into being with its first message only where that is asked for", async () => {
    const topic = freshTopic();
    await broker(async (nats) => {
      expect(await nats.publish(outgoing([sampleEvent()], topic), never)).toMatchObject([destination]);
      await expect(nats.probe(topic, never)).rejects.toThrow(`waybill migrate --broker ${server.url()} --topics ${topic}`);
      await expect(nats.provision(["a..b"])).rejects.toMatchObject({ code: "INVALID_OPTION" });
    });
    await broker(
      async (nats) => {
        await nats.probe(topic, never);
        expect(await nats.publish(outgoing([sampleEvent()], topic), never)).toEqual([stored]);
      },
      { provision: true },
    );
  });

  test("that acknowledges nothing is refused before anything is sent to it", async () => {
    await stream({ name: "MUTE", subjects: ["mute.events"], no_ack: true });
    await broker(async (nats) => {
      await expect(nats.probe("mute.events", never)).rejects.toThrow(/no_ack/);
      expect(await nats.publish(outgoing([sampleEvent()], "mute.events"), never)).toMatchObject([destination]);
      await expect(nats.provision(["mute.events"])).rejects.toThrow(/no_ack/);
    });
    await raw(server.url(), async (_, manager) => expect((await manager.streams.info("MUTE")).state.messages).toBe(0));
  });

  test("that is full makes events wait, and takes them when it has room again", async () => {
    const topic = freshTopic();
    await stream({ name: "FULL", subjects: [topic], max_msgs: 2, discard: "new" });
    const events = [1, 2, 3].map((n) => sampleEvent({ aggregateId: `order-${n}` }));
    await broker(async (nats) => {
      const results = await nats.publish(outgoing(events, topic), never);
      expect(results).toMatchObject([stored, stored, destination]);
      await raw(server.url(), async (_, manager) => void (await manager.streams.update("FULL", { max_msgs: 10 })));
      expect(await nats.publish(outgoing(events, topic), never)).toEqual([stored, stored, stored]);
    });
    expect(await storedIn(server.url(), topic)).toHaveLength(3);
  });

  test("that takes smaller messages than the server refuses a larger one for what it is", async () => {
    const topic = freshTopic();
    await stream({ name: "SMALL", subjects: [topic], max_msg_size: 2_000 });
    const large = sampleEvent({ data: new Uint8Array(3_000) });
    await broker(async (nats) => {
      expect(await nats.publish(outgoing([large, sampleEvent(), sampleEvent({ aggregateId: "b" })], topic), never)).toMatchObject([
        { status: "refused", blame: "event", retryable: false, error: { code: "MESSAGE_TOO_LARGE" } },
        { status: "skipped" },
        stored,
      ]);
    });
  });

  test("the server's own limit is met to the byte, headers included", async () => {
    const topic = freshTopic();
    await broker(async (nats) => {
      await nats.provision([topic]);
      const { name } = await raw(server.url(), async (_, manager) => ({ name: await manager.streams.find(topic) }));
      const limit = nats.can.maxBytes;
      expect(limit).toBe(1_048_576);
      const empty = sampleEvent({ data: new Uint8Array() });
      const heading = { subject: topic, stream: name, inbox: "i", number: 1, maxBytes: Infinity };
      const frame = Buffer.from(framesOf(heading, outgoing([empty], topic), () => expect.unreachable())).toString();
      const overhead = Number(/^HPUB \S+ \S+ \d+ (\d+)/.exec(frame)![1]);
      const just = { ...empty, data: new Uint8Array(limit - overhead) };
      const over = { ...sampleEvent(), id: empty.id, seq: empty.seq, data: new Uint8Array(limit - overhead + 1) };
      expect(await nats.publish(outgoing([over], topic), never)).toMatchObject([
        { status: "refused", blame: "event", error: { code: "MESSAGE_TOO_LARGE" } },
      ]);
      expect(await nats.publish(outgoing([just], topic), never)).toEqual([stored]);
    });
  });

  test("a topic that moved to another stream is found there at the next attempt", async () => {
    const topic = freshTopic();
    await broker(async (nats) => {
      await nats.provision([topic]);
      expect(await nats.publish(outgoing([sampleEvent()], topic), never)).toEqual([stored]);
      await raw(server.url(), async (_, manager) => {
        await manager.streams.delete(await manager.streams.find(topic));
        await manager.streams.add({ name: "MOVED", subjects: [topic] });
      });
      const event = sampleEvent();
      expect(await nats.publish(outgoing([event], topic), never)).toMatchObject([destination]);
      expect(await nats.publish(outgoing([event], topic), never)).toEqual([stored]);
    });
  });

  test("a topic that cannot be a subject is the event's fault, and other events are stored", async () => {
    const topic = freshTopic();
    await broker(async (nats) => {
      await nats.provision([topic]);
      const batch = [
        ...outgoing([sampleEvent({ aggregateId: "a" })], "$JS.API.STREAM.DELETE.own_topic"),
        ...outgoing([sampleEvent({ aggregateId: "b" })], "a..b"),
        ...outgoing([sampleEvent({ aggregateId: "c", createdAt: new Date(Number.NaN) }), sampleEvent({ aggregateId: "d" })], topic),
      ];
      const fault = { status: "refused", blame: "event", retryable: false };
      expect(await nats.publish(batch, never)).toMatchObject([
        { ...fault, error: { code: "ROUTE_FAILED" } },
        { ...fault, error: { code: "ROUTE_FAILED" } },
        fault,
        stored,
      ]);
    });
  });

  test("a publish that is called off while it looks for the stream takes no other of its topic with it", async () => {
    const topic = freshTopic();
    await broker(async (nats) => {
      await nats.provision([topic]);
      const off = new AbortController();
      const first = nats.publish(outgoing([sampleEvent()], topic), off.signal);
      const second = nats.publish(outgoing([sampleEvent()], topic), never);
      await new Promise((resolve) => setImmediate(resolve));
      off.abort();
      await first;
      expect(await second).toEqual([stored]);
    });
  });

  test("a lookup without an answer is the destination's fault, and ends with the publish", async () => {
    await using proxy = await startTcpProxy(server.port);
    await using({ url: `nats://127.0.0.1:${proxy.port}` }, async (nats) => {
      await nats.connect(never);
      proxy.fault("down", { hold: true });
      const since = performance.now();
      const results = await nats.publish(outgoing([sampleEvent(), sampleEvent()], freshTopic()), AbortSignal.timeout(300));
      expect(results).toMatchObject([destination, { status: "skipped" }]);
      expect(performance.now() - since).toBeLessThan(2_000);
      proxy.heal();
    });
  });
});
