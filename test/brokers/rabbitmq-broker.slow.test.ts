import { afterAll, beforeAll, expect, onTestFinished, test, vi } from "vitest";
import { rabbitmq } from "../../src/brokers/rabbitmq/index.ts";
import { createLinks } from "../../src/brokers/rabbitmq/link.ts";
import { queueArguments, removeTopology } from "../../src/brokers/rabbitmq/topology.ts";
import { settingsOf } from "../../src/brokers/rabbitmq/url.ts";
import { comparable, quiet, sampleEvent, within } from "../../src/conformance/corpus.ts";
import type { PublishResult } from "../../src/contracts/sink.ts";
import type { Delivery } from "../../src/contracts/source.ts";
import { systemClock } from "../../src/core/clock.ts";
import type { Envelope } from "../../src/core/event.ts";
import { startRabbitmq, type RabbitmqServer } from "../servers/rabbitmq.ts";
import { startTcpProxy } from "../support/tcp-proxy.ts";
import { openScene } from "./kit/scene.ts";
import {
  describeOn,
  freshTopic,
  isNewer,
  many,
  never,
  outgoing,
  provision,
  raw,
  receiving,
  refused,
  stored,
  storedIn,
  subjectOn,
  tapOf,
  using,
} from "./rabbitmq.ts";

const ids = (deliveries: readonly (Delivery | Envelope)[]): string[] =>
  deliveries.map((one) => ("envelope" in one ? one.envelope.id : one.id));

await describeOn(["rabbitmq", "rabbitmq4"], "rabbitmq: exchanges, queues and bindings", (on) => {
  let server: RabbitmqServer;
  let url: string;
  beforeAll(async () => {
    server = await startRabbitmq({ ...on, settings: { max_message_size: 100_000 }, management: true });
    url = server.url();
  });
  afterAll(() => server[Symbol.asyncDispose]());

  const api = async (method: string, path: string, body?: object): Promise<void> => {
    const { username, password, host } = new URL(server.management);
    const authorization = `Basic ${Buffer.from(`${username}:${password}`).toString("base64")}`;
    const options = { method, headers: { authorization, "content-type": "application/json" } };
    const { status } = await fetch(`http://${host}/api/${path}`, { ...options, ...(body && { body: JSON.stringify(body) }) });
    expect(status, path).toBeLessThan(300);
  };
  const policy = async (name: string, pattern: string, definition: object): Promise<void> => {
    await api("PUT", `policies/%2F/${name}`, { pattern, definition, "apply-to": "all" });
    onTestFinished(() => api("DELETE", `policies/%2F/${name}`));
  };

  test("an event that readers lose again and again stays, and doctor tells of a queue that would drop it", async () => {
    const [topic, earlier, aggregateId] = [freshTopic(), freshTopic(), "order-1"];
    const lost = sampleEvent({ aggregateId });
    const limits = async (of: string): Promise<unknown[]> =>
      using({ url, management: server.management }, async (broker) =>
        (await broker.examine([of], never)).flatMap(({ setting, value, verdict }) =>
          setting === `delivery-limit of queue shop.${of}` ? [[value, verdict]] : [],
        ),
      );
    await provision(url, [topic], ["shop"]);
    await using({ url }, (broker) => broker.publish(outgoing([lost, ...many(2)], topic), never));
    // RabbitMQ 4 drops what was delivered twenty times, unless the queue says otherwise.
    for (let times = 0; times < 25; times++) {
      const { next, broker } = receiving(url, { topics: [topic], prefetch: 1 });
      expect((await next()).envelope.id, String(times)).toBe(lost.id);
      await broker[Symbol.asyncDispose]();
    }
    const { take } = receiving(url, { topics: [topic] });
    expect((await take(3))[0]!.envelope.id).toBe(lost.id);
    expect(await limits(topic)).toEqual([["none", "good"]]);

    // As RabbitMQ 3 has it; an upgrade leaves the queue as it is.
    const { "x-delivery-limit": _, ...args } = queueArguments({ exchange: "waybill", queueType: "quorum" }, "4.0.0");
    await raw(url, async (channel) => {
      await channel.assertQueue(`shop.${earlier}`, { durable: true, arguments: args });
      await channel.bindQueue(`shop.${earlier}`, "waybill", earlier);
    });
    expect(await limits(earlier)).toEqual([isNewer(on) ? ["20", "bad"] : ["none", "good"]]);
    if (!isNewer(on)) return;
    await policy("earlier", "^shop\\.", { "delivery-limit": -1 });
    expect(await limits(earlier)).toEqual([["none", "good"]]);
  });

  test("a queue's lag leaves out what a reader holds, makes no queue, and refuses names that cannot be one", async () => {
    const topic = freshTopic();
    await using({ url }, async (broker) => {
      const lag = (consumer = "shop"): Promise<number | null> => broker.lag!(topic, never, consumer);
      expect(await lag()).toBeNull();
      await broker.provision([topic], ["shop"]);
      await broker.publish(outgoing(many(5), topic), never);
      expect(await lag()).toBe(5);
      const reader = receiving(url, { topics: [topic], prefetch: 2 });
      await reader.take(2);
      await expect.poll(() => lag(), { timeout: 15_000 }).toBe(3);
      await reader.broker[Symbol.asyncDispose]();
      await expect.poll(() => lag(), { timeout: 15_000 }).toBe(5);
      await expect(broker.lag!("order.#", never, "shop")).rejects.toMatchObject({ code: "INVALID_OPTION" });
      await expect(lag("")).rejects.toMatchObject({ code: "INVALID_OPTION" });
    });
    await expect(raw(url, (channel) => channel.checkQueue(`stranger.${topic}`))).rejects.toThrow(/404/);
  });

  test("a message that no queue takes is refused although the server acknowledges it, and only that one", async () => {
    const topics = [freshTopic(), freshTopic()] as const;
    await provision(url, topics);
    await raw(url, (channel) => channel.unbindQueue(tapOf(topics[1]), "waybill", topics[1]));
    await using({ url }, async (broker) => {
      const events = many(60, 20);
      const batch = events.map((envelope, i) => ({ topic: topics[i % 3 === 2 ? 1 : 0], source: "/test", envelope }));
      const results = await broker.publish(batch, never);
      const there = new Set(ids((await storedIn(url, topics[0])).map(({ attributes }) => ({ id: attributes["id"] }) as Envelope)));
      results.forEach((result, i) => {
        if (batch[i]!.topic === topics[1]) expect(result.status).not.toBe("stored");
        expect(there.has(events[i]!.id)).toBe(result.status === "stored");
      });
      const way = new RegExp(`NO_ROUTE.*waybill migrate --broker amqp://.* --topics ${topics[1]} --consumers`);
      expect(results.filter(({ status }) => status === "refused")).toHaveLength(20);
      for (const result of results) if (result.status === "refused") expect(result).toMatchObject(refused(way));
      await raw(url, (channel) => channel.bindQueue(tapOf(topics[1]), "waybill", topics[1]));
      expect(await broker.publish(outgoing(many(1), topics[1]), never)).toEqual([stored]);
    });
  });

  test("an exchange that is not there is the destination's, before and while it is used", async () => {
    const topic = freshTopic();
    const absent = new RegExp(`no exchange 'own'.*: run waybill migrate --broker amqp://.* --topics ${topic} --consumers`);
    await using({ url, exchange: "own" }, async (broker) => {
      expect(await broker.publish(outgoing(many(2), topic), never)).toMatchObject([refused(absent), refused(absent)]);
      await expect(broker.probe(topic, never)).rejects.toThrow(absent);
      await broker.provision([topic], ["shop"]);
      await broker.probe(topic, never);
      expect(await broker.publish(outgoing(many(2), topic), never)).toEqual([stored, stored]);
      await raw(url, (channel) => channel.deleteExchange("own"));
      expect(await broker.publish(outgoing(many(1), topic), never)).toMatchObject([refused(absent)]);
      await broker.provision([topic], ["shop"]);
      expect(await broker.publish(outgoing(many(1), topic), never)).toEqual([stored]);
    });
    const links = createLinks({ settings: settingsOf(url), timeoutMs: 2_000, clock: systemClock });
    await removeTopology(await links.consuming.open(never), "own", [topic], ["shop"]).finally(() => links.close());
    for (const name of [`shop.${topic}`, "own.skipped"])
      await expect(raw(url, (channel) => channel.checkQueue(name))).rejects.toThrow(/404/);
    for (const name of ["own", "own.skipped"]) await expect(raw(url, (channel) => channel.checkExchange(name))).rejects.toThrow(/404/);
  });

  test("a queue that is full refuses and drops nothing; nothing is spent, and all goes on when there is room", async () => {
    const topic = freshTopic();
    await using({ url }, async (broker) => {
      await broker.provision([topic], ["shop"]);
      await policy("full", `^shop.${topic}$`, { "max-length": 3 });
      // A queue takes some more than its length before it refuses, and a policy is not there at once.
      const [events, results]: [Envelope[], PublishResult[]] = [[], []];
      while (!results.some(({ status }) => status === "refused") && events.length < 1_000) {
        events.push(...many(10));
        results.push(...(await broker.publish(outgoing(events.slice(-10), topic), never)));
      }
      expect(new Set(results.map(({ status }) => status))).toEqual(new Set(["stored", "refused"]));
      for (const result of results) if (result.status !== "stored") expect(result).toMatchObject(refused(/did not take it: it is full/));
      // A cluster goes on refusing what comes over a channel that it refused a message of.
      const channels = async (): Promise<readonly string[]> => (await server.control("list_channels", "pid")).match(/<\S+>/g) ?? [];
      const before = await channels();
      for (let n = 0; n < 3; n++) expect(await broker.publish(outgoing(many(1), topic), never)).not.toEqual([stored]);
      await expect.poll(async () => (await channels()).filter((one) => before.includes(one))).toEqual([]);
      expect((await channels()).length).toBeLessThanOrEqual(1);
      const { take } = receiving(url, { topics: [topic], prefetch: 1_000 });
      const took = results.flatMap(({ status }, i) => (status === "stored" ? [events[i]!.id] : []));
      for (const delivery of await take(took.length)) {
        expect(took).toContain(delivery.envelope.id);
        await delivery.ack();
      }
      await expect.poll(async () => (await broker.publish(outgoing(many(1), topic), never))[0]?.status).toBe("stored");
    });
  });

  test("a message that the server closes the channel for is found out alone, and concerns no other topic", async () => {
    const topics = [freshTopic(), freshTopic()] as const;
    await provision(url, topics);
    await using({ url }, async (broker) => {
      const huge = sampleEvent({ aggregateId: "huge", data: Buffer.alloc(150_000) });
      const others = many(5).map((event) => ({ ...event, aggregateType: "Invoice" }));
      const batch = [...outgoing([...many(5), huge], topics[0]), ...outgoing(others, topics[1])];
      const results = await broker.publish(batch, never);
      expect(results.slice(6).map(({ status }) => status)).toEqual(Array.from({ length: 5 }, () => "stored"));
      for (const { status } of results.slice(0, 5)) expect(["stored", "unknown"]).toContain(status);
      // Certain only where all the others had their answers before.
      expect(["unknown", "refused"]).toContain(results[5]!.status);
      expect(await broker.publish(outgoing([huge], topics[0]), never)).toMatchObject([
        { status: "refused", blame: "event", retryable: false, error: { code: "MESSAGE_TOO_LARGE" } },
      ]);
      expect(await broker.publish(outgoing(many(1), topics[0]), never)).toEqual([stored]);
    });
  });

  test("a relay parks that message and publishes all others, in order", async () => {
    await using scene = await openScene(subjectOn(on), { url, open: () => rabbitmq({ url, timeoutMs: 2_000 }) });
    for (let n = 1; n <= 4; n++) {
      await scene.add("a", n === 2 ? { text: "x".repeat(150_000) } : {});
      for (const aggregate of ["b", "c", "d"]) await scene.add(aggregate);
    }
    const states = async () => (await scene.status()).states;
    await expect.poll(states, { timeout: 20_000 }).toMatchObject({ PUBLISHED: 13, DEAD: 1, BLOCKED: 2, PENDING: 0 });
    expect((await scene.status()).dead).toMatchObject([
      { events: 1, error: expect.stringMatching(/^MESSAGE_TOO_LARGE.*PRECONDITION_FAILED/) as string },
    ]);
  });

  test("what a receiver leaves unacknowledged, however it ends, comes to the next one in its order", async () => {
    const topic = freshTopic();
    await provision(url, [topic], ["shop"]);
    await using proxy = await startTcpProxy(server.port);
    const through = url.replace(`:${server.port}`, `:${proxy.port}`);
    const events = many(60, 3);
    await using({ url }, (broker) => broker.publish(outgoing(events, topic), never));
    let left = ids(events);
    for (const [ending, acked] of [
      ["reset", [1, 4]],
      ["close", [0, 1, 5]],
      ["reset", []],
      ["return", [2]],
      ["reset", [0, 1, 2]],
    ] as const) {
      const bounds = { prefetch: 8, waiting: 4 };
      const { broker, iterator, take } = receiving(through, { topics: [topic], ...bounds });
      const deliveries = await take(8);
      expect(ids(deliveries), ending).toEqual(left.slice(0, 8));
      // The server counts deliveries in a header of its own.
      for (const { envelope } of deliveries) expect(envelope.headers).toEqual({});
      for (const i of acked) await deliveries[i]!.ack();
      left = left.filter((id) => !acked.some((i) => deliveries[i]!.envelope.id === id));
      // Acknowledgements that are on their way when a link breaks are lost, and harmless: here the server has had them, and sent as many more.
      if (ending === "reset") {
        const unsent = async (): Promise<number> => (await raw(url, (channel) => channel.checkQueue(`shop.${topic}`))).messageCount;
        await expect.poll(unsent, { timeout: 20_000 }).toBe(left.length - bounds.prefetch - bounds.waiting);
        proxy.reset();
      }
      if (ending === "return") await iterator.return?.();
      if (ending !== "reset") await broker[Symbol.asyncDispose]();
    }
    const { take } = receiving(url, { topics: [topic], prefetch: 60 });
    expect(ids(await take(left.length))).toEqual(left);
  });

  test("a second receiving of a consumer, from the same broker object, waits for the first and does not end it", async () => {
    const topic = freshTopic();
    await provision(url, [topic], ["shop"]);
    const { broker, take } = receiving(url, { topics: [topic] });
    expect(await broker.publish(outgoing(many(3), topic), never)).toEqual([stored, stored, stored]);
    for (const delivery of await take(3)) await delivery.ack();
    const ending = new AbortController();
    const second = broker.receive({ consumer: "shop", topics: [topic], prefetch: 20 }, ending.signal)[Symbol.asyncIterator]();
    const waiting = second.next();
    const consumers = async (): Promise<number> =>
      (await server.control("list_consumers")).split("\n").filter((line) => line.includes(`shop.${topic}`)).length;
    await expect.poll(consumers, { timeout: 20_000 }).toBe(2);
    expect(await broker.publish(outgoing(many(3), topic), never)).toEqual([stored, stored, stored]);
    for (const delivery of await take(3)) await delivery.ack();
    ending.abort();
    expect((await waiting).done).toBe(true);
  });

  test("one receiver at a time has the queue; what it still has in hand when it leaves is not overtaken", async () => {
    const topic = freshTopic();
    await provision(url, [topic], ["shop"]);
    const events = many(6, 1);
    const first = receiving(url, { topics: [topic], prefetch: 2 });
    const second = receiving(url, { topics: [topic], prefetch: 2 });
    await using({ url }, (broker) => broker.publish(outgoing(events.slice(0, 3), topic), never));
    const inHand = await first.take(2);
    const waiting = second.iterator.next();
    await quiet(200, "the second was given something", waiting);
    // Whoever leaves is waited for by the clock: it stands still.
    const now = vi.spyOn(systemClock, "monotonic").mockReturnValue(systemClock.monotonic());
    onTestFinished(() => now.mockRestore());
    await first.iterator.return?.();
    await using({ url }, (broker) => broker.publish(outgoing(events.slice(3), topic), never));
    await quiet(300, "the second was given something while the first had two in hand", waiting);
    await inHand[0]!.ack();
    await inHand[1]!.ack();
    const got = [(await within(20_000, "the second's turn", waiting)).value as Delivery];
    await got[0]!.ack();
    expect(ids(await second.take(2))).toEqual(ids(events.slice(3, 5)));
    expect(got[0]!.envelope.id).toBe(events[2]!.id);
    // Who reads it again in the same process does not wait for acknowledgements that may never come.
    await second.iterator.return?.();
    const again = second.broker.receive({ consumer: "shop", topics: [topic], prefetch: 2 }, never)[Symbol.asyncIterator]();
    expect((await within(20_000, "the next reading", again.next())).value).toMatchObject({ envelope: { id: events[3]!.id } });
    // Nor does another process, for long.
    now.mockRestore();
    await again.return?.();
    expect(ids(await receiving(url, { topics: [topic] }).take(3))).toEqual(ids(events.slice(3)));
  });

  test("another producer's event is read as it is", async () => {
    const topic = freshTopic();
    await provision(url, [topic], ["shop"]);
    const headers = {
      "cloudEvents:id": "7",
      "cloudEvents:type": "Paid",
      cloudEvents_subject: "order-9",
      "cloudEvents:time": { "!": "timestamp", value: 1_767_225_600 },
      "cloudEvents:sequence": 12,
      "cloudEvents:eventversion": 2,
      ...{ count: 3, flag: true, nothing: null, list: ["a", 1], bytes: Buffer.from("é") },
    };
    await raw(url, async (channel) => {
      channel.publish("waybill", topic, Buffer.from("{}"), { headers, contentType: "application/json" });
    });
    const { take, iterator } = receiving(url, { topics: [topic] });
    const [delivery] = await take(1);
    expect(comparable(delivery!.envelope)).toEqual(
      comparable(
        sampleEvent({
          ...{ id: "7", type: "Paid", aggregateType: "", aggregateId: "order-9", seq: 12n, eventVersion: 2, data: Buffer.from("{}") },
          createdAt: new Date(1_767_225_600_000),
          headers: { count: "3", flag: "true", nothing: "", list: '["a",1]', bytes: "é" },
        }),
      ),
    );
    await delivery!.ack();
    await iterator.return?.();
    expect(await raw(url, (channel) => channel.checkQueue(`shop.${topic}`))).toMatchObject({ messageCount: 0 });
  });

  test("a queue that is not there, or not as it must be, is told with the way out; nothing is made of it", async () => {
    const topic = freshTopic();
    const read = (consumer: string) => receiving(url, { topics: [topic], consumer }).iterator.next();
    const way = new RegExp(
      `has no queue "nobody.${topic}": run waybill migrate --broker amqp://\\S+ --topics ${topic} --consumers nobody$`,
    );
    await expect(read("nobody")).rejects.toMatchObject({ code: "DESTINATION_UNAVAILABLE", message: expect.stringMatching(way) as string });
    await raw(url, (channel) => expect(channel.checkQueue(`nobody.${topic}`)).rejects.toThrow(/404/));

    const single = { "x-single-active-consumer": true };
    await raw(url, async (channel) => {
      await channel.assertQueue(`plain.${topic}`, { arguments: { "x-queue-type": "quorum" } });
      await channel.assertQueue(`classic.${topic}`, { arguments: single });
      await channel.assertQueue(`brief.${topic}`, { durable: false, arguments: single });
      await channel.assertExchange("fan", "fanout");
    });
    for (const consumer of ["plain", "classic", "brief"]) {
      await expect(read(consumer), consumer).rejects.toThrow(/is there, and not as it must be: PRECONDITION_FAILED - inequivalent arg/);
      await using({ url }, (broker) => expect(broker.provision([topic], [consumer])).rejects.toThrow(/not as it must be/));
    }
    await using({ url, exchange: "fan" }, (broker) =>
      expect(broker.provision([topic])).rejects.toThrow(/the exchange fan .* not as it must be/),
    );
  });

  test("a queue that is deleted under its reader ends the reading, and says so", async () => {
    const topic = freshTopic();
    await provision(url, [topic], ["shop"]);
    const { iterator } = receiving(url, { topics: [topic] });
    const waiting = expect(within(20_000, "the end", iterator.next())).rejects.toThrow(/has ended the reading of the queue shop/);
    await expect.poll(async () => (await raw(url, (channel) => channel.checkQueue(`shop.${topic}`))).consumerCount).toBe(1);
    await raw(url, (channel) => channel.deleteQueue(`shop.${topic}`));
    await waiting;
  });

  test("classic queues, where they are asked for, keep order and what is unacknowledged too", async () => {
    const topic = freshTopic();
    const events = many(30, 2);
    const options = { url, queueType: "classic", provision: true } as const;
    await using(options, async (broker) => {
      await broker.provision([topic], ["shop"]);
      expect(new Set((await broker.publish(outgoing(events, topic), never)).map(({ status }) => status))).toEqual(new Set(["stored"]));
    });
    for (const from of [0, 3]) {
      await using(options, async (broker) => {
        let at = from;
        for await (const delivery of broker.receive({ consumer: "shop", topics: [topic], prefetch: 30 }, never)) {
          expect(delivery.envelope.id).toBe(events[at]!.id);
          if ((at += 1) > from + 3) break;
          await delivery.ack();
        }
      });
    }
  });

  test("doctor's findings: a healthy topic is good throughout, and each bad setting is told with the promise that it breaks", async () => {
    const [topic, unbound, nowhere] = [freshTopic(), freshTopic(), freshTopic()];
    await using({ url, management: server.management }, async (broker) => {
      await broker.provision([topic, unbound], ["shop"]);
      const badOf = async (topics: readonly string[]) =>
        (await broker.examine(topics, never))
          .filter(({ setting, verdict }) => verdict !== "good" && setting !== "max_message_size") // which the server does not tell
          .map(({ setting, breaks }) => `${setting} ${breaks}`);
      expect(await badOf([topic])).toEqual([]);
      await raw(url, (channel) => channel.unbindQueue(`shop.${unbound}`, "waybill", unbound));
      expect(await badOf([unbound, nowhere])).toEqual([
        `queues of ${unbound} L`,
        `binding of queue shop.${unbound} L`,
        `queues of ${nowhere} L`,
      ]);
      const queue = `of queue shop.${topic}`;
      await policy("bad", `^shop\\.${topic}$`, {
        "max-length": 9,
        overflow: "drop-head",
        "message-ttl": 1000,
        expires: 99_999,
        "delivery-limit": 2,
      });
      expect(await badOf([topic])).toEqual([
        `max-length ${queue} L`,
        `message-ttl ${queue} L`,
        `expires ${queue} L`,
        `delivery-limit ${queue} L`,
      ]);
      await policy("lost", "^waybill$", { "alternate-exchange": "amq.fanout" });
      expect(await badOf([])).toEqual(["alternate-exchange of waybill L"]);
    });
    await using({ url }, async (broker) => {
      const unseen = (await broker.examine([topic], never)).findLast(({ verdict }) => verdict === "unknown");
      expect(unseen).toMatchObject({ setting: "policies, bindings and alarms", why: expect.stringMatching(/--management/) as string });
    });
    const wrong = server.management.replace("guest:guest", "guest:hush");
    await using({ url, management: wrong }, async (broker) => {
      const unseen = (await broker.examine([topic], never)).findLast(({ verdict }) => verdict === "unknown");
      expect(unseen?.why).toMatch(/refuses this user \(401\)/);
      expect(JSON.stringify(unseen)).not.toMatch(/hush/);
    });
  });
});
