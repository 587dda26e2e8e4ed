import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { embedded } from "../../src/brokers/embedded/index.ts";
import type { Request } from "./child.ts";
import { compile } from "./compiled.ts";
import { eventually, freshPath, sql } from "./files.ts";

interface Received {
  readonly id: string;
  readonly aggregateId: string;
  readonly n: number;
}

let compiled: ReturnType<typeof compile>;
const children = new Set<ChildProcess>();

beforeAll(() => {
  compiled = compile("test/brokers/child.ts");
});
afterAll(() => compiled.remove());
afterEach(() => {
  for (const child of children) child.kill("SIGKILL");
  children.clear();
});

function start<Message>(request: Request): { child: ChildProcess; told: Message[]; ended: Promise<unknown> } {
  const child = fork(compiled.program, [JSON.stringify(request)]);
  const told: Message[] = [];
  child.on("message", (message) => told.push(message as Message));
  children.add(child);
  return { child, told, ended: once(child, "close") };
}

async function make(path: string): Promise<void> {
  const broker = embedded({ path });
  await broker.connect(new AbortController().signal);
  await broker[Symbol.asyncDispose]();
}

const stored = (path: string): Received[] =>
  sql(
    path,
    `SELECT attributes ->> 'id' AS id, key AS aggregateId, CAST(CAST(data AS TEXT) AS INTEGER) AS n FROM waybill_broker_messages ORDER BY offset`,
  ) as unknown as Received[];

/** First deliveries of each aggregate are 1, 2, 3 … up to its last event. */
function expectWhole(received: readonly Received[], log: readonly Received[]): void {
  const seen = new Set<string>();
  const counters = new Map<string, number>();
  for (const { id, aggregateId, n } of received) {
    if (seen.has(id)) continue;
    seen.add(id);
    expect(n, `${id} of ${aggregateId}`).toBe((counters.get(aggregateId) ?? 0) + 1);
    counters.set(aggregateId, n);
  }
  expect(seen).toEqual(new Set(log.map(({ id }) => id)));
}

test("three publishers and two readers share a file: everything is stored and delivered once, each aggregate in order", async () => {
  const path = freshPath();
  const readers = ["left", "right"].map((name) => start<Received>({ role: "reader", path, name, prefetch: 20 }));
  const publishers = ["a", "b", "c"].map((name) => start({ role: "publisher", path, name, batches: 12, size: 20 }));
  expect(await Promise.all(publishers.map(({ ended }) => ended))).toEqual(Array(3).fill([0, null]));
  await eventually("all deliveries", () => readers.every(({ told }) => told.length >= 720));
  for (const { child } of readers) child.send("end");
  expect(await Promise.all(readers.map(({ ended }) => ended))).toEqual(Array(2).fill([0, null]));

  const log = stored(path);
  expect(log).toHaveLength(720);
  expectWhole(log, log);
  for (const { told } of readers) {
    expect(told).toHaveLength(720);
    expectWhole(told, log);
  }
  // A clean stop leaves nothing to be delivered again.
  const ends = sql(path, "SELECT consumer, offset FROM waybill_broker_consumers ORDER BY consumer");
  expect(ends).toEqual(["left", "right"].map((consumer) => ({ consumer, offset: 720 })));
});

test("what a killed reader did not acknowledge is delivered to the next, in order", async () => {
  const path = freshPath();
  await make(path);
  const publisher = start({ role: "publisher", path, name: "a", batches: 30, size: 20 });
  const received: Received[] = [];
  for (const until of [40, 150, 333]) {
    const { child, told, ended } = start<Received>({ role: "reader", path, name: "reader", prefetch: 10 });
    await eventually("some deliveries", () => told.length + received.length >= until);
    child.kill("SIGKILL");
    await ended;
    received.push(...told);
    const [{ offset } = { offset: 0 }] = sql(path, "SELECT offset FROM waybill_broker_consumers");
    // Nothing is committed that was not handed over.
    const ids = new Set(received.map(({ id }) => id));
    for (const { id } of stored(path).slice(0, Number(offset))) expect(ids.has(id)).toBe(true);
  }
  expect(await publisher.ended).toEqual([0, null]);
  const { child, told, ended } = start<Received>({ role: "reader", path, name: "reader", prefetch: 10 });
  await eventually("the last delivery", () => told.at(-1)?.id === "a/29/19");
  child.send("end");
  expect(await ended).toEqual([0, null]);
  received.push(...told);

  const log = stored(path);
  expect(log).toHaveLength(600);
  expectWhole(received, log);
  expect(sql(path, "SELECT offset FROM waybill_broker_consumers")).toEqual([{ offset: 600 }]);
});

test("a batch of a killed publisher is stored whole or not at all, and what it was told is stored is there", async () => {
  const path = freshPath();
  await make(path);
  for (const name of ["a", "b", "c"]) {
    const { child, told, ended } = start<{ batch: number }>({ role: "publisher", path, name, batches: 10_000, size: 50 });
    await eventually("some batches", () => told.length >= 5);
    child.kill("SIGKILL");
    await ended;
    const rows = sql(
      path,
      `SELECT headers ->> 'batch' AS batch, count(*) AS n FROM waybill_broker_messages WHERE key LIKE ? GROUP BY 1 ORDER BY min(offset)`,
      `${name}-%`,
    );
    expect(rows.length).toBeGreaterThanOrEqual(told.length);
    expect(rows).toEqual(rows.map((_, i) => ({ batch: `${name}/${i}`, n: 50 })));
  }
});
