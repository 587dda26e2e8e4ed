import { describe, expect, test } from "vitest";
import { memoryBroker } from "../../src/memory.ts";
import { examineConsumer } from "../../src/doctor/examine.ts";

describe("what doctor says of a consumer", () => {
  const places = { consumer: "shipping", topics: ["order.events"], state: null, deadTopic: (topic: string) => `${topic}.dead` };

  test("a dead-letter topic that is missing is bad, by its name and with the way out; a lag that is not told is unknown", async () => {
    await using sink = memoryBroker({ provision: false });
    const broker = { sink, lag: () => Promise.reject(new Error("not allowed to look at groups")) };
    const [lag, topic, ...others] = await examineConsumer({ ...places, broker });
    expect(others).toEqual([]);
    expect(lag).toMatchObject({
      setting: "lag of order.events",
      verdict: "unknown",
      why: "The broker did not tell: not allowed to look at groups",
    });
    expect(topic).toMatchObject({ of: "consumer", setting: "dead-letter topic of order.events", verdict: "bad", breaks: "I" });
    expect(topic!.why).toContain("create it with waybill migrate --broker URL --topics order.events.dead");
    await sink.provision(["order.events.dead"]);
    expect((await examineConsumer({ ...places, broker }))[1]).toMatchObject({ verdict: "good", value: "order.events.dead" });
  });

  test("without a broker and an inbox there is nothing to say", async () => {
    expect(await examineConsumer({ ...places, broker: null })).toEqual([]);
  });
});
