import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { systemClock } from "../../src/core/clock.ts";
import type { PathEvent } from "../../src/core/path-events.ts";
import { laneOf } from "../../src/core/lane.ts";
import { createRelay } from "../../src/relay/create-relay.ts";
import { subject as nats } from "../brokers/nats.ts";
import { raw, subject as rabbitmq, tapOf } from "../brokers/rabbitmq.ts";
import { subject as redis } from "../brokers/redis.ts";
import { freshType, type Subject } from "../brokers/kit/subject.ts";
import { describeWith } from "../servers/available.ts";
import { benches, draft } from "../support/outbox.ts";

/** More round trips than a publish has time for, were it one publish. */
const hot = 300;
const leaseMs = 4_000;
const coldEveryMs = 250;
/** How many messages, most of them one for each round trip, may pass a cold one: about 500 ms. */
const mostRoundTrips = 40;

/** How many messages the topic holds. */
type Count = (url: string, topic: string) => Promise<number>;

function suite(subject: Subject, count: Count): void {
  test("a hot aggregate on a healthy broker 12 ms away: no copy, no open breaker, and other aggregates of its topic go on past it", async () => {
    await using link = await subject.proxied();
    const { aggregateType, topic } = freshType();
    // In the hot one's lane it would wait behind its backlog.
    const cold = ["cold", "cold2"].find((id) => laneOf(aggregateType, id) !== laneOf(aggregateType, "hot")) ?? "cold3";
    await subject.provision(link.server.url(), [topic], ["shop"]);
    link.proxy.fault("up", { latencyMs: 6 });
    link.proxy.fault("down", { latencyMs: 6 });
    await using bench = await benches["memory"]!(systemClock);
    await using sink = subject.open(link.url);
    const events: PathEvent[] = [];
    const relay = createRelay({ store: bench.store, sink, leaseMs, observe: (event) => void events.push(event) });
    await bench.add(...Array.from({ length: hot }, (_, n) => draft("hot", n, { aggregateType })));
    await relay.start();

    // For each cold event, how many messages the broker holds when it is added.
    const before: number[] = [];
    const published = (): number => events.reduce((sum, event) => sum + (event.type === "relay.published" ? event.count : 0), 0);
    for (let n = 0; (before.at(-1) ?? 0) < hot; n++) {
      before.push(await count(link.server.url(), topic));
      await bench.add(draft(cold, n, { aggregateType }));
      await sleep(coldEveryMs);
    }
    await expect.poll(published).toBe(hot + before.length);
    await relay.drain();

    const stored = await subject.stored(link.server.url(), topic);
    const numbers = (aggregate: string): number[] =>
      stored.filter(({ key }) => key === aggregate).map(({ data }) => (JSON.parse(new TextDecoder().decode(data)) as { n: number }).n);
    expect(numbers("hot")).toEqual(Array.from({ length: hot }, (_, n) => n));
    expect(numbers(cold)).toEqual(before.map((_, n) => n));
    expect(events.filter(({ type }) => type === "destination.opened")).toEqual([]);
    const waited = stored.flatMap(({ key }, at) => (key === cold ? [at] : [])).map((at, n) => at - before[n]!);
    expect(Math.max(...waited), `round trips that cold events waited: ${waited.join(" ")}`).toBeLessThanOrEqual(mostRoundTrips);
  });
}

const counted =
  ({ stored }: Subject): Count =>
  async (url, topic) =>
    (await stored(url, topic)).length;

await describeWith(["redis"], "a hot aggregate on redis", () => suite(redis, counted(redis)));
await describeWith(["rabbitmq"], "a hot aggregate on rabbitmq", () =>
  suite(rabbitmq, (url, topic) => raw(url, async (channel) => (await channel.checkQueue(tapOf(topic))).messageCount)),
);
await describeWith(["nats"], "a hot aggregate on nats", () => suite(nats, counted(nats)));
