import { Admin, Producer, stringSerializers } from "@platformatic/kafka";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { kafka, type Kafka } from "../../src/brokers/kafka/index.ts";
import { partitionOf } from "../../src/brokers/kafka/reading/partition.ts";
import { sampleEvent, within } from "../../src/conformance/corpus.ts";
import type { PublishResult } from "../../src/contracts/sink.ts";
import type { Delivery } from "../../src/contracts/source.ts";
import type { Envelope } from "../../src/core/event.ts";
import { describeWith } from "../servers/available.ts";
import { startKafka, type KafkaServer } from "../servers/kafka.ts";
import { changeTopic, deleteRecords, makeTopic, readTopic, removeTopic, type RawMessage } from "./kafka-raw.ts";
import { freshTopics, many, never, outgoing, publish } from "./kafka.ts";
import { pause } from "./kit/changes.ts";

const eventually = <T>(look: () => T) => expect.poll(look, { timeout: 20_000, interval: 20 });

await describeWith("kafka", "kafka: members of a group, and messages that are refused", () => {
  let server: KafkaServer;
  const opened: Kafka[] = [];
  beforeAll(async () => void (server = await startKafka({ proxied: true })));
  afterAll(() => server[Symbol.asyncDispose]());
  const open = (options: Partial<Parameters<typeof kafka>[0]> = {}): Kafka => {
    const broker = kafka({ url: server.url(), timeoutMs: 10_000, sessionMs: 10_000, ...options });
    opened.push(broker);
    return broker;
  };
  const closeAll = async (): Promise<void> => void (await Promise.all(opened.splice(0).map((broker) => broker[Symbol.asyncDispose]())));

  const readBack = (topic: string): Promise<readonly RawMessage[]> => readTopic(server.url(), topic, true);

  /** A member that works on each delivery for a moment, and tells when it begins. */
  function member(name: string, topic: string, log: [string, Envelope][], options: Partial<Parameters<typeof kafka>[0]> = {}) {
    const broker = open(options);
    const stopping = new AbortController();
    const work = async (delivery: Delivery): Promise<void> => {
      log.push([name, delivery.envelope]);
      await pause(5);
      await delivery.ack();
    };
    const working: Promise<void>[] = [];
    const receiving = (async () => {
      while (!stopping.signal.aborted) {
        try {
          for await (const delivery of broker.receive({ consumer: "shop", topics: [topic], prefetch: 8 }, stopping.signal))
            working.push(work(delivery));
        } catch {
          // It begins again below.
        }
        if (!stopping.signal.aborted) await pause(100);
      }
    })();
    return {
      async stop() {
        stopping.abort();
        await receiving;
        await Promise.all(working);
        await broker[Symbol.asyncDispose]();
      },
      seen: () => log.filter(([who]) => who === name).length,
    };
  }

  test("members come, go and die under load: nothing is lost, no aggregate's first deliveries are reordered, nothing comes twice but by a death", async () => {
    const [topic] = await freshTopics(server.url(), 6);
    const log: [string, Envelope][] = [];
    const sink = open();
    const sent: Envelope[] = [];
    const told: PublishResult[] = [];
    let on = true;
    onTestFinished(() => void (on = false));
    const writing = (async () => {
      while (on) {
        const events = many(20, 40);
        told.push(...(await publish(sink, events, topic)));
        sent.push(...events);
        await pause(10);
      }
    })();
    const twice = (): number => log.length - new Set(log.map(([, { id }]) => id)).size;
    const first = member("first", topic, log);
    await eventually(() => first.seen()).toBeGreaterThan(100);
    const second = member("second", topic, log);
    await eventually(() => second.seen()).toBeGreaterThan(100);
    await second.stop();
    const before = first.seen();
    await eventually(() => first.seen() - before).toBeGreaterThan(100);
    expect(twice()).toBe(0);

    // No shorter, or a busy machine would take it for dead while it lives.
    const sessionMs = 5_000;
    const mortal = member("mortal", topic, log, { url: `kafka://127.0.0.1:${server.proxy!.port}`, sessionMs });
    await eventually(() => mortal.seen()).toBeGreaterThan(100);
    // Its machine is gone: nothing comes from it any more, not even an end.
    for (const direction of ["up", "down"] as const) server.proxy!.fault(direction, { hold: true });
    await pause(1_000);
    on = false;
    await writing;
    expect(told.filter(({ status }) => status !== "stored")).toEqual([]);
    const lacking = (): number => sent.length - new Set(log.map(([, { id }]) => id)).size;
    await eventually(lacking).toBe(0);
    server.proxy!.heal();
    await Promise.all([first.stop(), mortal.stop()]);
    await closeAll();

    const seen = new Set<string>();
    const firsts = log.flatMap(([, event]) => (seen.has(event.id) ? [] : (seen.add(event.id), [event])));
    const order = (events: readonly Envelope[], aggregate: string): string[] =>
      events.filter(({ aggregateId }) => aggregateId === aggregate).map(({ id }) => id);
    for (const aggregate of new Set(sent.map(({ aggregateId }) => aggregateId)))
      expect(order(firsts, aggregate)).toEqual(order(sent, aggregate));
    const times = new Map<string, string[]>();
    for (const [who, { id }] of log) times.set(id, [...(times.get(id) ?? []), who]);
    for (const who of times.values()) if (who.length > 1) expect(who.toSorted()).toEqual(["first", "mortal"]);
  });

  test("what a member holds on to for too long goes to another, and its late ack changes nothing", async () => {
    const [topic] = await freshTopics(server.url(), 2);
    const inPartition = (index: number): string => ["a", "b", "c", "d"].find((id) => partitionOf(Buffer.from(id), 2) === index)!;
    const one = (index: number): Envelope => sampleEvent({ aggregateId: inPartition(index) });
    await publish(open(), [one(0), one(1)], topic);
    const receive = (prefetch: number): AsyncIterator<Delivery> => {
      const deliveries = open().receive({ consumer: "slow", topics: [topic], prefetch }, never);
      return deliveries[Symbol.asyncIterator]();
    };
    const take = async (from: AsyncIterator<Delivery>): Promise<Delivery> =>
      (await within(30_000, "a delivery", from.next())).value as Delivery;
    const old = receive(2);
    const held = [await take(old), await take(old)];
    void old.next();
    // It has one partition of the two, since there are two members.
    const again = await take(receive(1));
    expect(held.map(({ envelope }) => envelope.id)).toContain(again.envelope.id);
    for (const delivery of held) await delivery.ack();
    await pause(200);
    await closeAll();
    const later = [one(0), one(1)];
    await publish(open(), later, topic);
    const last = receive(9);
    const coming = [await take(last), await take(last), await take(last)].map(({ envelope }) => envelope.id);
    expect(coming.toSorted()).toEqual([again.envelope.id, ...later.map(({ id }) => id)].toSorted());
    await closeAll();
  });

  test("an ack that comes a little after the end still counts", async () => {
    const [topic] = await freshTopics(server.url(), 1);
    const events = many(2, 1);
    const broker = open();
    await publish(broker, events, topic);
    const receive = (signal = never): AsyncIterator<Delivery> => {
      const deliveries = broker.receive({ consumer: "late", topics: [topic], prefetch: 1 }, signal);
      return deliveries[Symbol.asyncIterator]();
    };
    const ending = new AbortController();
    const first = receive(ending.signal);
    const delivery = (await first.next()).value as Delivery;
    ending.abort();
    expect((await first.next()).done).toBe(true);
    await pause(50);
    await delivery.ack();
    const second = receive();
    expect(((await second.next()).value as Delivery).envelope.id).toBe(events[1]!.id);
    await closeAll();
  });

  test("after an answer was lost the next message is stored, and not taken for a copy of the one before", async () => {
    for (const transactions of [false, true]) {
      const [topic] = await freshTopics(server.url(), 1);
      // As long as the lost answer is waited for, and as long as those after it may take.
      const broker = open({ url: `kafka://127.0.0.1:${server.proxy!.port}`, transactions, timeoutMs: 4_000 });
      const events = many(4, 1);
      expect(await publish(broker, [events[0]!], topic)).toEqual([{ status: "stored" }]);
      server.proxy!.fault("down", { hold: true });
      expect(await publish(broker, [events[1]!], topic)).toMatchObject([{ status: transactions ? "refused" : "unknown" }]);
      server.proxy!.heal();
      expect(await publish(broker, [events[2]!], topic)).toEqual([{ status: "stored" }]);
      expect(await publish(broker, [events[3]!], topic)).toEqual([{ status: "stored" }]);
      const ids = (await readBack(topic)).map(({ attributes }) => attributes["id"]);
      expect(ids.filter((id) => id !== events[1]!.id)).toEqual([events[0]!.id, events[2]!.id, events[3]!.id]);
      await closeAll();
    }
  });

  test("a message that the topic does not take any more is found out, in the middle of its aggregate's run", async () => {
    for (const transactions of [false, true]) {
      const [topic] = await freshTopics(server.url(), 2);
      const broker = open({ transactions });
      const event = (aggregateId: string, bytes = 100): Envelope => sampleEvent({ aggregateId, data: new Uint8Array(bytes) });
      expect(await publish(broker, [event("a")], topic)).toEqual([{ status: "stored" }]);
      await changeTopic(server.url(), topic, "max.message.bytes", "5000");
      const batch = [event("a"), event("b"), event("a", 6_000), event("a"), event("c"), event("b", 1_000), event("d")];
      const results = await publish(broker, batch, topic);
      expect(results.map(({ status }) => status)).toEqual([...["stored", "stored", "refused", "skipped", "stored", "stored", "stored"]]);
      expect(results[2]).toMatchObject({ blame: "event", retryable: false, error: { code: "MESSAGE_TOO_LARGE" } });
      const ids = (await readBack(topic)).map(({ attributes }) => attributes["id"]);
      const stored = batch.filter((_, i) => results[i]!.status === "stored").map(({ id }) => id);
      expect(ids.filter((id) => stored.includes(id!)).toSorted()).toEqual(stored.toSorted());
      expect(ids).toHaveLength(stored.length + 1);
      if (transactions) {
        // The first attempt is in the log, called off; readers never see it.
        expect((await readTopic(server.url(), topic)).length).toBeGreaterThan(ids.length);
        const last = ["a", "b", "c", "d"].map((aggregateId) => event(aggregateId));
        await publish(broker, last, topic);
        const got: string[] = [];
        for await (const delivery of broker.receive({ consumer: "reader", topics: [topic], prefetch: 99 }, never)) {
          got.push(delivery.envelope.id);
          await delivery.ack();
          if (last.every(({ id }) => got.includes(id))) break;
        }
        expect(got.toSorted()).toEqual([...ids, ...last.map(({ id }) => id)].toSorted());
      }
      // By now its limit is known.
      expect(await publish(broker, [event("e", 6_000)], topic)).toMatchObject([
        { error: { message: expect.stringMatching(/takes 5000/) as string } },
      ]);
    }
    await closeAll();
  });

  test("a transaction's messages come to readers when it is committed, each once, over all its topics", async () => {
    const topics = await freshTopics(server.url(), 3);
    const broker = open({ transactions: true });
    const events = many(60, 20);
    const batch = [...outgoing(events.slice(0, 30), topics[0]), ...outgoing(events.slice(30), topics[1])];
    for (const result of await broker.publish(batch, never)) expect(result.status).toBe("stored");
    // Another is given up while it is under way: what it leaves open must not keep readers from what comes behind it.
    const off = new AbortController();
    const givenUp = broker.publish(outgoing(many(500, 50), topics[0]), off.signal);
    await pause(15);
    off.abort();
    await givenUp;
    const last = many(3, 3);
    for (const result of await publish(broker, last, topics[0])) expect(result.status).toBe("stored");
    const got: string[] = [];
    for await (const delivery of open().receive({ consumer: "reader", topics, prefetch: 1_000 }, never)) {
      got.push(delivery.envelope.id);
      await delivery.ack();
      if (last.every(({ id }) => got.includes(id)) && events.every(({ id }) => got.includes(id))) break;
    }
    expect(new Set(got).size).toBe(got.length);
    await closeAll();
  });

  test("what is no event comes as unreadable with its bytes, and what lies behind it comes", async () => {
    const [topic] = await freshTopics(server.url(), 1);
    const other = new Producer({ clientId: "other", bootstrapBrokers: [`127.0.0.1:${server.port}`], serializers: stringSerializers });
    const broker = open();
    const events = many(2, 1);
    await publish(broker, events.slice(0, 1), topic);
    await other.send({ messages: [{ topic, key: "x", value: "not ours" }], acks: -1 });
    await other.close();
    await publish(broker, events.slice(1), topic);
    const got: Delivery[] = [];
    for await (const delivery of broker.receive({ consumer: "reader", topics: [topic], prefetch: 9 }, never)) {
      got.push(delivery);
      await delivery.ack();
      if (got.length === 3) break;
    }
    expect(got.map(({ unreadable }) => unreadable !== undefined)).toEqual([false, true, false]);
    expect([got[0]!.envelope.id, got[2]!.envelope.id]).toEqual(events.map(({ id }) => id));
    expect(Buffer.from(got[1]!.unreadable!.raw).includes("not ours")).toBe(true);
    await closeAll();
  });

  test("a topic comes into being when it is asked for, not by a message or a reader, unless `provision` is true", async () => {
    const broker = open({ partitions: 2 });
    expect(await publish(broker, [sampleEvent()], "typo.events")).toMatchObject([
      {
        status: "refused",
        blame: "destination",
        error: { code: "DESTINATION_UNAVAILABLE", message: expect.stringMatching(/no topic "typo.events": provision/) as string },
      },
    ]);
    const reading = broker.receive({ consumer: "c", topics: ["typo.events"], prefetch: 1 }, never)[Symbol.asyncIterator]();
    await expect(reading.next()).rejects.toMatchObject({ code: "DESTINATION_UNAVAILABLE" });
    expect(await readTopic(server.url(), "typo.events")).toEqual([]);
    await broker.provision(["made.events", "made.events"].slice(1));
    await broker.provision(["made.events"]);
    expect(await publish(broker, many(4, 4), "made.events")).toEqual(Array.from({ length: 4 }, () => ({ status: "stored" })));
    await expect(broker.provision(["no such name"])).rejects.toMatchObject({ code: "INVALID_OPTION" });
    expect(await publish(broker, [sampleEvent()], "no such name")).toMatchObject([
      { status: "refused", blame: "event", error: { code: "ROUTE_FAILED" } },
    ]);
    const generous = open({ provision: true, partitions: 1 });
    expect(await publish(generous, [sampleEvent()], "generous.events")).toEqual([{ status: "stored" }]);
    await removeTopic(server.url(), "generous.events");
    await closeAll();
  });

  test("the doctor reads what the server is set to, and says which promise it breaks", async () => {
    await makeTopic(server.url(), "compact.events", 1, {
      "cleanup.policy": "compact",
      "retention.ms": "60000",
      "max.message.bytes": "1000",
    });
    const found = await open().examine(["compact.events", "missing.events"], never);
    const verdicts = Object.fromEntries(found.map(({ setting, verdict, breaks, value }) => [setting, `${verdict} ${breaks} ${value}`]));
    expect(verdicts).toEqual({
      "replicas of compact.events": "bad L 1",
      "min.insync.replicas of compact.events": "bad L 1",
      "unclean.leader.election.enable of compact.events": "good  false",
      "cleanup.policy of compact.events": "bad L compact",
      "retention.ms of compact.events": "bad L 60000",
      "retention.bytes of compact.events": "good  -1",
      "max.message.bytes of compact.events": "bad I 1000",
      "topic missing.events": "bad L null",
      "auto.create.topics.enable": "good  false",
    });
    await closeAll();
  });

  test("a group's lag: from what retention has left, joining nothing; a transaction's end counts, and a topic that is not there is an error", async () => {
    const [topic, other] = await freshTopics(server.url(), 1);
    const broker = open();
    const lag = (of: string): Promise<number | null> => broker.lag!(of, never, "shop-lag");
    await publish(broker, many(5), topic);
    expect(await lag(topic)).toBeNull();
    const admin = new Admin({ clientId: "test", bootstrapBrokers: [new URL(server.url()).host] });
    onTestFinished(() => admin.close());
    expect([...(await admin.listGroups()).keys()]).not.toContain("shop-lag");
    const reading = async (of: string, count: number, acks: number): Promise<void> => {
      await using reader = kafka({ url: server.url(), timeoutMs: 10_000 });
      let seen = 0;
      for await (const delivery of reader.receive({ consumer: "shop-lag", topics: [of], prefetch: 9 }, never)) {
        if ((seen += 1) <= acks) await delivery.ack();
        if (seen === count) break;
      }
    };
    await reading(topic, 5, 1);
    expect(await lag(topic)).toBe(4);
    expect([...(await admin.listGroups()).keys()]).toContain("shop-lag");
    await deleteRecords(server.url(), topic, 0, 3n);
    expect(await lag(topic)).toBe(2);

    await publish(open({ transactions: true }), many(3), other);
    await reading(other, 3, 3);
    expect(await lag(other)).toBe(1);
    await expect(lag("nowhere.events")).rejects.toMatchObject({ code: "DESTINATION_UNAVAILABLE" });
    await closeAll();
  });
});
