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
/** docs/deploying.md has the figure: 32 MiB of deliveries, what the client reads ahead, and Node.js itself. All of them are 800 MiB. */
const mostMiB = 400;

async function fill(broker: Sink & AsyncDisposable & { provision(topics: string[], consumers: string[]): Promise<void> }): Promise<void> {
  const never = new AbortController().signal;
  await broker.provision([topic], ["shop"]);
  const data = new Uint8Array(bytes).fill(120);
  for (let n = 0; n < count; n++) {
    const envelope = sampleEvent({ data, contentType: "application/octet-stream", aggregateId: `order-${n}` });
    const [result] = await broker.publish([{ topic, source: "/test", envelope }], never);
    expect(result).toEqual({ status: "stored" });
  }
  await broker[Symbol.asyncDispose]();
}

async function maxRssMiB(module: string, options: object): Promise<number> {
  const child = fileURLToPath(new URL("memory-child.mjs", import.meta.url));
  const { stdout } = await promisify(execFile)(process.execPath, [child, JSON.stringify({ module, options, topic, count })]);
  return (JSON.parse(stdout) as { maxRssMiB: number }).maxRssMiB;
}

const title = "200 messages of 4 MiB at the default prefetch do not exhaust a subscriber's memory";

describe("embedded", () => {
  test(
    title,
    async () => {
      const options = { path: freshPath(), maxBytes: 2 * bytes };
      await fill(embedded(options));
      expect(await maxRssMiB("brokers/embedded/index.js", options)).toBeLessThan(mostMiB);
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
      expect(await maxRssMiB("brokers/redis/index.js", { url: server.url() })).toBeLessThan(mostMiB);
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
      expect(await maxRssMiB("brokers/nats/index.js", { url: server.url() })).toBeLessThan(mostMiB);
      await server[Symbol.asyncDispose]();
    },
    180_000,
  );
});
