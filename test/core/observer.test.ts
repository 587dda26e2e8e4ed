import { afterEach, describe, expect, test, vi } from "vitest";
import { turn } from "../../src/core/clock.ts";
import type { LogLine } from "../../src/core/log.ts";
import { notices, observerOf } from "../../src/core/observer.ts";
import type { PathEvent } from "../../src/core/path-events.ts";
import { createOutbox, createRelay, createSubscriber, fatal } from "../../src/index.ts";
import { memory, memoryBroker } from "../../src/memory.ts";

const died = (n: number): PathEvent => ({
  ...{ type: "relay.died", id: `e-${n}`, aggregateType: "Order", aggregateId: "o-1", eventType: "OrderPlaced" },
  ...{ error: "TOO_LARGE: 2 MB", followers: "blocked" },
});
const trouble = (step: "claim" | "renew"): PathEvent => ({ type: "relay.trouble", relay: "r", step, error: "away", code: null });

/** Lines as they are written, on a clock that is moved by hand. */
function written() {
  const lines: string[] = [];
  const waiting: { readonly at: number; run(): void }[] = [];
  let now = 0;
  const observe = notices((line: LogLine) => void lines.push(`${line.level} ${line.text}`), {
    monotonic: () => now,
    later: (ms, run) => void waiting.push({ at: now + ms, run }),
  });
  const pass = (ms: number): void => {
    now += ms;
    for (const one of waiting.splice(0)) {
      if (one.at <= now) one.run();
      else waiting.push(one);
    }
  };
  return { lines, observe, pass, timers: () => waiting.length };
}

describe("without an observer", () => {
  test("deaths, troubles and recoveries are written, and nothing of what goes well", () => {
    const { lines, observe } = written();
    for (const event of [
      { type: "relay.claimed", relay: "r", count: 5, narrow: false },
      { type: "relay.published", relay: "r", count: 5, ms: 1 },
      { type: "lanes.won", relay: "r", lanes: [1], turn: false },
      { type: "subscriber.seat", consumer: "c", topic: "t", held: true },
      { type: "subscriber.handled", consumer: "c", id: "1", eventType: "T", first: true, ms: 1 },
      died(1),
      trouble("claim"),
      { type: "relay.recovered", relay: "r", step: "claim", ms: 12_000 },
      { type: "destination.closed", topic: "order.events" },
      { type: "subscriber.recovered", consumer: "shipping", step: "receive", topic: "t", ms: 1_500 },
      { type: "subscriber.full", consumer: "shipping", topic: "t", unacknowledged: 1, full: false },
    ] satisfies PathEvent[])
      observe(event);
    expect(lines).toEqual([
      "error event e-1 (OrderPlaced of Order o-1) is DEAD, its followers are blocked: TOO_LARGE: 2 MB",
      "warn claim went wrong: away",
      "info claim works again after 12s",
      "info order.events takes events again",
      "info shipping: receive works again after 1.5s",
      "info shipping: takes more of t again",
    ]);
  });

  test("5,000 deaths are five lines and a number, and other kinds of lines are not left out for them", () => {
    const { lines, observe, pass, timers } = written();
    for (let n = 0; n < 5_000; n++) observe(died(n));
    observe(trouble("claim"));
    observe(trouble("renew"));
    expect(timers()).toBe(1);
    expect(lines).toHaveLength(7);
    expect(lines[4]).toMatch(/^error event e-4 .* \(more of relay\.died are only counted for 10s\)$/);
    expect(lines.slice(5)).toEqual(["warn claim went wrong: away", "warn renew went wrong: away"]);
    pass(10_000);
    expect(lines.slice(7)).toEqual(["warn left out 4995 more lines about relay.died within 10s"]);
    observe(died(1));
    expect(lines).toHaveLength(9);
    pass(10_000);
    expect(lines).toHaveLength(9);
  });

  test("the number that was left out is told once, also when the next line comes before its time", () => {
    const { lines, observe, pass } = written();
    for (let n = 0; n < 6; n++) observe(died(n));
    pass(9_999);
    observe(died(6));
    pass(1);
    observe(died(7));
    expect(lines.filter((line) => line.includes("left out"))).toEqual(["warn left out 2 more lines about relay.died within 10s"]);
    expect(lines.at(-1)).toMatch(/^error event e-7 /);
  });
});

describe("the option observe", () => {
  afterEach(() => void vi.restoreAllMocks());

  const spoken = () => {
    const lines: string[] = [];
    vi.spyOn(console, "error").mockImplementation((text: string) => void lines.push(text));
    return lines;
  };

  /** One event that its subscriber gives up on at once. */
  async function letter(observe?: Parameters<typeof observerOf>[0]): Promise<void> {
    const [store, broker] = [memory(), memoryBroker()];
    const given = observe === undefined ? {} : { observe };
    await createOutbox({ store }).transaction(store.db, (_, events) =>
      events.add({ aggregateType: "Order", aggregateId: "1", type: "OrderPlaced", payload: 1 }),
    );
    await createRelay({ store, sink: broker, ...given }).runOnce();
    let failing: () => void = () => undefined;
    const failed = new Promise<void>((resolve) => (failing = resolve));
    const subscriber = createSubscriber({
      ...{ consumer: "shipping", topics: ["order.events"], source: broker, inbox: store, ...given },
      handlers: {
        OrderPlaced() {
          setImmediate(failing);
          throw fatal(new Error("no such street"));
        },
      },
    });
    await subscriber.start();
    await failed;
    await subscriber.drain();
  }

  test("left out, a subscriber's dead letter is a line on stderr", async () => {
    const lines = spoken();
    await letter();
    expect(lines).toHaveLength(1);
    expect(lines[0]).toMatch(/^\S+Z error waybill: shipping: gave up on OrderPlaced \S+ after 1 attempt: .*no such street/);
  });

  test("false is silence", async () => {
    const lines = spoken();
    await letter(false);
    expect(lines).toEqual([]);
  });

  test("takes a function, and writes nothing itself", async () => {
    const lines = spoken();
    const heard: string[] = [];
    await letter(({ type }) => void heard.push(type));
    expect(heard).toContain("subscriber.died");
    expect(lines).toEqual([]);
  });

  test("takes a logger with its methods, such as one of pino", async () => {
    class Pino {
      readonly lines: string[] = [];
      info = (text: string): void => this.say("info", text);
      warn(text: string): void {
        this.say("warn", text);
      }
      error(text: string): void {
        this.say("error", text);
      }
      say(level: string, text: string): void {
        this.lines.push(`${level} ${text}`);
      }
    }
    const [lines, logger] = [spoken(), new Pino()];
    await letter(logger);
    expect(logger.lines.some((line) => line.startsWith("error shipping: gave up on OrderPlaced "))).toBe(true);
    expect(lines).toEqual([]);
  });

  test("of a logger that throws or rejects harms nobody", async () => {
    const unhandled: unknown[] = [];
    const listen = (reason: unknown): void => void unhandled.push(reason);
    process.on("unhandledRejection", listen);
    const later = (): void => Promise.reject(new Error("broken later")) as unknown as void;
    const now = (): never => {
      throw new Error("broken");
    };
    observerOf({ info: later, warn: later, error: later })(died(1));
    observerOf({ info: now, warn: now, error: now })(died(1));
    for (let i = 0; i < 3; i++) await turn();
    process.off("unhandledRejection", listen);
    expect(unhandled).toEqual([]);
  });

  test.each([true, null, "console", {}, { info: () => undefined, warn: () => undefined }])("refuses %j and names the way out", (given) => {
    expect(() => createRelay({ store: memory(), sink: memoryBroker(), observe: given as never })).toThrow(
      /observe must be a function, a logger with info, warn and error, or false for silence, not /,
    );
  });
});
