import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, test } from "vitest";
import { embedded } from "../../src/brokers/embedded/index.ts";
import { nats } from "../../src/brokers/nats/index.ts";
import { redis } from "../../src/brokers/redis/index.ts";
import { sampleEvent } from "../../src/conformance/corpus.ts";
import type { Sink } from "../../src/contracts/sink.ts";
import { describeWith } from "../servers/available.ts";
import { startNats } from "../servers/nats.ts";
import { startRedis } from "../servers/redis.ts";
import { freshPath } from "./files.ts";

const topic = "order.events";
const count = 200;
const bytes = 4 * 1024 * 1024;
/** docs/deploying.md has the figure: 32 MiB of deliveries in work, as much of those that wait, what the client reads ahead, and Node.js itself. All of them are 800 MiB. */
const mostMiB = 400;

async function fill(broker: Sink & AsyncDisposable & { provision(topics: string[], consumers: string[]): Promise<void> }): Promise<void> {
  const never = new AbortController().signal;
  await broker.provision([topic], ["shop", "failing"]);
  const data = new Uint8Array(bytes).fill(120);
  for (let n = 0; n < count; n++) {
    const envelope = sampleEvent({ data, contentType: "application/octet-stream", aggregateId: `order-${n}` });
    const [result] = await broker.publish([{ topic, source: "/test", envelope }], never);
    expect(result).toEqual({ status: "stored" });
  }
  await broker[Symbol.asyncDispose]();
}

async function holds(module: string, options: object): Promise<void> {
  const child = fileURLToPath(new URL("memory-child.mjs", import.meta.url));
  const runs = [
    { consumer: "shop", twice: false },
    { consumer: "failing", twice: true },
  ];
  for (const run of runs) {
    const { stdout } = await promisify(execFile)(process.execPath, [child, JSON.stringify({ module, options, topic, count, ...run })]);
    const { maxRssMiB } = JSON.parse(stdout) as { maxRssMiB: number };
    expect({ ...run, fits: maxRssMiB < mostMiB, maxRssMiB }).toMatchObject({ fits: true });
  }
}

const title = "200 messages of 4 MiB at the default prefetch do not exhaust a subscriber's memory, nor when each of them fails once";

describe("embedded", () => {
  test(
    title,
    async () => {
      const options = { path: freshPath(), maxBytes: 2 * bytes };
      await fill(embedded(options));
      await holds("brokers/embedded/index.js", options);
    },
    180_000,
  );
});

await describeWith("redis", "redis", () => {
  test(
    title,
    async () => {
      const server = await startRedis();
      await fill(redis({ url: server.url(), maxBytes: 2 * bytes }));
      await holds("brokers/redis/index.js", { url: server.url() });
      await server[Symbol.asyncDispose]();
    },
    180_000,
  );
});

await describeWith("nats", "nats", () => {
  test(
    title,
    async () => {
      const server = await startNats({ settings: `max_payload: ${2 * bytes}` });
      await fill(nats({ url: server.url() }));
      await holds("brokers/nats/index.js", { url: server.url() });
      await server[Symbol.asyncDispose]();
    },
    180_000,
  );
});
