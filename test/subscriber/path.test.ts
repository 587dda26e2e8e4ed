import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import * as z from "zod";
import { embedded } from "../../src/brokers/embedded/index.ts";
import { memoryBroker } from "../../src/brokers/memory/index.ts";
import type { Inbox } from "../../src/contracts/inbox.ts";
import type { Sink } from "../../src/contracts/sink.ts";
import type { Source } from "../../src/contracts/source.ts";
import type { PathEvent } from "../../src/core/path-events.ts";
import { defineEvents } from "../../src/outbox/catalogue.ts";
import { defaultDriver } from "../../src/drivers/sqlite/driver.ts";
import { memory } from "../../src/stores/memory/index.ts";
import { sqlite } from "../../src/stores/sqlite/index.ts";
import { createSubscriber, type SubscriberOptions } from "../../src/subscriber/subscriber.ts";
import { envelope, eventually, settle } from "./fakes.ts";

const topic = "order.events";
const events = defineEvents({ OrderPlaced: z.object({ n: z.number() }) });

interface Effect {
  readonly aggregate: string;
  readonly n: number;
}

/** What a handler writes with. */
type Write = (effect: Effect) => void;

interface Machine {
  /** A process of its own: its own connections to the same files. */
  process(): Promise<{ readonly inbox: { readonly inbox: Inbox<Write> }; readonly broker: Source & Sink }>;
  effects(): readonly Effect[];
}

const closing: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

function mapped<Tx>(inbox: Inbox<Tx>, writeOf: (tx: Tx) => Write): Inbox<Write> {
  return {
    ...inbox,
    once: (key, version, work, letter) =>
      inbox.once(key, version, (tx, fresh, next) => work(writeOf(tx), fresh, async (ids) => writeOf(await next(ids))), letter),
  };
}

const machines: Record<string, () => Promise<Machine>> = {
  "memory store and broker": async () => {
    const store = memory();
    const broker = memoryBroker();
    return {
      process: async () => ({
        inbox: {
          inbox: mapped(store.inbox, (tx) => (effect) => void tx.table<number, Effect>("effects").set(tx.table("effects").size, effect)),
        },
        broker: broker.reopen(),
      }),
      effects: () => [...store.db.table<number, Effect>("effects").values()],
    };
  },
  "SQLite file and embedded broker": async () => {
    const folder = mkdtempSync(join(tmpdir(), "waybill-subscriber-"));
    closing.push(() => rmSync(folder, { recursive: true }));
    const path = join(folder, "app.db");
    const db = (await defaultDriver())(path);
    closing.push(() => db.close());
    db.exec("CREATE TABLE effects (position INTEGER PRIMARY KEY AUTOINCREMENT, aggregate TEXT NOT NULL, n INTEGER NOT NULL)");
    return {
      async process() {
        const store = sqlite({ path });
        const broker = embedded({ path: join(folder, "broker.db"), pollIntervalMs: 10 });
        closing.push(async () => {
          await broker[Symbol.asyncDispose]();
          await store[Symbol.asyncDispose]();
        });
        await store.schema.migrate();
        const writeOf = (tx: typeof db): Write => {
          return ({ aggregate, n }) => void tx.prepare("INSERT INTO effects (aggregate, n) VALUES (?, ?)").run(aggregate, n);
        };
        return { inbox: { inbox: mapped(store.inbox, writeOf) }, broker };
      },
      effects: () => db.prepare("SELECT aggregate, n FROM effects ORDER BY position").all() as Effect[],
    };
  },
};

function byAggregate(effects: readonly Effect[]): Record<string, number[]> {
  const found: Record<string, number[]> = {};
  for (const { aggregate, n } of effects) (found[aggregate] ??= []).push(n);
  return found;
}

describe.each(Object.keys(machines))("over the %s", (name) => {
  const publish = async (sink: Sink, aggregates: readonly string[], from: number, to: number): Promise<void> => {
    for (let n = from; n <= to; n++) {
      const batch = aggregates.map((aggregate) => ({ topic, source: "/test", envelope: envelope(aggregate, { n }) }));
      const results = await sink.publish(batch, new AbortController().signal);
      expect(results.every(({ status }) => status === "stored")).toBe(true);
    }
  };

  it("each event has one effect, in order, while subscribers come and go and handlers fail", async () => {
    const machine = await machines[name]!();
    const aggregates = ["a", "b", "c", "d"];
    const start = async (): Promise<ReturnType<typeof createSubscriber>> => {
      const { inbox, broker } = await machine.process();
      const failed = new Set<string>();
      const service = createSubscriber({
        ...{ consumer: "stock", source: broker, inbox, topics: [topic], events, prefetch: 16, observe: false },
        retry: { delaysMs: [5, 5, 5, 5] },
        handlers: {
          async OrderPlaced(event, write) {
            write({ aggregate: event.aggregateId, n: event.payload.n });
            await settle();
            // One in five fails at its first attempt in each process.
            if ((event.payload.n + event.aggregateId.charCodeAt(0)) % 5 === 0 && !failed.has(event.id)) {
              failed.add(event.id);
              throw new Error("not yet");
            }
          },
        },
      });
      closing.push(() => service.stop());
      await service.start();
      return service;
    };
    const { broker } = await machine.process();
    await broker.connect(new AbortController().signal);
    let current = await start();
    const standby = await start();
    await publish(broker, aggregates, 1, 6);
    await eventually(() => machine.effects().length >= 5);
    await current.drain();
    current = await start();
    await publish(broker, aggregates, 7, 12);
    await eventually(() => machine.effects().length >= 28);
    await standby.drain();
    await eventually(() => machine.effects().length >= 48);
    await current.drain();

    const expected = Array.from({ length: 12 }, (_, i) => i + 1);
    expect(byAggregate(machine.effects())).toEqual(Object.fromEntries(aggregates.map((aggregate) => [aggregate, expected])));
  });

  it("a letter reaches the dead-letter topic before its event is acknowledged, and a subscriber there can read it", async () => {
    const machine = await machines[name]!();
    const { inbox, broker } = await machine.process();
    const seen: PathEvent[] = [];
    const options: SubscriberOptions<Write, Write, typeof events> = {
      ...{
        consumer: "stock",
        source: broker,
        inbox,
        topics: [topic],
        events,
        deadTopic: "{topic}.dead",
        retry: { delaysMs: [1, 1, 1, 1] },
      },
      handlers: {
        OrderPlaced(event, write) {
          if (event.payload.n === 2) throw new Error("never works");
          write({ aggregate: event.aggregateId, n: event.payload.n });
        },
      },
      observe: (event) => void seen.push(event),
    };
    const service = createSubscriber(options);
    closing.push(() => service.stop());
    await service.start();
    await publish(broker, ["a"], 1, 3);
    await eventually(() => machine.effects().length === 2);

    const letters: Record<string, string>[] = [];
    const reader = createSubscriber({
      ...{ consumer: "clerk", source: broker, inbox, topics: [`${topic}.dead`], events },
      handlers: { OrderPlaced: (letter) => void letters.push({ ...letter.headers, n: String(letter.payload.n) }) },
    });
    closing.push(() => reader.stop());
    await reader.start();
    await eventually(() => letters.length === 1);
    expect(letters).toMatchObject([
      {
        n: "2",
        "waybill-dead-reason": "never works",
        "waybill-dead-attempts": "5",
        "waybill-dead-topic": topic,
        "waybill-dead-consumer": "stock",
      },
    ]);
    expect(seen.filter(({ type }) => type === "subscriber.died")).toHaveLength(1);
    expect(byAggregate(machine.effects())).toEqual({ a: [1, 3] });
  });

  it("others go on while thousands wait behind one that fails, and go on again when the process is replaced", async () => {
    const machine = await machines[name]!();
    const seen: PathEvent[] = [];
    let mended = 0;
    const run = async (): Promise<ReturnType<typeof createSubscriber>> => {
      const { inbox, broker } = await machine.process();
      const service = createSubscriber({
        ...{ consumer: "stock", source: broker, inbox, topics: [topic], events, retry: { delaysMs: [600_000, 600_000] } },
        handlers: {
          OrderPlaced({ aggregateId: aggregate, payload: { n } }, write) {
            if (aggregate === "bad" && n >= mended) throw new Error("not yet");
            write({ aggregate, n });
          },
        },
        observe: (event) => void seen.push(event),
      });
      closing.push(() => service.stop());
      await service.start();
      return service;
    };
    const { broker } = await machine.process();
    const followers = Array.from({ length: 5_000 }, (_, n) => ({ topic, source: "/test", envelope: envelope("bad", { n }) }));
    await broker.publish(followers, new AbortController().signal);
    const first = await run();
    const good = ["a", "b", "c", "d"];
    await publish(broker, good, 1, 10);
    await eventually(() => machine.effects().length === 40);
    await first.drain();
    const second = await run();
    await publish(broker, good, 11, 12);
    await eventually(() => machine.effects().length === 48);
    const expected = Array.from({ length: 12 }, (_, i) => i + 1);
    expect(byAggregate(machine.effects())).toEqual(Object.fromEntries(good.map((aggregate) => [aggregate, expected])));
    mended = 20;
    await second.drain();
    await run();
    await eventually(() => machine.effects().length === 68);
    expect(byAggregate(machine.effects())["bad"]).toEqual(Array.from({ length: 20 }, (_, n) => n));
    expect(seen.filter(({ type }) => type === "subscriber.full" || type === "subscriber.died")).toEqual([]);
  });

  it("attempts go on where they were when the process is replaced", async () => {
    const machine = await machines[name]!();
    const attempts: number[] = [];
    const run = async (retry: { delaysMs: number[] }): Promise<ReturnType<typeof createSubscriber>> => {
      const { inbox, broker } = await machine.process();
      const service = createSubscriber({
        ...{ consumer: "stock", source: broker, inbox, topics: [topic], retry },
        handlers: { "*": () => Promise.reject(new Error("no")) },
        observe: (event) => {
          if (event.type === "subscriber.failed" || event.type === "subscriber.died") attempts.push(event.attempts);
        },
      });
      closing.push(() => service.stop());
      await service.start();
      return service;
    };
    const { broker } = await machine.process();
    await broker.connect(new AbortController().signal);
    const first = await run({ delaysMs: [1, 1, 600_000, 1] });
    await publish(broker, ["a"], 1, 1);
    await eventually(() => attempts.length === 3);
    await first.drain();
    const second = await run({ delaysMs: [1, 1, 1, 1] });
    await eventually(() => attempts.length === 5);
    await second.drain();
    expect(attempts).toEqual([1, 2, 3, 4, 5]);
  });
});
