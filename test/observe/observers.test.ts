import { afterEach, describe, expect, test } from "vitest";
import type { LogLook } from "../../src/contracts/log-tailer.ts";
import { systemClock } from "../../src/core/clock.ts";
import { idsFor, safely, withAges, withIds, type PathEvent } from "../../src/core/path-events.ts";
import { createOutbox, createRelay, createSubscriber, fatal } from "../../src/index.ts";
import { memory, memoryBroker } from "../../src/memory.ts";
import { createMetrics, lineOf, logTo, observers, servePages } from "../../src/observe/index.ts";

const published: PathEvent = { type: "relay.published", relay: "r", count: 2, ms: 1 };
const lost: PathEvent = { type: "lanes.lost", relay: "r", lanes: [1, 2] };

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const clean of cleanups.splice(0).reverse()) await clean();
});

describe("several observers", () => {
  test("hear of everything, though one of them throws", () => {
    const heard: string[] = [];
    const broken = (): never => {
      throw new Error("broken");
    };
    observers(
      ({ type }) => void heard.push(`first ${type}`),
      broken,
      ({ type }) => void heard.push(`third ${type}`),
    )(lost);
    expect(heard).toEqual(["first lanes.lost", "third lanes.lost"]);
  });

  test("ask for ids when one of them does", () => {
    const none = (): void => undefined;
    expect(observers(none, none).ids).toBe(undefined);
    expect(observers(none, withIds(none)).ids).toBe(true);
    expect(safely(withIds(none)).ids).toBe(true);
    expect(safely(none).ids).toBe(undefined);
    const both = observers(none, withAges(withIds(none)));
    expect([both.ids, both.ages, createMetrics().observe.ages]).toEqual([true, true, true]);
  });
});

describe("ids", () => {
  test("are not collected for an observer that does not ask", () => {
    let asked = 0;
    const idOf = (): string => String((asked += 1));
    expect(idsFor(() => undefined, [1, 2], idOf)).toEqual({});
    expect(asked).toBe(0);
    expect(
      idsFor(
        withIds(() => undefined),
        [1, 2],
        idOf,
      ),
    ).toEqual({ ids: ["1", "2"] });
  });

  /** Adds three events and takes them to a subscriber; returns their ids, and what an observer heard. */
  async function through(asking: boolean): Promise<{ readonly added: readonly string[]; readonly heard: readonly PathEvent[] }> {
    const heard: PathEvent[] = [];
    const listen = (event: PathEvent): void => void heard.push(event);
    const observe = asking ? withIds(listen) : listen;
    const [store, broker] = [memory(), memoryBroker()];
    await createOutbox({ store }).transaction(store.db, (_, events) => {
      for (const n of [1, 2, 3]) events.add({ aggregateType: "Order", aggregateId: String(n), type: "OrderPlaced", payload: n });
    });
    const subscriber = createSubscriber({
      ...{ consumer: "c", topics: ["order.events"], source: broker, inbox: store, observe },
      handlers: { "*": () => undefined },
    });
    cleanups.push(() => subscriber.drain());
    await createRelay({ store, sink: broker, observe }).runOnce();
    await subscriber.start();
    await expect.poll(() => heard.filter(({ type }) => type === "subscriber.handled").length, { timeout: 10_000 }).toBe(3);
    return { added: (await store.operator.list({ limit: 10 })).map(({ id }) => id).sort(), heard };
  }

  test("follow each event from the claim to its effect", async () => {
    const { added, heard } = await through(true);
    const idsOf = (type: PathEvent["type"]): readonly string[] =>
      heard
        .filter((event) => event.type === type)
        .flatMap((event) => ("ids" in event ? (event.ids ?? []) : "id" in event ? [event.id!] : []))
        .sort();
    for (const type of ["relay.claimed", "relay.published", "subscriber.handled"] as const) expect(idsOf(type)).toEqual(added);
  });

  test("are in no path event unless they are asked for", async () => {
    const { heard } = await through(false);
    const batches = heard.filter(({ type }) => type === "relay.claimed" || type === "relay.published");
    expect(batches.length).toBeGreaterThan(1);
    expect(batches.filter((event) => "ids" in event)).toEqual([]);
  });
});

describe("a log", () => {
  const spoken = (): { readonly lines: string[]; readonly logger: Parameters<typeof logTo>[0] } => {
    const lines: string[] = [];
    const at = (level: string) => (text: string) => void lines.push(`${level} ${text}`);
    return { lines, logger: { info: at("info"), warn: at("warn"), error: at("error") } };
  };

  test("has a line for what a person wants to read, and none for what happens with every event", () => {
    const { lines, logger } = spoken();
    const log = logTo(logger);
    for (const event of [published, lost]) log(event);
    expect(lines).toEqual(["warn lost 2 lanes to another relay"]);
  });

  test("tells of a subscriber too", () => {
    const { lines, logger } = spoken();
    const common = { consumer: "c", id: "e-1", eventType: "OrderPlaced", error: "boom" };
    logTo(logger)({ type: "subscriber.failed", ...common, attempts: 2, retryInMs: 1_500 });
    logTo(logger)({ type: "subscriber.died", ...common, attempts: 5, topic: "order.events" });
    expect(lines).toEqual([
      "warn c: could not apply OrderPlaced e-1 (attempt 2), next attempt in 1.5s: boom",
      "error c: gave up on OrderPlaced e-1 after 5 attempts: boom",
    ]);
  });

  test("has one line for each path event, and nothing that a terminal obeys", () => {
    const { lines, logger } = spoken();
    const evil = "x\u001b[2J\u009b31m\u202e\r\nall is well";
    const event = { id: evil, aggregateType: evil, aggregateId: evil, eventType: evil };
    logTo(logger)({ type: "relay.failed", ...event, failures: 1, retryInMs: 1_000, error: evil });
    logTo(logger)({ type: "subscriber.died", consumer: "c", id: evil, eventType: evil, topic: "t", attempts: 1, error: evil });
    for (const line of lines) expect(line).not.toMatch(/[\u0000-\u001f\u007f-\u009f\u202e]/);
    expect(lines[1]).toContain("x\\u001b[2J\\u009b31m\\u202e\\r\\nall is well");
  });

  test("shows no password of a URL", () => {
    const event: PathEvent = {
      type: "subscriber.trouble",
      consumer: "c",
      step: "receive",
      topic: null,
      id: null,
      error: "amqp://a:s3cret@mq",
    };
    expect(lineOf(event)).toEqual({ level: "warn", text: "receive went wrong: amqp://***@mq" });
  });
});

describe("metrics of a service", () => {
  test("count what its subscribers do, by consumer", () => {
    const metrics = createMetrics();
    const handled = { type: "subscriber.handled", consumer: "c", id: "1", eventType: "t", ms: 1 } as const;
    for (const first of [true, true, false]) metrics.observe({ ...handled, first });
    const lines = metrics.text().split("\n");
    expect(lines).toContain('waybill_applied_total{consumer="c"} 2');
    expect(lines).toContain('waybill_duplicates_total{consumer="c"} 1');
    metrics.observe({ type: "subscriber.ignored", consumer: "c", id: "1", eventType: "t" });
    expect(metrics.text()).toContain('waybill_ignored_total{consumer="c"} 1\n');
    expect(lines).not.toContain("waybill_store_up 0");
  });

  test("of a consumer begin with 0 when its subscriber starts, so that the first letter is an increase", async () => {
    const metrics = createMetrics();
    const subscriber = createSubscriber({
      ...{ consumer: "shipping", topics: ["order.events"], source: memoryBroker(), inbox: memory(), observe: metrics.observe },
      handlers: { "*": () => undefined },
    });
    cleanups.push(() => subscriber.drain());
    await subscriber.start();
    const lines = metrics.text().split("\n");
    for (const name of ["applied", "duplicates", "handler_failed", "ignored", "letters"])
      expect(lines).toContain(`waybill_${name}_total{consumer="shipping"} 0`);
  });

  test("of a relay have the age of each event by the store's clock, however wrong its own is", async () => {
    const metrics = createMetrics();
    const store = memory();
    await createOutbox({ store }).transaction(store.db, (_, events) => {
      for (const n of [1, 2, 3]) events.add({ aggregateType: "Order", aggregateId: String(n), type: "OrderPlaced", payload: n });
    });
    const wrong = { ...systemClock, now: () => systemClock.now() + 3_600_000 };
    await createRelay({ store, sink: memoryBroker(), observe: metrics.observe, clock: wrong }).runOnce();
    const text = metrics.text();
    expect(text).toContain("waybill_publish_latency_seconds_count 3\n");
    expect(text).toContain('waybill_publish_latency_seconds_bucket{le="60"} 3\n');
  });

  test("are served with its outbox, and with its own readiness", async () => {
    const metrics = createMetrics();
    metrics.observe(published);
    let atWork = true;
    const pages = await servePages({ address: "127.0.0.1:0", metrics, store: memory(), ready: () => atWork });
    cleanups.push(() => pages[Symbol.asyncDispose]());
    const get = async (path: string): Promise<readonly [number, string]> => {
      const answer = await fetch(pages.url + path);
      return [answer.status, await answer.text()];
    };
    const [status, text] = await get("/metrics");
    expect(status).toBe(200);
    expect(text).toMatch(/^waybill_published_total 2$/m);
    expect(text).toMatch(/^waybill_store_up 1$/m);
    expect(await get("/readyz")).toEqual([200, "ready\n"]);
    atWork = false;
    expect(await get("/readyz")).toEqual([503, "not ready\n"]);
  });

  test("shows the slot of the database's log where there is one, and what the server does not tell is left out", async () => {
    const sizes = { confirmed: "0/2", behindBytes: 1, retainedBytes: 4_096, safeBytes: null };
    let look: LogLook = { state: "unread", ...sizes, behindMs: null };
    const tail = { tailer: { look: () => Promise.resolve(look) } } as never;
    const shown = async (): Promise<readonly string[]> => {
      const pages = await servePages({ address: "127.0.0.1:0", metrics: createMetrics(), store: { ...memory(), tail } });
      const text = await (await fetch(`${pages.url}/metrics`)).text();
      await pages[Symbol.asyncDispose]();
      return text.match(/^waybill_log_.*$/gm) ?? [];
    };
    expect(await shown()).toEqual(["waybill_log_retained_bytes 4096"]);
    look = { state: "lagging", ...sizes, safeBytes: 7, behindMs: 1_500 };
    expect(await shown()).toEqual(["waybill_log_retained_bytes 4096", "waybill_log_safe_bytes 7", "waybill_log_behind_seconds 1.5"]);
    look = { state: "missing", ...sizes, behindMs: null };
    expect(await shown()).toEqual([]);
  });

  test("of a subscriber are served with its dead letters, and ready while it runs", async () => {
    const [store, broker, metrics] = [memory(), memoryBroker(), createMetrics()];
    await createOutbox({ store }).transaction(store.db, (_, events) => {
      for (const n of [1, 2]) events.add({ aggregateType: "Order", aggregateId: String(n), type: "OrderPlaced", payload: n });
    });
    await createRelay({ store, sink: broker, observe: false }).runOnce();
    const subscriber = createSubscriber({
      ...{ consumer: "shipping", topics: ["order.events"], source: broker, inbox: store, observe: metrics.observe },
      handlers: {
        OrderPlaced({ aggregateId }) {
          if (aggregateId === "2") throw fatal("no such street");
        },
      },
    });
    cleanups.push(() => subscriber.drain());
    const pages = await servePages({ address: "127.0.0.1:0", metrics, inbox: store, services: [subscriber] });
    cleanups.push(() => pages[Symbol.asyncDispose]());
    const ready = async (): Promise<number> => (await fetch(`${pages.url}/readyz`)).status;
    expect(await ready()).toBe(503);
    await subscriber.start();
    expect(await ready()).toBe(200);
    await expect.poll(() => metrics.text()).toContain('waybill_letters_total{consumer="shipping"} 1\n');
    await expect.poll(() => metrics.text()).toContain('waybill_applied_total{consumer="shipping"} 1\n');
    const text = await (await fetch(`${pages.url}/metrics`)).text();
    expect(text).toMatch(/^waybill_inbox_up 1$/m);
    expect(text).toMatch(/^waybill_dead_letters\{consumer="shipping",topic="order.events"\} 1$/m);
    expect(text).toMatch(/^waybill_oldest_letter_seconds\{consumer="shipping",topic="order.events"\} [\d.]+$/m);
    expect(text).not.toContain("waybill_store_up");
    await subscriber.drain();
    expect(await ready()).toBe(503);
  });

  test("of a subscriber tell its lag, its retries, and a dead-letter topic that is missing", async () => {
    const [store, metrics, heard] = [memory(), createMetrics(), [] as string[]];
    await using broker = memoryBroker({ provision: false });
    await broker.provision(["order.events"]);
    await createOutbox({ store }).transaction(store.db, (_, events) => {
      for (const n of [1, 2]) events.add({ aggregateType: "Order", aggregateId: String(n), type: "OrderPlaced", payload: n });
    });
    await createRelay({ store, sink: broker, observe: false }).runOnce();
    const subscriber = createSubscriber({
      ...{ consumer: "shipping", topics: ["order.events"], source: broker, inbox: store, deadTopic: "{topic}.dead" },
      observe: observers(
        metrics.observe,
        (event) => void (event.type === "subscriber.trouble" && heard.push(`${event.step}: ${event.error}`)),
      ),
      handlers: {
        OrderPlaced({ aggregateId }) {
          if (aggregateId === "2") throw new Error("the carrier is closed");
        },
      },
    });
    cleanups.push(() => subscriber.stop());
    // Two services of one consumer: no series twice.
    const pages = await servePages({ address: "127.0.0.1:0", metrics, inbox: store, services: [subscriber, subscriber] });
    cleanups.push(() => pages[Symbol.asyncDispose]());
    await expect(subscriber.look()).rejects.toThrow(/does not run/);
    await subscriber.start();
    await expect.poll(() => metrics.text()).toContain('waybill_handler_failed_total{consumer="shipping"} 1\n');
    expect(await subscriber.look()).toEqual([
      {
        topic: "order.events",
        lag: 1,
        deadTopic: { error: expect.stringContaining("the dead-letter topic order.events.dead of order.events") as string },
      },
    ]);
    const lines = (await (await fetch(`${pages.url}/metrics`)).text()).split("\n");
    const of = 'consumer="shipping"';
    for (const line of [
      `waybill_source_up{${of}} 1`,
      `waybill_lag_messages{${of},topic="order.events"} 1`,
      `waybill_dead_topic_up{${of},topic="order.events"} 0`,
      `waybill_retrying_events{${of}} 1`,
    ])
      expect(
        lines.filter((each) => each === line),
        line,
      ).toHaveLength(1);
    await expect
      .poll(() => heard)
      .toEqual([expect.stringMatching(/^park: .*order\.events\.dead.*waybill migrate --broker URL --topics order\.events\.dead/)]);
    await broker.provision(["order.events.dead"]);
    expect(await subscriber.look()).toEqual([{ topic: "order.events", lag: 1, deadTopic: { error: null } }]);
  });

  test("of a subscriber whose broker hangs are served all the same", async () => {
    const [store, broker] = [memory(), memoryBroker()];
    const subscriber = createSubscriber({
      ...{
        consumer: "shipping",
        topics: ["order.events"],
        source: { ...broker, lag: () => new Promise<never>(() => undefined) },
        inbox: store,
      },
      observe: false,
      handlers: { "*": () => undefined },
    });
    cleanups.push(() => subscriber.stop());
    await subscriber.start();
    const pages = await servePages({ address: "127.0.0.1:0", metrics: createMetrics(), inbox: store, services: [subscriber] });
    cleanups.push(() => pages[Symbol.asyncDispose]());
    const text = await (await fetch(`${pages.url}/metrics`, { signal: AbortSignal.timeout(5_000) })).text();
    expect(text).toMatch(/^waybill_source_up\{consumer="shipping"\} 0$/m);
    expect(text).not.toContain("waybill_lag_messages{");
  });

  test("tell of an inbox that does not answer", async () => {
    const consumers = { look: () => Promise.reject(new Error("away")) };
    const pages = await servePages({ address: "127.0.0.1:0", metrics: createMetrics(), inbox: { consumers } });
    cleanups.push(() => pages[Symbol.asyncDispose]());
    const text = await (await fetch(`${pages.url}/metrics`)).text();
    expect(text).toMatch(/^waybill_inbox_up 0$/m);
    expect(text).not.toContain("waybill_dead_letters");
  });

  test("without a store are the counters, and ready at once", async () => {
    const pages = await servePages({ address: "127.0.0.1:0", metrics: createMetrics() });
    cleanups.push(() => pages[Symbol.asyncDispose]());
    expect(await (await fetch(`${pages.url}/metrics`)).text()).not.toContain("waybill_store_up");
    expect((await fetch(`${pages.url}/readyz`)).status).toBe(200);
  });

  test("refuse an address that others can reach without a token, and an option that there is not, in the words of the options", async () => {
    const metrics = createMetrics();
    await expect(servePages({ address: "0.0.0.0:0", metrics })).rejects.toThrow(/^address 0.0.0.0:0 .* give the option token/);
    await expect(servePages({ address: "nowhere", metrics })).rejects.toThrow(/^address must be HOST:PORT/);
    await expect(servePages({ adress: "1", metrics } as never)).rejects.toThrow(/did you mean address/);
  });
});
