import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { nats } from "../../src/brokers/nats/index.ts";
import { sampleEvent, within } from "../../src/conformance/corpus.ts";
import type { Delivery, Subscription } from "../../src/contracts/source.ts";
import { systemClock, type Clock } from "../../src/core/clock.ts";
import { createSubscriber } from "../../src/subscriber/subscriber.ts";
import type { NatsServer } from "../servers/nats.ts";
import { fakeInbox, watched } from "../subscriber/fakes.ts";
import { publishRaw, storedRaw } from "../support/nats-raw.ts";
import { describeEachNats, freshTopic, never, outgoing, raw, using } from "./nats.ts";

const first = "NATS/1.0";
const event = (id: string): string => `ce-id: ${id}\r\nce-type: Changed\r\nce-subject: ${id}\r\n`;
const hostile: readonly (readonly [string, string | Uint8Array])[] = [
  ...[409, 503, 404, 408, 100, 999].map((status) => [`status ${status}`, `${first} ${status} Consumer Deleted\r\n\r\n`] as const),
  ["status 409 without words", `${first} 409\r\n\r\n`],
  ["a first line that goes on", `${first}409\r\n\r\n`],
  ["a name with a space", `${first}\r\na name: b\r\n\r\n`],
  ["a name with control characters", `${first}\r\n\x07\0: b\r\n\r\n`],
  ["no name", `${first}\r\n: b\r\n\r\n`],
  ["a line feed alone", `${first}\r\na: b\nc: d\r\n\r\n`],
  ["bytes that are not UTF-8", Buffer.from(`${first}\r\n\xff\xfe: \xc3\x28\r\n\r\n`, "latin1")],
  ["an attribute that cannot be decoded", `${first}\r\n${event("%ff")}\r\n`],
  ["two ids", `${first}\r\n${event("1")}${event("2")}\r\n`],
  ["no end", first],
];

await describeEachNats("nats: hostile messages", (start) => {
  let server: NatsServer;
  beforeAll(async () => void (server = await start({ settings: "max_payload: 8388608" })));
  afterAll(() => server[Symbol.asyncDispose]());

  async function receiving<T>(
    topic: string,
    more: Partial<Subscription>,
    work: (take: () => Promise<Delivery>) => Promise<T>,
    clock: Clock = systemClock,
  ): Promise<T> {
    return using({ url: server.url(), provision: true, clock }, async (broker) => {
      const deliveries = broker.receive({ consumer: "shop", topics: [topic], prefetch: 50, ...more }, never)[Symbol.asyncIterator]();
      const work_ = work(async () => {
        const next = await within(8_000, "a delivery", deliveries.next());
        if (next.done === true) throw new Error("it ended");
        return next.value;
      });
      return work_.finally(() => deliveries.return?.());
    });
  }

  test.each(hostile)("one with %s is delivered as unreadable, with its bytes, and the next one follows", async (_, head) => {
    const topic = freshTopic();
    await using({ url: server.url() }, (broker) => broker.provision([topic], ["shop"]));
    const [before, after] = [sampleEvent(), sampleEvent()];
    await using({ url: server.url() }, (broker) => broker.publish(outgoing([before], topic), never));
    await publishRaw(server.url(), [{ subject: topic, head, data: "the data" }]);
    await using({ url: server.url() }, (broker) => broker.publish(outgoing([after], topic), never));
    const stream = await raw(server.url(), (_, manager) => manager.streams.find(topic));
    const [kept] = await storedRaw(server.url(), stream, [2]);
    // NATS 2.15 removes a status that a publisher wrote, before it stores the message.
    const bytes = Buffer.from(head as string);
    const stripped = Buffer.from(bytes.toString("latin1").replace(/^NATS\/1\.0[^\r]+(\r\n(?!\r)|\r\n\r\n$)/, ""), "latin1");
    expect([bytes, stripped]).toContainEqual(kept!.head);
    await receiving(topic, {}, async (take) => {
      const [one, odd, two] = [await take(), await take(), await take()];
      expect([one.envelope.id, two.envelope.id]).toEqual([before.id, after.id]);
      expect(odd.unreadable?.why).toContain("not an event");
      expect(Buffer.from(odd.unreadable!.raw)).toEqual(Buffer.concat([kept!.head, Buffer.from("the data")]));
      for (const delivery of [one, odd, two]) await delivery.ack();
    });
    await receiving(topic, {}, async (take) => {
      const last = sampleEvent();
      await using({ url: server.url() }, (broker) => broker.publish(outgoing([last], topic), never));
      expect((await take()).envelope.id).toBe(last.id);
    });
  });

  test("an event with a status line or an odd header is an event all the same", async () => {
    const topic = freshTopic();
    await using({ url: server.url() }, (broker) => broker.provision([topic], ["shop"]));
    await publishRaw(server.url(), [
      { subject: topic, head: `${first} 409 Consumer Deleted\r\n${event("one")}\r\n`, data: "1" },
      { subject: topic, head: `${first}\r\nan odd name: x\r\n${event("two")}\r\n`, data: "2" },
    ]);
    await receiving(topic, {}, async (take) => {
      expect((await take()).envelope).toMatchObject({ id: "one", type: "Changed", headers: {} });
      expect((await take()).envelope).toMatchObject({ id: "two", headers: { "an odd name": "x" } });
    });
  });

  test("all of them end as letters of a subscriber, and no event waits for them", async () => {
    const topic = freshTopic();
    const broker = nats({ url: server.url(), provision: true });
    const inbox = fakeInbox(systemClock);
    const { observe, of } = watched();
    await broker.provision([topic], ["shop"]);
    const events = hostile.map(() => sampleEvent());
    for (const [n, [, head]] of hostile.entries()) {
      await publishRaw(server.url(), [{ subject: topic, head, data: `${n}` }]);
      await broker.publish(outgoing([events[n]!], topic), never);
    }
    const subscriber = createSubscriber({
      ...{ consumer: "shop", source: broker, inbox, topics: [topic], observe },
      handlers: { "*": (one, tx) => tx.write(one.id) },
    });
    await subscriber.start();
    await expect.poll(() => inbox.effects.length, { timeout: 15_000 }).toBe(events.length);
    await expect.poll(() => inbox.parked.size, { timeout: 15_000 }).toBe(hostile.length);
    expect([...inbox.effects].sort()).toEqual(events.map(({ id }) => id).sort());
    expect(of("subscriber.died")).toHaveLength(hostile.length);
    expect(of("subscriber.trouble")).toEqual([]);
    await subscriber.drain();
    await broker[Symbol.asyncDispose]();
  });

  test("no more bytes are unacknowledged than were asked for, and one message more", async () => {
    const topic = freshTopic();
    const data = new Uint8Array(1_000_000);
    await using({ url: server.url() }, async (broker) => {
      await broker.provision([topic], ["shop"]);
      await broker.publish(
        outgoing(
          Array.from({ length: 10 }, () => sampleEvent({ data })),
          topic,
        ),
        never,
      );
      await broker.publish(outgoing([sampleEvent({ data: new Uint8Array(6_000_000) }), sampleEvent()], topic), never);
    });
    await receiving(topic, { bytes: 3_500_000 }, async (take) => {
      const inHand: Delivery[] = [];
      let handed = 0;
      while (handed < 12) {
        for (;;) {
          const out = inHand.reduce((sum, { bytes }) => sum + bytes!, 0);
          expect(out - (inHand.at(-1)?.bytes ?? 0)).toBeLessThan(3_500_000);
          if (out >= 3_500_000 || handed === 12) break;
          inHand.push(await take());
          handed += 1;
        }
        await inHand.shift()!.ack();
      }
    });
  });

  test("what a stream removed before it was read is told, with its number", async () => {
    const topic = freshTopic();
    const missed: (number | null)[] = [];
    const more = { missed: (_: string, messages: number | null) => void missed.push(messages) };
    await using({ url: server.url() }, async (broker) => {
      await broker.provision([topic], ["shop"]);
      await broker.publish(
        outgoing(
          Array.from({ length: 10 }, () => sampleEvent()),
          topic,
        ),
        never,
      );
    });
    const purge = (keep: number) =>
      raw(server.url(), async (_, manager) => void (await manager.streams.purge(await manager.streams.find(topic), { keep })));
    await receiving(topic, { ...more, prefetch: 1 }, async (take) => {
      const one = await take();
      await purge(6);
      await one.ack();
      await (await take()).ack();
      expect(missed).toEqual([3]);
    });
    await purge(2);
    await receiving(topic, more, async (take) => {
      await (await take()).ack();
      expect(missed).toEqual([3, 3]);
    });
    await using({ url: server.url() }, async (broker) => {
      expect((await broker.oldest!(topic, never, "shop"))!.getTime()).toBeGreaterThan(Date.now() - 60_000);
      await purge(0);
      expect(await broker.oldest!(topic, never, "shop")).toBeNull();
    });
  });

  test("what was acknowledged beyond a message that waits is not told as missed when it is removed", async () => {
    const topic = freshTopic();
    const missed: (number | null)[] = [];
    const more = { missed: (_: string, messages: number | null) => void missed.push(messages) };
    const events = Array.from({ length: 12 }, () => sampleEvent());
    await using({ url: server.url() }, async (broker) => {
      await broker.provision([topic], ["shop"]);
      await broker.publish(outgoing(events, topic), never);
    });
    const purge = (keep: number) =>
      raw(server.url(), async (_, manager) => void (await manager.streams.purge(await manager.streams.find(topic), { keep })));
    await receiving(topic, { ...more, prefetch: 9 }, async (take) => {
      for (let number = 1; number <= 9; number++) {
        const delivery = await take();
        if (number !== 4) await delivery.ack();
      }
    });
    // 4 was read and not done, 10 and 11 were not read: they and none of the others.
    await purge(1);
    await receiving(topic, more, async (take) => {
      expect((await take()).envelope.id).toBe(events[11]!.id);
      expect(missed).toEqual([3]);
    });
  });

  test("what was acknowledged before a receiver took over is not told as missed when it is removed under its eyes", async () => {
    const topic = freshTopic();
    const missed: (number | null)[] = [];
    const more = { missed: (_: string, messages: number | null) => void missed.push(messages) };
    const events = Array.from({ length: 12 }, () => sampleEvent());
    await using({ url: server.url() }, async (broker) => {
      await broker.provision([topic], ["shop"]);
      await broker.publish(outgoing(events, topic), never);
    });
    await receiving(topic, { ...more, prefetch: 9 }, async (take) => {
      for (let number = 1; number <= 9; number++) {
        const delivery = await take();
        if (number !== 2 && number !== 4) await delivery.ack();
      }
    });
    await receiving(topic, { ...more, prefetch: 1 }, async (take) => {
      const two = await take();
      expect(two.envelope.id).toBe(events[1]!.id);
      await raw(server.url(), async (_, manager) => void (await manager.streams.purge(await manager.streams.find(topic), { keep: 1 })));
      await two.ack();
      expect((await take()).envelope.id).toBe(events[11]!.id);
      // 10 and 11, 4, and one that nobody can tell from 2 any more.
      expect(missed).toEqual([4]);
    });
  });

  test("what a stream of several subjects removed before it was read is told once, without a number", async () => {
    await raw(server.url(), async (_, manager) => {
      await manager.streams.add({ name: "SEVERAL", subjects: ["several.>"], max_msgs: 5, discard: "old" });
    });
    const topic = "several.one";
    const missed: (number | null)[] = [];
    const more = { missed: (_: string, messages: number | null) => void missed.push(messages) };
    const publish = (count: number) =>
      using({ url: server.url() }, (broker) =>
        broker.publish(
          outgoing(
            Array.from({ length: count }, () => sampleEvent()),
            topic,
          ),
          never,
        ),
      );
    await publish(7);
    await receiving(topic, more, async (take) => {
      for (let n = 0; n < 5; n++) await (await take()).ack();
    });
    await publish(2);
    await receiving(topic, more, async (take) => void (await (await take()).ack()));
    expect(missed, "new, or behind by less than the stream keeps").toEqual([]);
    await publish(20);
    await receiving(topic, more, async (take) => void (await take()));
    expect(missed).toEqual([null]);
    await receiving(topic, more, async (take) => void (await take()));
    expect(missed).toEqual([null]);
  });

  describe("while a receiver of a stream of several subjects runs", () => {
    const hasty: Clock = { ...systemClock, sleep: (ms, signal) => systemClock.sleep(ms / 20, signal) };
    let number = 0;
    /** A stream that keeps ten messages; whoever reads `mine` from it; and how often the receiver has asked how much is unread. */
    async function reading(work: (at: { mine: string; missed: unknown[]; fill: Fill; looks(): number; take: Take }) => Promise<void>) {
      const name = `BUSY${(number += 1)}`;
      const [mine, other] = [`${name}.mine`, `${name}.other`];
      const missed: unknown[] = [];
      let looks = 0;
      await raw(server.url(), async (nc, manager) => {
        await manager.streams.add({ name, subjects: [`${name}.*`], max_msgs: 10, discard: "old" });
        nc.subscribe("_INBOX.>", { callback: (_, { data }) => void (looks += Number(Buffer.from(data).includes("stream_info_response"))) });
        await using({ url: server.url(), provision: true }, async (broker) => {
          const fill: Fill = async (count, topic = "mine") => {
            const events = Array.from({ length: count }, () => sampleEvent());
            await broker.publish(outgoing(events, topic === "mine" ? mine : other), never);
            return events.map(({ id }) => id);
          };
          const told = (topic: string, messages: number | null): void => void missed.push([topic, messages]);
          await broker.provision([mine], ["shop"]);
          await fill(1);
          await receiving(
            mine,
            { prefetch: 1, missed: told },
            async (take) => {
              const before = looks;
              await work({ mine, missed, fill, take, looks: () => looks - before });
            },
            hasty,
          );
        });
      });
    }
    /** Until one that began after this call is answered. */
    async function looked(looks: () => number): Promise<void> {
      const asked = looks();
      await expect.poll(looks, { timeout: 15_000 }).toBeGreaterThan(asked + 1);
    }
    type Fill = (count: number, topic?: "mine" | "other") => Promise<string[]>;
    type Take = () => Promise<Delivery>;

    test("what is removed before it was read is told when the next message comes", async () => {
      await reading(async ({ mine, missed, fill, looks, take }) => {
        const one = await take();
        await fill(4);
        await looked(looks);
        const [next] = (await fill(12)).slice(-10);
        expect(missed).toEqual([]);
        await one.ack();
        const two = await take();
        expect(two.envelope.id).toBe(next);
        expect(missed).toEqual([[mine, null]]);
        await two.ack();
        await (await take()).ack();
        expect(missed, "once").toEqual([[mine, null]]);
      });
    });

    test("what is removed before it was read is told though no message follows", async () => {
      await reading(async ({ mine, missed, fill, looks, take }) => {
        await take();
        await fill(4);
        await looked(looks);
        await fill(12, "other");
        await expect.poll(() => missed, { timeout: 15_000 }).toEqual([[mine, null]]);
      });
    });

    test("nothing is told of other subjects' messages, nor of what was read in time", async () => {
      await reading(async ({ missed, fill, looks, take }) => {
        await (await take()).ack();
        for (let round = 0; round < 3; round++) {
          await fill(25, "other");
          const ids = await fill(4);
          await looked(looks);
          for (const id of ids) {
            const delivery = await take();
            expect(delivery.envelope.id).toBe(id);
            await delivery.ack();
          }
          await fill(25, "other");
        }
        await looked(looks);
        expect(missed).toEqual([]);
      });
    });
  });
});
