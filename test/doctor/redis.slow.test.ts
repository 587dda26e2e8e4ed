import { Redis as Client } from "ioredis";
import { tmpdir } from "node:os";
import { afterAll, beforeAll, expect, test } from "vitest";
import { redis, type RedisOptions } from "../../src/brokers/redis/index.ts";
import type { Finding } from "../../src/core/finding.ts";
import { until } from "../cli/build.ts";
import { inProcess } from "../cli/in-process.ts";
import { describeWith } from "../servers/available.ts";
import { startRedis, type RedisServer } from "../servers/redis.ts";
import { badOf } from "./recorded.ts";

const never = new AbortController().signal;

async function examine(url: string, options: Partial<RedisOptions> = {}, topics = ["order.events"]): Promise<readonly Finding[]> {
  await using broker = redis({ url, ...options });
  return await broker.examine(topics, never);
}

await describeWith("redis", "waybill doctor on Redis", () => {
  let server: RedisServer;
  let client: Client;

  beforeAll(async () => {
    server = await startRedis({ settings: { "repl-diskless-sync-delay": 0 } });
    client = new Client(server.url());
    await using broker = redis({ url: server.url() });
    await broker.provision(["order.events"]);
  });
  afterAll(async () => {
    client?.disconnect();
    await server?.[Symbol.asyncDispose]();
  });

  test("nothing is bad of a healthy server", async () => {
    expect((await examine(server.url())).filter(({ verdict }) => verdict !== "good")).toEqual([]);
    const args = ["doctor", "--broker", server.url(), "--topics", "order.events", "--json"];
    const { code, stdout } = await inProcess(args, { cwd: tmpdir() });
    expect([code, JSON.parse(stdout)]).toEqual([0, expect.objectContaining({ broker: "redis", bad: 0, unknown: 0 })]);
  });

  test("a consumer's missing dead-letter topic is told by name, with the way out", async () => {
    const args = ["--broker", server.url(), "--topics", "order.events", "--consumer", "shipping", "--dead-topic", "{topic}.dead"];
    const { code, stdout, stderr } = await inProcess(["doctor", ...args], { cwd: tmpdir() });
    expect([code, stderr]).toEqual([1, expect.stringContaining("consumer dead-letter topic of order.events (I)")]);
    expect(stdout).toContain("create it with waybill migrate --broker URL --topics order.events.dead");
    const made = await inProcess(["migrate", "--broker", server.url(), "--topics", "order.events.dead"], { cwd: tmpdir() });
    expect(made.code, made.stderr).toBe(0);
    expect((await inProcess(["doctor", ...args], { cwd: tmpdir() })).code).toBe(0);
    await client.del("order.events.dead");
  });

  test.each<[name: string, planted: string, healthy: string, bad: readonly string[]]>([
    ["appendonly", "no", "yes", ["appendonly L"]],
    ["appendfsync", "everysec", "always", ["appendfsync L"]],
    ["no-appendfsync-on-rewrite", "yes", "no", ["no-appendfsync-on-rewrite L"]],
  ])("%s %s is found, and nothing else", async (name, planted, healthy, bad) => {
    await client.config("SET", name, planted);
    expect(badOf(await examine(server.url()))).toEqual(bad);
    await client.config("SET", name, healthy);
    expect(badOf(await examine(server.url()))).toEqual([]);
  });

  test("eviction is found where there is a limit", async () => {
    await client.config("SET", "maxmemory", "100mb");
    await client.config("SET", "maxmemory-policy", "allkeys-lru");
    expect(badOf(await examine(server.url()))).toEqual(["maxmemory-policy L"]);
    await client.config("SET", "maxmemory-policy", "noeviction");
    await client.config("SET", "maxmemory", "0");
  });

  test("a stream that is not there, another kind of key and one that expires are found", async () => {
    await client.set("user.events", "text");
    await client.xadd("gone.events", "*", "a", "b");
    await client.expire("gone.events", 1_000);
    expect(badOf(await examine(server.url(), {}, ["no.events", "user.events", "gone.events"]))).toEqual([
      "stream of no.events L",
      "stream of user.events L",
      "expiry of gone.events L",
    ]);
  });

  test("a replica is found, and so is a primary whose replicas nobody waits for", async () => {
    await using second = await startRedis({ settings: { replicaof: `127.0.0.1 ${server.port}` } });
    await until(async () => (await client.info("replication")).includes("state=online"));
    expect(badOf(await examine(second.url()))).toEqual(["role L"]);
    expect(badOf(await examine(server.url()))).toEqual(["min-replicas-to-write L"]);
    expect(badOf(await examine(server.url(), { replicas: 1 }))).toEqual(["min-replicas-to-write D"]);
    await client.config("SET", "min-replicas-to-write", "1");
    expect(badOf(await examine(server.url(), { replicas: 1 }))).toEqual([]);
    await client.config("SET", "min-replicas-to-write", "0");
  });

  test("what a user may not ask is unknown, and no secret is told", async () => {
    await client.call("ACL", "SETUSER", "relay", "on", ">s3cret", "~order.events", "+type", "+xadd", "+auth");
    const url = server.url().replace("redis://", "redis://relay:s3cret@");
    const findings = await examine(url);
    expect(badOf(findings)).toEqual([]);
    expect(findings.filter(({ verdict }) => verdict === "unknown").map(({ setting }) => setting)).toEqual([
      ...["redis_version", "role", "appendonly", "appendfsync", "no-appendfsync-on-rewrite", "maxmemory-policy", "min-replicas-to-write"],
      "expiry of order.events",
    ]);
    const { code, stdout, stderr } = await inProcess(["doctor", "--broker", url, "--topics", "order.events"], { cwd: tmpdir() });
    expect(code).toBe(0);
    expect(stdout + stderr).not.toContain("s3cret");
  });
});
