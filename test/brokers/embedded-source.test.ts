import { describe, expect, test } from "vitest";
import { quiet, sampleEvent, within } from "../../src/conformance/corpus.ts";
import type { Delivery } from "../../src/contracts/source.ts";
import { systemClock } from "../../src/core/clock.ts";
import { many, never, publish, take, topic, topics, using } from "./embedded.ts";
import { driver, execute, freshPath, sql, watched } from "./files.ts";

describe("receiving from embedded", () => {
  test("neither publishing nor acknowledging takes a transaction per event, and reading takes none", async () => {
    const path = freshPath();
    let transactions = 0;
    const open = watched({ before: (text) => void (text === "BEGIN IMMEDIATE" && transactions++) });
    await using({ path, open }, async (broker) => {
      await broker.connect(never);
      transactions = 0;
      for (let batch = 0; batch < 5; batch++) await publish(broker, many(200));
      expect(transactions).toBe(5);

      await take(broker, 1_000);
      expect(transactions).toBe(6); // the consumer became known
      transactions = 0;
      await take(broker, 1_000);
      expect(transactions).toBe(0);

      const began = performance.now();
      let received = 0;
      for await (const delivery of broker.receive({ consumer: "reader", topics: [topic], prefetch: 10 }, never)) {
        await delivery.ack();
        if (++received === 1_000) break;
      }
      expect(transactions).toBeLessThanOrEqual(2 + (performance.now() - began) / 20);
    });
    expect(sql(path, "SELECT consumer, topic, offset FROM waybill_broker_consumers")).toEqual([
      { consumer: "reader", topic, offset: 1_000 },
    ]);
  });

  test("a busy loop leaves the process's timers their turn", async () => {
    await using({ path: freshPath() }, async (broker) => {
      await publish(broker, many(1));
      let turns = 0;
      const timer = setInterval(() => turns++, 1);
      const batch = many(50);
      // Where each takes long, as on a slow disk, there are few in that time.
      const publishing = performance.now() + 300;
      for (let n = 0; n < 20 || performance.now() < publishing; n++) await publish(broker, batch);
      expect(turns).toBeGreaterThanOrEqual(3);

      turns = 0;
      let received = 0;
      const receiving = performance.now() + 300;
      for await (const delivery of broker.receive({ consumer: "reader", topics: [topic], prefetch: 5 }, never)) {
        await delivery.ack();
        if (++received >= 1_000 && performance.now() > receiving) break;
        if (delivery.envelope.id === batch[49]!.id) await publish(broker, batch);
      }
      expect(turns).toBeGreaterThanOrEqual(3);
      clearInterval(timer);
    });
  });

  test("acks given slowly are written together", async () => {
    let transactions = 0;
    const open = watched({ before: (text) => void (text === "BEGIN IMMEDIATE" && transactions++) });
    await using({ path: freshPath(), open }, async (broker) => {
      await publish(broker, many(200));
      const deliveries = await take(broker, 200);
      transactions = 0;
      let received = 0;
      const began = performance.now();
      for await (const delivery of broker.receive({ consumer: "reader", topics: [topic], prefetch: 10 }, never)) {
        await delivery.ack();
        await systemClock.sleep(1);
        if (++received === deliveries.length) break;
      }
      expect(transactions).toBeLessThanOrEqual(2 + (performance.now() - began) / 20);
    });
  });

  test("the acks of an iteration are durable when it ends, however it ends", async () => {
    const path = freshPath();
    const offset = (): unknown => sql(path, "SELECT offset FROM waybill_broker_consumers")[0]?.["offset"];
    await using({ path }, async (broker) => {
      await publish(broker, many(9));
      const subscription = { consumer: "reader", topics: [topic], prefetch: 5 };
      for await (const delivery of broker.receive(subscription, never)) {
        await delivery.ack();
        break;
      }
      expect(offset()).toBe(1);
      const failing = async (): Promise<void> => {
        for await (const delivery of broker.receive(subscription, never)) {
          await delivery.ack();
          throw new Error("the loop's own");
        }
      };
      await expect(failing()).rejects.toThrow("the loop's own");
      expect(offset()).toBe(2);
      const ending = new AbortController();
      for await (const delivery of broker.receive(subscription, ending.signal)) {
        await delivery.ack();
        ending.abort();
      }
      expect(offset()).toBe(3);
    });
  });

  test("a reader that is behind does not take its consumer back", async () => {
    const path = freshPath();
    await using({ path }, async (slow) => {
      await publish(slow, many(5));
      const behind = await take(slow, 5);
      await using({ path }, async (quick) => {
        for (const delivery of await take(quick, 5)) await delivery.ack();
      });
      await behind[0]!.ack();
    });
    expect(sql(path, "SELECT offset FROM waybill_broker_consumers")).toEqual([{ offset: 5 }]);
  });

  test("a reader goes on while another process is writing", async () => {
    const path = freshPath();
    await using({ path, lockTimeoutMs: 300 }, async (broker) => {
      await publish(broker, many(3));
      await take(broker, 1);
      const writer = driver(path);
      writer.exec("BEGIN IMMEDIATE");
      writer.exec("INSERT INTO waybill_broker_topics (topic) VALUES ('other')");
      expect(await take(broker, 3)).toHaveLength(3);
      writer.exec("ROLLBACK");
      writer.close();
    });
  });

  test("a publish that waits for another process's lock keeps no reader waiting", async () => {
    const path = freshPath();
    await using({ path, lockTimeoutMs: 10_000 }, async (broker) => {
      await publish(broker, many(3));
      await take(broker, 1);
      const writer = driver(path);
      writer.exec("BEGIN IMMEDIATE");
      const publishing = publish(broker, many(1));
      expect(await take(broker, 3)).toHaveLength(3);
      await quiet(50, "the publish did not wait", publishing);
      writer.exec("ROLLBACK");
      writer.close();
      expect(await publishing).toEqual([{ status: "stored" }]);
    });
  });

  test("closing makes acks durable even if nobody ends the iteration", async () => {
    const path = freshPath();
    await using({ path }, async (broker) => {
      await publish(broker, many(3));
      const deliveries = broker.receive({ consumer: "reader", topics: [topic], prefetch: 5 }, never)[Symbol.asyncIterator]();
      const first = await deliveries.next();
      if (first.done !== true) await first.value.ack();
    });
    expect(sql(path, "SELECT offset FROM waybill_broker_consumers")).toEqual([{ offset: 1 }]);
  });

  test("a publish of the same process wakes its readers", async () => {
    await using({ path: freshPath(), pollIntervalMs: 60_000 }, async (broker) => {
      const taking = take(broker, 1);
      await quiet(100, "something came out of an empty topic", taking);
      const event = sampleEvent();
      await publish(broker, [event]);
      expect((await taking)[0]!.envelope.id).toBe(event.id);
    });
  });

  test("over several topics, deliveries come in the order they were stored", async () => {
    await using({ path: freshPath() }, async (broker) => {
      const events = many(40);
      await broker.publish(
        events.map((envelope, i) => ({ topic: topics[i % 3 === 0 ? 0 : 1], source: "/test", envelope })),
        never,
      );
      const deliveries = await take(broker, 40, { topics: [...topics, topics[0]], prefetch: 40 });
      expect(deliveries.map(({ envelope }) => envelope.id)).toEqual(events.map(({ id }) => id));
    });
  });

  test("a message that is not an event is delivered as unreadable, with its bytes, and stops nothing", async () => {
    const path = freshPath();
    const values = [
      `'{"hello":"world"}', '{}', 'text'`,
      `'not json', '{}', x'00'`,
      `'[]', '{}', x'00'`,
      `'{"id":"1","type":2}', '{}', x'00'`,
      `'{"id":"1","type":"t"}', 'null', x'00'`,
      `CAST(x'7bff7d' AS TEXT), '{}', x'00'`,
      `'${"[".repeat(100_000)}', '{}', x'00'`,
      `x'00', '{}', 5`,
    ];
    await using({ path }, async (broker) => {
      const [first, last] = many(2);
      await publish(broker, [first!]);
      for (const row of values)
        execute(path, `INSERT INTO waybill_broker_messages (topic, key, attributes, headers, data) VALUES ('${topic}', 'k', ${row})`);
      // As little as makes an event.
      execute(
        path,
        `INSERT INTO waybill_broker_messages (topic, key, attributes, data) VALUES ('${topic}', 'k', '{"id":"x","type":"t"}', 'text')`,
      );
      await publish(broker, [last!]);

      const deliveries = await take(broker, 11, { prefetch: 2_000 });
      expect(deliveries.map(({ unreadable }) => unreadable !== undefined)).toEqual([false, ...values.map(() => true), false, false]);
      const events = deliveries.filter(({ unreadable }) => unreadable === undefined);
      expect(events.map(({ envelope }) => envelope.id)).toEqual([first!.id, "x", last!.id]);
      expect(Buffer.from(events[1]!.envelope.data).toString()).toBe("text");
      expect(Buffer.from(deliveries[1]!.unreadable!.raw).toString()).toBe('{"hello":"world"}\n{}\ntext');
      expect(deliveries[1]!.envelope.id).toBe("unreadable:2");
      for (const delivery of deliveries) await delivery.ack();
    });
    expect(sql(path, "SELECT offset FROM waybill_broker_consumers")).toEqual([{ offset: 11 }]);
  });

  const placed = (offset: string, id: string): string =>
    `INSERT INTO waybill_broker_messages ("offset", topic, "key", attributes, data) VALUES (${offset}, '${topic}', 'k', '{"id":"${id}","type":"t"}', '1')`;

  test("an offset that no reader can hold is refused, and silences nothing", async () => {
    const path = freshPath();
    await using({ path }, async (broker) => {
      const [first, last] = many(2);
      await publish(broker, [first!]);
      for (const offset of ["1152921504606846976", "9223372036854775807", "9007199254740992", "0", "-5"])
        expect(() => execute(path, placed(offset, "x"))).toThrow("leave the offset out");
      expect(() => execute(path, `UPDATE waybill_broker_messages SET "offset" = 1152921504606846976`)).toThrow("leave the offset out");
      execute(path, placed("NULL", "by hand"));
      await publish(broker, [last!]);
      expect((await take(broker, 3)).map(({ envelope }) => envelope.id)).toEqual([first!.id, "by hand", last!.id]);
    });
  });

  test("a message that ends three receivings is set aside with what can be had of it, and the next one follows", async () => {
    const path = freshPath();
    let poisoned = true;
    const open = watched({
      before(text) {
        // As a client does that cannot hold the value.
        if (poisoned && /CAST\(data AS BLOB\) AS data/.test(text)) throw new RangeError("the value is too large");
      },
    });
    await using({ path, open }, async (broker) => {
      const [bad, next] = many(2);
      await publish(broker, [bad!, next!]);
      for (const stalls of [0, 1, 2]) await expect(take(broker, 1, { stalls })).rejects.toThrow("too large");
      const [delivery] = await take(broker, 1, { stalls: 3 });
      expect(delivery!.unreadable?.why).toContain("the value is too large");
      expect(Buffer.from(delivery!.unreadable!.raw).equals(Buffer.from(bad!.data))).toBe(true);
      await delivery!.ack();
      poisoned = false;
      expect((await take(broker, 1, { stalls: 3 }))[0]!.envelope.id).toBe(next!.id);
    });
  });

  test("a file that was locked for a moment says nothing of a message, however many receivings it has ended", async () => {
    let locked = 1;
    const open = watched({
      before(text) {
        if (/CAST\(data AS BLOB\) AS data/.test(text) && locked-- > 0)
          throw Object.assign(new Error("database is locked"), { code: "SQLITE_BUSY" });
      },
    });
    await using({ path: freshPath(), open }, async (broker) => {
      const [event] = many(1);
      await publish(broker, [event!]);
      const [delivery] = await take(broker, 1, { stalls: 30 });
      expect(delivery).toMatchObject({ envelope: { id: event!.id } });
    });
  });

  test("no more bytes are unacknowledged than were asked for, and one message more", async () => {
    await using({ path: freshPath(), maxBytes: 8_000_000 }, async (broker) => {
      const sizes = [...Array.from({ length: 10 }, () => 1_000_000), 6_000_000, 10];
      await publish(
        broker,
        sizes.map((bytes) => sampleEvent({ data: new Uint8Array(bytes) })),
      );
      const wanted = { consumer: "reader", topics: [topic], prefetch: 100, bytes: 3_500_000 };
      const deliveries = broker.receive(wanted, never)[Symbol.asyncIterator]();
      const inHand: Delivery[] = [];
      const bytesOut = (): number => inHand.reduce((sum, { bytes }) => sum + bytes!, 0);
      for (let handed = 0; handed < 12; handed++) {
        const following = deliveries.next();
        while (bytesOut() >= 3_500_000) {
          await quiet(100, "more was delivered than there is room for", following);
          await inHand.shift()!.ack();
        }
        inHand.push((await within(5_000, "a delivery", following)).value as Delivery);
      }
      await deliveries.return?.();
    });
  });

  test("acks that cannot be written end the iteration with the reason, and nothing is lost", async () => {
    const path = freshPath();
    let failing = false;
    const open = watched({
      before(text) {
        if (failing && text === "BEGIN IMMEDIATE") throw Object.assign(new Error("disk is full"), { code: "SQLITE_FULL" });
      },
    });
    await using({ path, open }, async (broker) => {
      const events = many(500);
      await publish(broker, events);
      let handled = 0;
      const receiving = async (): Promise<void> => {
        for await (const delivery of broker.receive({ consumer: "reader", topics: [topic], prefetch: 2 }, never)) {
          failing = true;
          handled += 1;
          await delivery.ack();
          await systemClock.sleep(1);
        }
      };
      await expect(within(5_000, "the end", receiving())).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
      expect(sql(path, "SELECT offset FROM waybill_broker_consumers")).toEqual([{ offset: 0 }]);
      // The acks were kept, and count as soon as they can be written.
      failing = false;
      expect((await take(broker, 1, { prefetch: 2 }))[0]!.envelope.id).toBe(events[handled]!.id);
      expect(sql(path, "SELECT offset FROM waybill_broker_consumers")).toEqual([{ offset: handled }]);
    });
  });
});
