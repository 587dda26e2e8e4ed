import { describe, expect, test } from "vitest";
import { systemClock } from "../../src/core/clock.ts";
import { ids, many, publish, take, using } from "./embedded.ts";
import { freshPath, sql } from "./files.ts";

describe("retention of embedded", () => {
  const at = (time: string): { clock: typeof systemClock } => ({ clock: { ...systemClock, now: () => Date.parse(time) } });
  const [old, recent] = ["2030-01-01T00:00:00.000Z", "2030-01-08T00:00:00.000Z"];

  test("deletes what is old and acknowledged by every known consumer, and nothing else", async () => {
    const path = freshPath();
    const [before, after] = [many(10), many(4)];
    await using({ path, ...at(old) }, (broker) => publish(broker, before));
    await using({ path, ...at(recent) }, (broker) => publish(broker, after));
    await using({ path }, async (broker) => {
      for (const delivery of await take(broker, 14, { consumer: "quick" })) await delivery.ack();
      for (const delivery of (await take(broker, 6, { consumer: "slow" })).slice(0, 4)) await delivery.ack();
      expect(await broker.purge(new Date(old))).toBe(0);
      expect(await broker.purge(new Date("2030-01-05"))).toBe(4);
      expect(ids(path)).toEqual([...before, ...after].slice(4).map(({ id }) => id));

      const left = await take(broker, 10, { consumer: "slow" });
      expect(left.map(({ envelope }) => envelope.id)).toEqual([...before, ...after].slice(4).map(({ id }) => id));
      for (const delivery of left) await delivery.ack();
      expect(await broker.purge(new Date("2030-01-05"))).toBe(6);
      expect(await broker.purge(new Date("2030-01-05"))).toBe(0);
      expect(ids(path)).toEqual(after.map(({ id }) => id));
    });
  });

  test("a consumer that has not acknowledged anything yet keeps everything", async () => {
    const path = freshPath();
    await using({ path, ...at(old) }, async (broker) => {
      await publish(broker, many(3));
      await take(broker, 1, { consumer: "done" }).then(async ([delivery]) => delivery!.ack());
      await take(broker, 1, { consumer: "new" });
      expect(await broker.purge(new Date("2031-01-01"))).toBe(0);
    });
  });

  test("without a consumer, messages go by age, topic by topic, however many", async () => {
    const path = freshPath();
    await using({ path, ...at(old) }, async (broker) => {
      for (let batch = 0; batch < 5; batch++) await publish(broker, many(1_000), "unread");
      await publish(broker, many(2), "read");
      await take(broker, 1, { topics: ["read"] });
    });
    await using({ path, ...at(recent) }, async (broker) => {
      await publish(broker, many(3), "unread");
      expect(await broker.purge(new Date("2030-01-05"))).toBe(5_000);
      expect([ids(path, "unread").length, ids(path, "read").length]).toEqual([3, 2]);
    });
  });

  test("offsets are not used again after everything was deleted", async () => {
    const path = freshPath();
    await using({ path, ...at(old) }, async (broker) => {
      await publish(broker, many(5));
      for (const delivery of await take(broker, 5)) await delivery.ack();
      expect(await broker.purge(new Date("2031-01-01"))).toBe(5);
      const [next] = many(1);
      await publish(broker, [next!]);
      expect((await take(broker, 1))[0]!.envelope.id).toBe(next!.id);
    });
    expect(sql(path, "SELECT offset FROM waybill_broker_messages")).toEqual([{ offset: 6 }]);
  });
});
