import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { kafka } from "../../src/brokers/kafka/index.ts";
import { createLink } from "../../src/brokers/kafka/link.ts";
import { createMember } from "../../src/brokers/kafka/reading/member.ts";
import { settingsOf } from "../../src/brokers/kafka/url.ts";
import { systemClock } from "../../src/core/clock.ts";
import { describeWith } from "../servers/available.ts";
import { startKafka, type KafkaServer } from "../servers/kafka.ts";
import { groupSize } from "./kafka-raw.ts";
import { freshTopics, many, never, publish } from "./kafka.ts";

const sessionMs = 6_000;
const eventually = <T>(look: () => T | Promise<T>) => expect.poll(look, { timeout: 60_000, interval: 50 });

await describeWith("kafka", "kafka: members that died while their group was joining", () => {
  let server: KafkaServer;
  beforeAll(async () => void (server = await startKafka()));
  afterAll(() => server[Symbol.asyncDispose]());

  test("the coordinator still counts them, one may be the leader, and a member that lives gets every partition and event all the same", async () => {
    const [topic] = await freshTopics(server.url(), 4);
    /** Ends without leaving, like a process that is killed. */
    const mortal = () => {
      const link = createLink({ settings: settingsOf(server.url()), clock: systemClock, timeoutMs: 10_000 });
      const member = createMember({ link, group: "shop", topics: [topic], sessionMs, rebalanceMs: sessionMs });
      const joined = member.join(never);
      joined.catch(() => undefined);
      return { joined, kill: () => (member.end(), link.close()) };
    };
    const first = mortal();
    await first.joined;
    first.kill();
    // They wait for the first one, whose death the coordinator has not noticed, and die as it did.
    const crowd = [mortal(), mortal(), mortal()];
    const size = () => groupSize(server.url(), "shop");
    await eventually(size).toBe(1 + crowd.length);
    for (const { kill } of crowd) kill();

    const broker = kafka({ url: server.url(), timeoutMs: 10_000, sessionMs });
    onTestFinished(() => broker[Symbol.asyncDispose]());
    const events = many(200, 40);
    expect((await publish(broker, events, topic)).every(({ status }) => status === "stored")).toBe(true);
    const stopping = new AbortController();
    onTestFinished(() => stopping.abort());
    const seen: string[] = [];
    const reading = (async () => {
      for await (const delivery of broker.receive({ consumer: "shop", topics: [topic], prefetch: 50 }, stopping.signal)) {
        seen.push(delivery.envelope.id);
        await delivery.ack();
        if (seen.length === events.length) return;
      }
    })();
    await eventually(() => seen.length).toBe(events.length);
    await reading;
    await eventually(size).toBeLessThanOrEqual(1);
    expect(new Set(seen)).toEqual(new Set(events.map(({ id }) => id)));
  });
});
