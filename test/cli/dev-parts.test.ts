import { writeFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { afterEach, describe, expect, test } from "vitest";
import { embedded } from "../../src/brokers/embedded/index.ts";
import { gated } from "../../src/dev/gate.ts";
import { createFresh } from "../../src/dev/news.ts";
import { dataFolder, prepare } from "../../src/dev/prepare.ts";
import { play } from "../../src/dev/roles.ts";
import { picture, plainLine, type ShopScene } from "../../src/dev/scene.ts";
import { createCanvas, paint } from "../../src/dev/screen.ts";
import { shopFiles, topic } from "../../src/dev/shop.ts";
import { summarise } from "../../src/dev/summary.ts";
import { judge } from "../../src/dev/verdict.ts";
import type { Outgoing } from "../../src/contracts/sink.ts";
import { systemClock } from "../../src/core/clock.ts";
import { ask, items, newFolder, removeFolders, rows, silent, soundShop } from "./dev-shop.ts";

afterEach(removeFolders);

const signal = new AbortController().signal;

function outgoing(id: string, aggregateId: string, headers: Record<string, string> = {}): Outgoing {
  const envelope = {
    ...{ id, seq: 1n, aggregateType: "Order", aggregateId, type: "OrderPlaced", eventVersion: 1, data: Buffer.from("{}"), headers },
    ...{ contentType: "application/json", idempotencyKey: null, createdAt: new Date(0) },
  };
  return { topic, source: "/test", envelope };
}

describe("the shop's broker", () => {
  test("refuses a poisoned event every time, skips its followers, and takes all others", async () => {
    const folder = newFolder();
    await using broker = gated(embedded({ path: join(folder, "broker.db") }), join(folder, "flag"));
    const batch = [outgoing("1", "a"), outgoing("2", "b", { "shop-poison": "yes" }), outgoing("3", "b"), outgoing("4", "a")];
    for (const _ of [1, 2]) {
      const results = await broker.publish(batch, signal);
      expect(results.map(({ status }) => status)).toEqual(["stored", "refused", "skipped", "stored"]);
      expect(results[1]).toMatchObject({ blame: "event", retryable: true });
    }
  });

  test("is away while the flag is there: for publishers, for probes, and for subscribers and their acks", async () => {
    const folder = newFolder();
    const flag = join(folder, "flag");
    await using broker = gated(embedded({ path: join(folder, "broker.db"), pollIntervalMs: 5 }), flag);
    await broker.publish([outgoing("1", "a"), outgoing("2", "b")], signal);
    const ended = new AbortController();
    const subscription = { consumer: "c", topics: [topic], prefetch: 10 };
    const deliveries = broker.receive(subscription, ended.signal)[Symbol.asyncIterator]();
    const first = await deliveries.next();
    writeFileSync(flag, "");
    const [result] = await broker.publish([outgoing("3", "a")], signal);
    expect(result).toMatchObject({ status: "refused", blame: "destination" });
    await expect(broker.probe(topic, signal)).rejects.toThrow("stopped");
    await expect((first.value as { ack(): Promise<void> }).ack()).rejects.toThrow("stopped");
    await expect(deliveries.next()).rejects.toThrow("stopped");
    await expect(broker.receive(subscription, ended.signal)[Symbol.asyncIterator]().next()).rejects.toThrow("stopped");
    rmSync(flag);
    await broker.probe(topic, signal);
    expect((await broker.publish([outgoing("3", "a")], signal))[0]).toMatchObject({ status: "stored" });
    ended.abort();
  });
});

describe("the order service", () => {
  test("writes an order and its event in one transaction, or neither", async () => {
    const folder = newFolder();
    await prepare(folder, { naive: false, relays: 1 }, systemClock);
    const service = await play({ role: "orders", name: "orders", folder, naive: false, port: 0 }, silent);
    const port = service.port!;
    const order = { order_id: "o-1", customer_id: "c", items: items(10) };
    expect(await ask(port, "POST", "/orders", { ...order, items: items(1_000) })).toBe(402);
    expect(await ask(port, "POST", "/orders", order)).toBe(201);
    expect(await ask(port, "POST", "/orders", order)).toBe(200); // asked again after a lost answer
    expect(await ask(port, "PATCH", "/orders/o-1", { version: 1, items: items(20) })).toBe(200);
    expect(await ask(port, "PATCH", "/orders/o-1", { version: 7, items: items(20) })).toBe(409);
    expect(await ask(port, "PATCH", "/orders/o-2", { version: 1, items: items(20) })).toBe(404);
    expect(await ask(port, "DELETE", "/orders/o-1", { version: 2 })).toBe(200);
    for (const bad of [{}, [], { ...order, items: [] }, { ...order, order_id: "a b" }, { ...order, items: items(0.5) }]) {
      expect(await ask(port, "POST", "/orders", bad)).toBe(400);
    }
    expect(await ask(port, "POST", "/elsewhere", order)).toBe(404);
    await service.drain();

    const events = await rows(folder, "orders", "SELECT event_type, idempotency_key, payload FROM outbox ORDER BY seq");
    expect(events.map(({ event_type, idempotency_key }) => [event_type, idempotency_key])).toEqual([
      ["OrderPlaced", "order-placed-o-1"],
      ["OrderUpdated", "order-updated-o-1-2"],
      ["OrderCancelled", "order-cancelled-o-1"],
    ]);
    expect(JSON.parse(String(events[0]!["payload"]))).toEqual({
      order_id: "o-1",
      customer_id: "c",
      total: 20,
      items: items(10),
      version: 1,
    });
    expect(await rows(folder, "orders", "SELECT id, total, status, version FROM orders")).toEqual([
      { id: "o-1", total: 40, status: "cancelled", version: 3 },
    ]);
    expect(await rows(folder, "orders", "SELECT order_id FROM rollbacks")).toEqual([{ order_id: "o-1" }]);
  });

  test("of the naive shop loses what the broker does not take, and invents what rolls back", async () => {
    const folder = newFolder();
    await prepare(folder, { naive: true, relays: 1 }, systemClock);
    const service = await play({ role: "orders", name: "orders", folder, naive: true, port: 0 }, silent);
    const port = service.port!;
    await ask(port, "POST", "/orders", { order_id: "o-1", customer_id: "c", items: items(10) });
    expect(await ask(port, "PATCH", "/orders/o-1", { version: 1, items: items(1_000) })).toBe(402);
    writeFileSync(shopFiles(folder).stopped, "");
    expect(await ask(port, "PATCH", "/orders/o-1", { version: 1, items: items(20) })).toBe(200);
    expect(await ask(port, "POST", "/orders", { order_id: "o-2", customer_id: "c", items: items(10) })).toBe(201);
    await service.drain();
    expect(await summarise(folder)).toMatchObject({ ordersCommitted: 2, events: 3, published: 1, lost: 2, invented: 1, rolledBack: 1 });
  });

  test("of the naive shop loses nothing when nothing goes wrong", async () => {
    const summary = await summarise(await soundShop(true));
    expect(summary).toMatchObject({ events: 6, published: 6, lost: 0, doubled: 0, effects: { inventory: 6, payment: 6, notification: 6 } });
    expect(judge(summary, true).held).toBe(true);
  });
});

describe("the data folder", () => {
  test("that was named is kept, and must be empty or hold a shop", async () => {
    const folder = newFolder();
    writeFileSync(join(folder, "diary.txt"), "");
    expect(() => dataFolder(folder)).toThrow(/it is not empty/);
    expect(() => dataFolder(join(folder, "a", "b"))).toThrow(/cannot be used/);
    rmSync(join(folder, "diary.txt"));
    await prepare(folder, { naive: false, relays: 2 }, systemClock);
    expect(dataFolder(folder).path).toBe(folder);
  });

  test("of one kind of shop is not taken by the other; a run that did not end counts as a fault", async () => {
    const folder = newFolder();
    await prepare(folder, { naive: false, relays: 2 }, systemClock);
    await expect(prepare(folder, { naive: true, relays: 2 }, systemClock)).rejects.toThrow(/was run without --naive/);
    const close = await prepare(folder, { naive: false, relays: 2 }, systemClock);
    await close();
    await prepare(folder, { naive: false, relays: 2 }, systemClock);
    expect((await summarise(folder)).faults).toEqual({ "run interrupted": 2 });
  });
});

const scene: ShopScene = {
  naive: false,
  url: "http://127.0.0.1:1",
  phase: "running",
  elapsedMs: 1_234,
  glance: {
    status: {
      states: { PENDING: 1, PUBLISHING: 2, PUBLISHED: 3, FAILED: 4, BLOCKED: 5, DEAD: 6, DISCARDED: 0 },
      estimated: [],
      oldestUnpublishedMs: 1_500,
      oldest: { claimableMs: null, blockedMs: null, deadMs: null, types: [] },
      relays: [{ relay: "relay-1.77", live: true, expiresAt: new Date(0), lanes: [1, 2], window: 0, windowLimit: 1500 }],
      lanes: { total: 64, owned: 2, free: 62 },
      holds: { aggregates: 7, blocked: 5, list: [] },
      breakers: [{ destination: topic, why: "stopped", since: new Date(0), aggregates: 6 }],
      window: { events: 2, suspects: 0 },
      dead: [],
      schemaVersion: 1,
    },
    ...{ orders: 10, rolledBack: 2, events: 21, logged: 20 },
    behind: { inventory: 1, payment: 0, notification: 2 },
  },
  rates: { orders: 1, events: 2, applied: 6 },
  members: [{ name: "relay-1", role: "relay", pid: 77, state: "running", lives: 2, fallen: [], did: "published 3", done: 20 }],
  news: [{ at: new Date(0), who: "relay-1", level: "error", text: "pid 76 died: SIGKILL\u001b[2J" }],
};

const drawn = (columns: number, rows: number): string[] => picture(scene, columns, rows).map((line) => paint(line, columns - 1, false));

describe("the live view", () => {
  test("shows states, lag, holds, who is behind, every process and what happened", () => {
    const text = drawn(120, 40).join("\n");
    for (const part of [
      "PENDING 1",
      "DEAD 6",
      "waits for 1.5s",
      "aggregates 7",
      `${topic} is broken, 6 aggregates wait`,
      "notification 2",
    ]) {
      expect(text).toContain(part);
    }
    expect(text).toMatch(/relay-1 +77 +running +1 +20 +2 lanes, published 3/);
    expect(text).toContain("relay-1 pid 76 died: SIGKILL\\u001b[2J"); // nothing that is told can move the cursor
  });

  test.each([
    [40, 24],
    [72, 12],
    [20, 5],
  ])("fits a terminal of %i columns and %i rows", (columns, rows) => {
    const lines = drawn(columns, rows);
    expect(lines.length).toBeLessThan(rows);
    expect(Math.max(...lines.map((line) => line.length))).toBeLessThan(columns);
    if (rows > 20) for (const state of ["PENDING 1", "BLOCKED 5", "DEAD 6"]) expect(lines.join("\n")).toContain(state);
  });

  test("is drawn over itself, without colours where none are wanted, and gives the cursor back", () => {
    let written = "";
    const canvas = createCanvas({ size: () => ({ columns: 80, rows: 24 }), write: (text) => void (written += text), colour: false });
    const lines = [[["bad", "one"]], [["plain", "two"]]] as const;
    canvas.draw(() => lines);
    written = "";
    canvas.draw(() => lines);
    expect(written).toBe("\u001b[2A\rone\u001b[K\ntwo\u001b[K\n\u001b[J");
    canvas.close();
    expect(written).toMatch(/\u001b\[\?25h$/);
    expect(paint([["bad", "red"]], 2, true)).toBe("\u001b[31mre\u001b[0m");
  });

  test("has a line for logs", () => {
    expect(plainLine(scene)).toBe(
      "1.2s running orders=10 events=21 (2.0/s) rolledBack=2 logged=20 pending=3 failed=4 blocked=5 dead=6 holds=7 behind=1/0/2",
    );
  });

  test("tells what goes on once", () => {
    const fresh = createFresh();
    const news = (text: string, ms: number, who = "relay-1") => ({ at: new Date(ms), who, level: "info", text }) as const;
    expect([news("a", 0), news("a", 500), news("a", 0, "relay-2"), news("b", 600), news("a", 700), news("a", 9_000)].map(fresh)).toEqual([
      true,
      false,
      true,
      true,
      true,
      true,
    ]);
  });
});
