import { describe, expect, test } from "vitest";
import { otherTopics } from "../../src/core/other-topics.ts";
import { createRelay } from "../../src/relay/create-relay.ts";
import { draft } from "../support/outbox.ts";
import { firstDeliveries } from "../support/scripted-sink.ts";
import { awayWith, backWithinMs, invented, page, scene, strangers } from "./crowd-scene.ts";

const isInvented = (topic: string): boolean => topic.startsWith("invented");
const noSuchTopic = {
  verdict: ({ topic }: { readonly topic: string }) => (isInvented(topic) ? ("down" as const) : ("stored" as const)),
  probe(topic: string) {
    if (isInvented(topic)) throw new Error(`no topic ${topic}`);
  },
};

describe("one statement that invents thousands of topics", () => {
  test.each(["memory", "sqlite"] as const)("makes a bounded number of records and probes, and holds nobody else (%s)", async (store) => {
    await using it = await scene({ store, ...noSuchTopic });
    const relay = it.relayOf();
    await relay.start();
    await it.invent();
    await it.clock.advance(10_000);
    const records = await it.records();
    expect(records.length).toBeLessThanOrEqual(strangers + 1);
    expect(records.find(({ destination }) => destination === otherTopics)).toMatchObject({ aggregates: invented - strangers });
    expect(records.reduce((sum, { aggregates }) => sum + aggregates, 0)).toBe(invented);
    expect(it.told.filter(({ type }) => type === "destination.opened").length).toBeLessThanOrEqual(strangers + 1);
    expect(it.sink.sent).toHaveLength(invented);

    it.probes.length = it.sink.sent.length = it.calls.waitingFor = it.calls.release = 0;
    await it.clock.advance(60_000);
    expect(it.probes.length, "a page a second, and the topics with a record").toBeLessThanOrEqual(61 * page + strangers * 4);
    expect(it.calls).toEqual({ waitingFor: expect.any(Number) as number, release: 0 });
    expect(it.calls.waitingFor).toBeLessThanOrEqual(61);
    expect(it.sink.sent, "what cannot be delivered is not sent again").toEqual([]);

    await it.bench.add(draft("o1", 1), draft("o1", 2), draft("o2", 1));
    await it.clock.advance(300);
    expect(it.sink.log).toHaveLength(3);
    expect(await it.states()).toMatchObject({ DEAD: 0, FAILED: 0, BLOCKED: invented, PUBLISHED: 3 });
    const stopped = relay.stop();
    await it.clock.advance(3_000);
    await stopped;
  });

  test("and one of them that comes into being gets its events, in order, although it has no record", async () => {
    let there = "";
    await using it = await scene({
      verdict: ({ topic }) => (topic === there || !isInvented(topic) ? "stored" : "down"),
      probe: (topic) => {
        if (topic !== there) throw new Error(`no topic ${topic}`);
      },
    });
    const relay = it.relayOf();
    await relay.start();
    await it.invent();
    await it.clock.advance(10_000);
    const named = new Set((await it.records()).map(({ destination }) => destination));
    const late = Array.from({ length: invented }, (_, n) => n).findLast((n) => !named.has(`invented${n}.events`))!;
    await it.bench.add(...Array.from({ length: 40 }, (_, n) => draft(`a${late}`, n + 1, { aggregateType: `Invented${late}` })));
    await it.clock.advance(1_000);
    there = `invented${late}.events`;
    await it.clock.advance(backWithinMs(invented));
    expect([...firstDeliveries(it.sink.log).values()]).toEqual([Array.from({ length: 41 }, (_, n) => n)]);
    expect(await it.states()).toMatchObject({ DEAD: 0, FAILED: 0, PUBLISHED: 41, BLOCKED: invented - 1 });
    const stopped = relay.stop();
    await it.clock.advance(3_000);
    await stopped;
  });

  test("does not take the record of a topic that exists: when that fails, it is found again after its own wait", async () => {
    let down = false;
    await using it = await scene({
      verdict: ({ topic }) => (isInvented(topic) || down ? "down" : "stored"),
      probe: (topic) => {
        if (isInvented(topic) || down) throw new Error(`no topic ${topic}`);
      },
    });
    const relay = it.relayOf();
    await relay.start();
    await it.bench.add(draft("o1", 1));
    await it.clock.advance(500);
    await it.invent();
    await it.clock.advance(10_000);
    down = true;
    await it.bench.add(draft("o1", 2));
    await it.clock.advance(500);
    expect((await it.records()).map(({ destination }) => destination)).toContain("order.events");
    down = false;
    await it.clock.advance(2_500);
    expect(it.sink.log).toHaveLength(2);
    const stopped = relay.stop();
    await it.clock.advance(3_000);
    await stopped;
  });

  test("is found by the next relay with as few records, and runOnce ends beside it", async () => {
    await using it = await scene(noSuchTopic);
    await it.invent();
    const first = it.relayOf();
    await first.start();
    await it.clock.advance(10_000);
    const stopped = first.stop();
    await it.clock.advance(3_000);
    await stopped;
    it.told.length = 0;
    const once = it.relayOf().runOnce();
    await it.clock.advance(20_000);
    expect(await once).toMatchObject({ dead: 0, failed: 0, published: 0 });
    expect((await it.records()).length).toBeLessThanOrEqual(strangers + 1);
    expect(new Set(it.probes).size, "each topic was looked at").toBe(invented);
  });

  test("leaves no record behind once its topics exist", async () => {
    let away = true;
    await using it = await scene({
      verdict: ({ topic }) => (isInvented(topic) && away ? "down" : "stored"),
      probe: (topic) => {
        if (isInvented(topic) && away) throw new Error(`no topic ${topic}`);
      },
    });
    const relay = it.relayOf();
    await relay.start();
    await it.invent(300);
    await it.clock.advance(10_000);
    away = false;
    await it.clock.advance(backWithinMs(300) + 60_000);
    expect(await it.states()).toMatchObject({ BLOCKED: 0, DEAD: 0, PUBLISHED: 300 });
    expect(await it.records()).toEqual([]);
    expect((await it.bench.operator.status()).holds.aggregates).toBe(0);
    const tell = (type: string) => it.told.filter((event) => event.type === type).map((event) => ("topic" in event ? event.topic : null));
    expect(tell("destination.closed").sort()).toEqual(tell("destination.opened").sort());
    const stopped = relay.stop();
    await it.clock.advance(3_000);
    await stopped;
  });
});

test("a broker that is away with 3,000 topics in the outbox spends no attempt and kills no event, and all arrive when it is back", () =>
  awayWith(3_000));

describe("the list of topics", () => {
  const listed = ["order.events"];

  test("parks an event that is routed elsewhere at once and unsent, and all such events are one cause", async () => {
    await using it = await scene(noSuchTopic, { topics: listed });
    const relay = it.relayOf();
    await relay.start();
    await it.invent(100);
    await it.bench.add(draft("o1", 1));
    await it.clock.advance(1_000);
    expect(it.sink.sent).toHaveLength(1);
    expect(await it.states()).toMatchObject({ DEAD: 100, PUBLISHED: 1, BLOCKED: 0 });
    const { dead, breakers } = await it.bench.operator.status();
    expect(breakers).toEqual([]);
    expect(dead).toMatchObject([{ error: "ROUTE_FAILED: the topic … is not among the relay's topics", events: 100 }]);
    const stopped = relay.stop();
    await it.clock.advance(3_000);
    await stopped;
  });

  test("frees what other relays left waiting for invented topics", async () => {
    await using it = await scene(noSuchTopic);
    await it.invent(500);
    const before = it.relayOf();
    await before.start();
    await it.clock.advance(5_000);
    const stopped = before.stop();
    await it.clock.advance(3_000);
    await stopped;
    const next = createRelay({
      store: it.bench.store,
      sink: it.sink,
      clock: it.clock,
      housekeeping: false,
      observe: false,
      topics: listed,
    });
    await next.start();
    await it.clock.advance(backWithinMs(500) + 60_000);
    expect(await it.states()).toMatchObject({ DEAD: 500, BLOCKED: 0 });
    expect(await it.records()).toEqual([]);
    const ended = next.stop();
    await it.clock.advance(3_000);
    await ended;
  });

  test.each([[[]], ["order.events"], [["two words"]], [[7]]])("refuses %j", (topics) => {
    expect(() => createRelay({ store: {} as never, sink: {} as never, topics: topics as never })).toThrow(
      /topics must be a list of at least one topic/,
    );
  });
});
