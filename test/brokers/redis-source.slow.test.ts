import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { redis, type Redis, type RedisOptions } from "../../src/brokers/redis/index.ts";
import { quiet, sampleEvent, within } from "../../src/conformance/corpus.ts";
import type { Delivery, Subscription } from "../../src/contracts/source.ts";
import { describeWith } from "../servers/available.ts";
import { startRedis, type RedisServer } from "../servers/redis.ts";
import type { Resp } from "../support/resp.ts";
import { startTcpProxy } from "../support/tcp-proxy.ts";
import { ask, fresh, many, store, topic } from "./redis.ts";

interface Reader {
  readonly next: () => Promise<Delivery | undefined>;
  readonly take: (count: number) => Promise<readonly Delivery[]>;
  leave(): Promise<void>;
}

await describeWith("redis", "receiving from redis", () => {
  let server: RedisServer;
  let url: string;
  let sql: (...commands: readonly (readonly string[])[]) => Promise<readonly Resp[]>;
  const opened: Redis[] = [];
  beforeAll(async () => void (server = await startRedis()));
  afterAll(() => server[Symbol.asyncDispose]());
  beforeEach(async () => {
    const place = await fresh(server);
    url = place.url;
    sql = (...commands) => ask(server.port, place.database, ...commands);
    return async () => {
      for (const broker of opened.splice(0)) await broker[Symbol.asyncDispose]();
    };
  });

  const open = (options: Partial<RedisOptions> = {}): Redis => {
    const broker = redis({ url, ...options });
    opened.push(broker);
    return broker;
  };
  const receive = (broker: Redis, subscription: Partial<Subscription> = {}): Reader => {
    const wanted = { consumer: "stock", topics: [topic], prefetch: 1_000, ...subscription };
    const iterator = broker.receive(wanted, new AbortController().signal)[Symbol.asyncIterator]();
    // The group, if there is none and the stream is there.
    const grouped = Promise.all(wanted.topics.map((of) => sql(["XGROUP", "CREATE", of, wanted.consumer, "0"]).catch(() => undefined)));
    const next = async (): Promise<Delivery | undefined> => {
      await grouped;
      const result = await within(15_000, "delivery", iterator.next());
      return result.done === true ? undefined : result.value;
    };
    return {
      next,
      async take(count) {
        const taken: Delivery[] = [];
        while (taken.length < count) taken.push((await next())!);
        return taken;
      },
      leave: async () => void (await iterator.return?.()),
    };
  };
  const ids = (deliveries: readonly Delivery[]): string[] => deliveries.map(({ envelope }) => envelope.id);
  const pending = async (): Promise<number> => ((await sql(["XPENDING", topic, "stock"]))[0] as readonly [number])[0];

  test("all that is pending comes first, in order, whoever left it, and then what is new", async () => {
    const broker = open();
    const events = many(1_500);
    await store(broker, events.slice(0, 1_300));
    const first = receive(broker, { prefetch: 2_000 });
    const taken = await first.take(1_200);
    await Promise.all(taken.filter((_, i) => i % 3 === 0).map((delivery) => delivery.ack()));
    await first.leave();
    // Somebody's hand, or another program, has some of them under a name of its own.
    const left = taken.filter((_, i) => i % 3 !== 0);
    const [entries] = await sql(["XPENDING", topic, "stock", "-", "+", "2000"]);
    const some = (entries as readonly (readonly string[])[]).filter((_, i) => i % 5 === 0).map(([id]) => id!);
    await sql(["XCLAIM", topic, "stock", "somebody", "0", ...some]);
    await store(broker, events.slice(1_300));
    const second = receive(open(), { prefetch: 2_000 });
    expect(ids(await second.take(left.length + 300))).toEqual([...ids(left), ...events.slice(1_200).map(({ id }) => id)]);
  });

  test("acknowledging takes no round trip per event, and the group has it when `ack` resolves", async () => {
    const broker = open();
    await store(broker, many(1_000));
    const deliveries = await receive(broker).take(1_000);
    await sql(["CONFIG", "RESETSTAT"]);
    await Promise.all(deliveries.map((delivery) => delivery.ack()));
    expect(await pending()).toBe(0);
    const [stats] = await sql(["INFO", "commandstats"]);
    expect(Number(/cmdstat_xack:calls=(\d+)/.exec(stats as string)?.[1])).toBeLessThanOrEqual(2);
    for (const delivery of deliveries.slice(0, 50)) await within(1_000, "one ack after another", delivery.ack());
  });

  test("entries that are no events are delivered as unreadable, with their bytes, and keep nobody waiting", async () => {
    const broker = open();
    const [before, after] = [sampleEvent(), sampleEvent()];
    await store(broker, [before]);
    // EVAL writes bytes that are no UTF-8 as they are.
    const damaged = `return redis.call('XADD', KEYS[1], '*', 'ce_id', 'x', 'ce_type', 'y', 'h_name', '\\255', 'data', '')`;
    await sql(
      ["XADD", topic, "*", "hello", "world"],
      ["XADD", topic, "*", "data", "{}", "ce_type", "OrderPlaced", "ce_id", ""],
      ["XADD", topic, "*", "ce_id", "1", "ce_type", "t", "ce_id", "2"],
      ["XADD", topic, "*", "ce_id", "1", "ce_type", "t", "data", "1", "data", "2"],
      ["EVAL", damaged, "1", topic],
      ["XADD", topic, "*", "data", "{}", "ce_id", "an id", "ce_type", "no headers, no aggregate, no time"],
    );
    await store(broker, [after]);
    const { take, leave } = receive(broker, { prefetch: 20 });
    const deliveries = await take(8);
    expect(deliveries.map(({ unreadable }) => unreadable !== undefined)).toEqual([false, true, true, true, true, true, false, false]);
    expect(ids(deliveries.filter(({ unreadable }) => unreadable === undefined))).toEqual([before.id, "an id", after.id]);
    expect(deliveries[6]!.envelope).toMatchObject({ aggregateId: "an id", aggregateType: "", eventVersion: 1, seq: 0n, headers: {} });
    expect(Buffer.from(deliveries[1]!.unreadable!.raw).toString()).toBe("*2\r\n$5\r\nhello\r\n$5\r\nworld\r\n");
    expect(Buffer.from(deliveries[5]!.unreadable!.raw).includes(0xff)).toBe(true);
    expect(new Set(ids(deliveries)).size).toBe(8);
    await leave();
    const again = await receive(open()).take(8);
    expect(ids(again), "the same message has the same name").toEqual(ids(deliveries));
    for (const delivery of again) await delivery.ack();
    expect(await pending()).toBe(0);
  });

  test("no more bytes are unacknowledged than were asked for, and one entry more", async () => {
    const broker = open({ maxBytes: 8_000_000 });
    const sizes = [...Array.from({ length: 10 }, () => 1_000_000), 6_000_000, 10];
    await store(
      broker,
      sizes.map((bytes) => sampleEvent({ data: new Uint8Array(bytes) })),
    );
    // Once for what is new, and once for what is pending.
    for (const again of [false, true]) {
      const { next, take, leave } = receive(broker, { bytes: 3_500_000 });
      const inHand = [...(await take(4))];
      for (let handed = 4; ; handed += 1) {
        const out = inHand.reduce((sum, { bytes }) => sum + bytes!, 0);
        expect(out - inHand.at(-1)!.bytes!).toBeLessThan(3_500_000);
        if (handed === 12) break;
        const following = next();
        while (inHand.reduce((sum, { bytes }) => sum + bytes!, 0) >= 3_500_000) {
          await quiet(50, "more was delivered than there is room for", following);
          await inHand.shift()!.ack();
        }
        if (!again) {
          void following.catch(() => undefined);
          break;
        }
        inHand.push((await following)!);
      }
      await leave();
      if (!again) await sql(["XGROUP", "DESTROY", topic, "stock"]);
    }
  });

  test("entries of many empty fields take room too, and one of too many is set aside unread", async () => {
    const broker = open();
    const empty = (fields: number): string[] => ["XADD", topic, "*", ...Array.from({ length: 2 * fields }, () => "")];
    await sql(empty(20_000), empty(20_000), empty(40_000));
    const after = sampleEvent();
    await store(broker, [after]);
    // Once for what is new, and once for what is pending.
    for (let again = 0; again < 2; again++) {
      const { next, take, leave } = receive(broker, { bytes: 1_000_000 });
      const [first] = await take(1);
      expect(first!.bytes).toBeGreaterThan(1_000_000);
      const following = next();
      await quiet(200, "more was delivered than there is room for", following);
      if (again === 0) {
        void following.catch(() => undefined);
        await leave();
        continue;
      }
      await first!.ack();
      await (await following)!.ack();
      const [large, last] = await take(2);
      expect(large!.unreadable!.why).toContain("40000 fields");
      expect(Buffer.from(large!.unreadable!.raw).toString()).toBe("*80000\r\n");
      expect(last!.envelope.id).toBe(after.id);
    }
  });

  test("a server that ends connections with large answers is read one entry at a time, once a receiving has ended without progress", async () => {
    const broker = open();
    await sql(["XGROUP", "CREATE", topic, "stock", "0", "MKSTREAM"]);
    const events = Array.from({ length: 300 }, () => sampleEvent({ data: Buffer.alloc(100_000, 97) }));
    for (let n = 0; n < events.length; n += 50) await store(broker, events.slice(n, n + 50));
    await sql(["CONFIG", "SET", "client-output-buffer-limit", "normal 2000000 2000000 0"]);
    try {
      const done: string[] = [];
      // As a subscriber does.
      for (let stalls = 0; done.length < events.length;) {
        expect(stalls).toBeLessThan(2);
        const { next, leave } = receive(broker, { stalls, bytes: 32 * 1024 * 1024 });
        const before = done.length;
        try {
          while (done.length < events.length) {
            const { envelope, ack } = (await next())!;
            await ack();
            done.push(envelope.id);
          }
        } catch (error) {
          expect(String(error)).toMatch(/cannot be reached/);
        }
        await leave();
        stalls = done.length > before ? 0 : stalls + 1;
      }
      expect(done).toEqual(events.map(({ id }) => id));
    } finally {
      await sql(["CONFIG", "SET", "client-output-buffer-limit", "normal 0 0 0"]);
    }
  });

  test("entries that were removed unread or unacknowledged are told, and keep nobody waiting", async () => {
    const broker = open();
    const events = many(10);
    await store(broker, events);
    const missed: (number | null)[] = [];
    const told = { missed: (_: string, entries: number | null) => void missed.push(entries) };
    const first = receive(broker, { prefetch: 4, ...told });
    await first.take(4);
    const [entries] = await sql(["XRANGE", topic, "-", "+"]);
    const id = (n: number): string => (entries as readonly (readonly [string])[])[n]![0];
    await first.leave();
    // The first two of these are pending.
    await sql(["XDEL", topic, id(0), id(2)]);
    const second = receive(open(), { prefetch: 2, ...told });
    const left = await second.take(2);
    expect(ids(left)).toEqual([events[1]!.id, events[3]!.id]);
    expect(missed).toEqual([2]);
    // Five that nobody was given are trimmed.
    await sql(["XTRIM", topic, "MINID", id(9)]);
    for (const delivery of left) await delivery.ack();
    expect(ids(await second.take(1))).toEqual([events[9]!.id]);
    void second.next().catch(() => undefined);
    await expect.poll(() => missed, { timeout: 5_000 }).toEqual([2, 5]);
    await second.leave();
    const third = receive(open(), told);
    await third.take(1);
    await quiet(300, "it was told twice", third.next());
    expect(missed).toEqual([2, 5]);
    expect((await broker.oldest!(topic, new AbortController().signal, "shop"))!.getTime()).toBe(Number(id(9).split("-")[0]));
  });

  test("an unread entry that was deleted makes the lag unknown until the group has passed it; unacknowledged entries count", async () => {
    const broker = open();
    const lag = (consumer = "stock"): Promise<number | null> => broker.lag!(topic, new AbortController().signal, consumer);
    expect(await lag()).toBeNull();
    await store(broker, many(9));
    expect(await lag("stranger")).toBeNull();
    const reading = receive(broker, { prefetch: 4 });
    const deliveries = await reading.take(4);
    expect(await lag()).toBe(9);
    const [entries] = await sql(["XRANGE", topic, "-", "+"]);
    await sql(["XDEL", topic, String((entries as readonly (readonly unknown[])[])[6]![0])]);
    expect(await lag()).toBeNull();
    for (const delivery of deliveries) await delivery.ack();
    for (const delivery of await reading.take(4)) await delivery.ack();
    void reading.next().catch(() => undefined);
    await expect.poll(() => lag(), { timeout: 15_000 }).toBe(0);
  });

  test("entries that were trimmed unread are told though others were deleted one by one", async () => {
    const broker = open();
    const events = many(30);
    await store(broker, events.slice(0, 2));
    const missed: (number | null)[] = [];
    const told = { missed: (_: string, entries: number | null) => void missed.push(entries) };
    const first = receive(broker, { prefetch: 5, ...told });
    for (const delivery of await first.take(2)) await delivery.ack();
    await first.leave();
    await store(broker, events.slice(2));
    const [entries] = await sql(["XRANGE", topic, "-", "+"]);
    const id = (n: number): string => (entries as readonly (readonly [string])[])[n]![0];
    await sql(["XDEL", topic, id(25)], ["XTRIM", topic, "MINID", id(20)]);
    const second = receive(open(), { prefetch: 5, ...told });
    for (let n = 0; n < 9; n++) await (await second.next())!.ack();
    void second.next().catch(() => undefined);
    await expect.poll(() => missed, { timeout: 5_000 }).toEqual([19]);
    await second.leave();
    // The last ones, deleted before anybody was given them.
    await store(broker, many(3));
    const [more] = await sql(["XREVRANGE", topic, "+", "-", "COUNT", "2"]);
    await sql(["XDEL", topic, ...(more as readonly (readonly [string])[]).map(([last]) => last)]);
    const third = receive(open(), told);
    await third.take(1);
    await quiet(1_500, "it was told twice", third.next());
    expect(missed).toEqual([19, 2]);
    await third.leave();
    // Set by hand, the group does not know how much it has read.
    await store(broker, many(2));
    const [[after], [before]] = (await sql(["XREVRANGE", topic, "+", "-", "COUNT", "2"]))[0] as [[string], [string]];
    await sql(["XGROUP", "SETID", topic, "stock", before], ["XDEL", topic, after]);
    const fourth = receive(open(), told);
    await fourth.take(1);
    await quiet(1_500, "more than there is", fourth.next());
    expect(missed).toEqual([19, 2, null]);
  });

  test("an earlier session's read that arrives late takes nothing", async () => {
    await using proxy = await startTcpProxy(server.port);
    const events = many(6);
    const broker = open();
    const held = open({ url: `${url.replace(String(server.port), String(proxy.port))}` });
    await store(broker, events.slice(0, 1));
    const first = receive(held, { prefetch: 2 });
    const [delivery] = await first.take(1);
    // It waits for more; what it asks from now on stays on the way.
    const waiting = first.next();
    await new Promise((resolve) => setTimeout(resolve, 100));
    proxy.fault("up", { hold: true });
    await store(broker, events.slice(1, 2));
    await new Promise((resolve) => setTimeout(resolve, 100));
    // Another process takes the seat.
    const second = receive(open(), { prefetch: 10 });
    expect(ids(await second.take(2))).toEqual([events[0]!.id, events[1]!.id]);
    // The read arrives when there is something that it could take, and the other does not ask at the moment.
    await store(broker, events.slice(2));
    proxy.heal();
    const outcome = await waiting.then(
      () => "it took something",
      (error: unknown) => error,
    );
    expect(ids(await second.take(4))).toEqual(events.slice(2).map(({ id }) => id));
    expect(outcome).toMatchObject({ code: "DESTINATION_UNAVAILABLE", message: expect.stringMatching(/another session/) as string });
    // What the earlier session was in the middle of still counts.
    await delivery!.ack();
    expect(await pending()).toBe(5);
  });

  test("two sessions never share a consumer: the later one takes over", async () => {
    const broker = open();
    const events = many(4);
    await store(broker, events.slice(0, 2));
    const first = receive(open());
    await first.take(2);
    const second = receive(open());
    expect(ids(await second.take(2))).toEqual([events[0]!.id, events[1]!.id]);
    await expect(first.next()).rejects.toMatchObject({ message: expect.stringMatching(/another session of "stock"/) as string });
    const [consumers] = await sql(["XINFO", "CONSUMERS", topic, "stock"]);
    expect(consumers).toHaveLength(1);
    await store(broker, events.slice(2));
    expect(ids(await second.take(2))).toEqual([events[2]!.id, events[3]!.id]);
  });

  test("a stream that is not there is said with the way out, and not made", async () => {
    const reader = receive(open(), { topics: ["nowhere"] });
    await expect(reader.next()).rejects.toMatchObject({
      code: "DESTINATION_UNAVAILABLE",
      message: expect.stringMatching(/no stream "nowhere": provision it first/) as string,
    });
    expect(await sql(["EXISTS", "nowhere"])).toEqual([0]);
    const provisioning = receive(open({ provision: true }), { topics: ["nowhere"] });
    const waiting = provisioning.next();
    await expect.poll(() => sql(["TYPE", "nowhere"])).toEqual(["stream"]);
    const event = sampleEvent();
    await store(open(), [event], "nowhere");
    expect((await waiting)?.envelope.id).toBe(event.id);
  });

  test("a key of another kind is said as such", async () => {
    await sql(["SET", "text", "x"]);
    await expect(receive(open(), { topics: ["text"] }).next()).rejects.toMatchObject({
      message: expect.stringMatching(/WRONGTYPE/) as string,
    });
  });

  test("a stream that is deleted ends the session soon, and a new one starts when it is there again", async () => {
    const broker = open();
    await store(broker, many(3));
    const first = receive(open());
    await first.take(3);
    const waiting = first.next();
    await sql(["DEL", topic]);
    await expect(within(15_000, "the end", waiting)).rejects.toMatchObject({
      message: expect.stringMatching(/no stream .*provision/) as string,
    });
    await expect(receive(open()).next()).rejects.toMatchObject({ message: expect.stringMatching(/no stream .*provision/) as string });
    await broker.provision([topic]);
    const events = many(2);
    await store(broker, events);
    expect(ids(await receive(open()).take(2))).toEqual(events.map(({ id }) => id));
  });

  test("without provision a misspelt consumer makes nothing, and is told what to do", async () => {
    const reading = open().receive({ consumer: "stokc", topics: [topic], prefetch: 1 }, new AbortController().signal);
    await expect(reading[Symbol.asyncIterator]().next()).rejects.toMatchObject({
      message: expect.stringMatching(/no group "stokc" .*provision it first .*--topics order.events --consumers stokc/) as string,
    });
    expect(await sql(["XINFO", "GROUPS", topic])).toEqual([[]]);
  });

  test("what no group has read is not purged", async () => {
    const broker = open();
    await store(broker, many(3));
    const later = new Date(Date.now() + 60_000);
    expect(await broker.purge(later, [topic])).toBe(0);
    await broker.provision([topic], ["stock"]);
    expect(await broker.purge(later, [topic])).toBe(0);
    for (const delivery of await receive(open()).take(3)) await delivery.ack();
    await expect.poll(() => broker.purge(later, [topic])).toBe(3);
  });

  test("a group that is removed ends the session, and the next one gets everything again", async () => {
    const broker = open();
    const events = many(3);
    await store(broker, events);
    const first = receive(open());
    for (const delivery of await first.take(3)) await delivery.ack();
    const waiting = first.next();
    await sql(["XGROUP", "DESTROY", topic, "stock"]);
    await expect(within(15_000, "the end", waiting)).rejects.toMatchObject({
      message: expect.stringMatching(/no group "stock"/) as string,
    });
    expect(ids(await receive(open()).take(3))).toEqual(events.map(({ id }) => id));
  });

  test("a group that is set back gets the older entries again, and one that is set forward does not spin", async () => {
    const broker = open();
    const events = many(3);
    await store(broker, events);
    const reader = receive(open());
    for (const delivery of await reader.take(3)) await delivery.ack();
    const waiting = reader.next();
    await sql(["XGROUP", "SETID", topic, "stock", "0"]);
    expect((await within(3_000, "the first again", waiting))?.envelope.id).toBe(events[0]!.id);
    await reader.take(2);
    await sql(["XGROUP", "SETID", topic, "stock", "9999999999999-0"]);
    await store(broker, many(5));
    await sql(["CONFIG", "RESETSTAT"]);
    await quiet(
      1_500,
      "something was delivered",
      reader.next().catch(() => new Promise(() => undefined)),
    );
    const [stats] = await sql(["INFO", "commandstats"]);
    expect(Number(/cmdstat_xread:calls=(\d+)/.exec(stats as string)?.[1] ?? 0)).toBeLessThan(4);
  });

  test("a connection that is cut while it waits, or while it is full, ends the session", async () => {
    await using proxy = await startTcpProxy(server.port);
    const through = url.replace(String(server.port), String(proxy.port));
    const broker = open();
    const events = many(2);
    await store(broker, events);
    for (const prefetch of [1, 5]) {
      const reader = receive(open({ url: through }), { prefetch });
      await reader.take(Math.min(prefetch, 2));
      const waiting = reader.next();
      await new Promise((resolve) => setTimeout(resolve, 100));
      proxy.reset();
      await expect(within(2_000, "the end", waiting)).rejects.toMatchObject({ code: "DESTINATION_UNAVAILABLE" });
    }
    expect(ids(await receive(open()).take(2))).toEqual(events.map(({ id }) => id));
  });

  test("a server that stands still ends the session in time, and nothing is lost or doubled in order", async () => {
    const broker = open();
    const events = many(40, 3);
    await store(broker, events.slice(0, 20));
    const reader = receive(open({ timeoutMs: 2_000 }), { prefetch: 8 });
    const [first] = await reader.take(8);
    const waiting = reader.next();
    server.freeze();
    try {
      void first!.ack().catch(() => undefined); // it may or may not be recorded
      await expect(within(15_000, "the end", waiting)).rejects.toMatchObject({ code: "DESTINATION_UNAVAILABLE" });
    } finally {
      server.thaw();
    }
    await store(broker, events.slice(20));
    const again = ids(await receive(open()).take(39));
    expect(again.slice(-39)).toEqual(
      events.slice(again[0] === events[0]!.id ? 0 : 1, again[0] === events[0]!.id ? 39 : 40).map(({ id }) => id),
    );
  });

  test("an entry that is larger than is read becomes an unreadable delivery, whether it is there or comes, and holds up nothing", async () => {
    const broker = open();
    const large = `return redis.call('XADD', KEYS[1], '*', 'data', string.rep('x', 65 * 1024 * 1024))`;
    const [before, between, after] = many(3);
    await store(broker, [before!]);
    await sql(["EVAL", large, "1", topic]);
    await store(broker, [between!]);
    const reader = receive(broker);
    const taken = await reader.take(3);
    expect(ids([taken[0]!, taken[2]!])).toEqual([before!.id, between!.id]);
    expect(taken[1]!.unreadable!.why).toMatch(/^it has 68157\d+ bytes, and at most 67108864 are read: the stream has it as \d+-\d+$/);
    await Promise.all(taken.map((delivery) => delivery.ack()));

    // A reader that waits for it gets an answer that is too large. The next one gets it by its size.
    const waiting = reader.next().catch(() => null);
    await expect.poll(async () => String((await sql(["CLIENT", "LIST"]))[0])).toMatch(/cmd=xread /);
    await sql(["EVAL", large, "1", topic]);
    await store(broker, [after!]);
    await waiting;
    const [unread, last] = await receive(broker).take(2);
    expect(unread!.unreadable!.why).toMatch(/bytes, and at most/);
    expect(ids([last!])).toEqual([after!.id]);
  });

  test("purge deletes what is old and acknowledged by every group, and never more", async () => {
    const broker = open();
    const events = many(1_200);
    await store(broker, events);
    const left = async (): Promise<number> => (await sql(["XLEN", topic]))[0] as number;
    const future = new Date(Date.now() + 60_000);

    // A group that has had nothing needs everything.
    await sql(["XGROUP", "CREATE", topic, "slow", "0"]);
    const reader = receive(broker, { prefetch: 2_000 });
    const deliveries = await reader.take(1_200);
    await Promise.all(deliveries.map((delivery) => delivery.ack()));
    expect(await broker.purge(future, [topic])).toBe(0);

    // What it has been given and not acknowledged is kept, and all that follows.
    const slow = receive(open(), { consumer: "slow", prefetch: 2_000 });
    const given = await slow.take(900);
    await Promise.all(given.slice(0, 700).map((delivery) => delivery.ack()));
    await Promise.all(given.slice(710).map((delivery) => delivery.ack()));
    expect(await broker.purge(future, [topic])).toBe(700);
    expect(await left()).toBe(500);

    await Promise.all(given.map((delivery) => delivery.ack()));
    // Age counts too: nothing here is older than a minute.
    expect(await broker.purge(new Date(Date.now() - 60_000), [topic])).toBe(0);
    await Promise.all((await slow.take(300)).map((delivery) => delivery.ack()));
    expect(await broker.purge(future, [topic])).toBe(500);
    expect(await left()).toBe(0);
    const last = sampleEvent();
    await store(broker, [last]);
    expect(ids(await slow.take(1))).toEqual([last.id]);
    expect(ids(await reader.take(1))).toEqual([last.id]);
  });

  test("purge takes many entries in small steps, and tells what it cannot do", async () => {
    const broker = open();
    const script = `for i = 1, 25000 do redis.call('XADD', KEYS[1], '*', 'n', i) end`;
    await sql(["EVAL", script, "1", topic], ["XGROUP", "CREATE", topic, "done", "$"]);
    expect(await broker.purge(new Date(Date.now() + 60_000), [topic])).toBe(25_000);
    await expect(broker.purge(new Date(), ["nowhere"])).rejects.toMatchObject({
      message: expect.stringMatching(/nowhere.*NOSTREAM/) as string,
    });
    await expect(broker.purge(new Date(NaN), [topic])).rejects.toMatchObject({ code: "INVALID_OPTION" });
  });
});
