import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, expect, test } from "vitest";
import { defaultDriver } from "../../src/drivers/sqlite/driver.ts";
import { subject as kafka } from "../brokers/kafka.ts";
import { subject as nats } from "../brokers/nats.ts";
import { subject as rabbitmq } from "../brokers/rabbitmq.ts";
import { subject as redis } from "../brokers/redis.ts";
import { freshType } from "../brokers/kit/subject.ts";
import { built, cli, until, type Result } from "../cli/build.ts";
import { createProcesses } from "../faults/processes.ts";
import { describeWith } from "../servers/available.ts";
import { evaluate, samplesOf, type Sample } from "./promql.ts";
import { exprOf } from "./rules.ts";

let folder = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "waybill-gone-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const run = (...args: readonly string[]): Promise<Result> => cli(args, { cwd: folder });

async function ok(...args: readonly string[]): Promise<void> {
  const result = await run(...args);
  expect(result, `${result.stdout}${result.stderr}`).toMatchObject({ code: 0 });
}

async function count(sql: string): Promise<number> {
  const db = (await defaultDriver())(join(folder, "shop.db"));
  try {
    db.exec("PRAGMA busy_timeout = 10000");
    return Number((db.prepare(sql).all() as Record<string, unknown>[])[0]!["n"]);
  } finally {
    db.close();
  }
}

/** All subscribers are killed while events wait: within half a minute, everything that an operator looks at says so. */
async function deadSubscriber(url: string, module: string, options: object): Promise<void> {
  const main = await built();
  const { aggregateType, topic } = freshType();
  const store = ["--store", "sqlite:shop.db"];
  const broker = ["--broker", url];
  await ok("migrate", ...store, ...broker, "--topics", topic, "--consumers", "shipping");
  const processes = createProcesses(folder);
  const add = async (events: number): Promise<void> => {
    for (let n = 0; n < events; n++)
      await ok(
        "events",
        "add",
        ...store,
        "--aggregate-type",
        aggregateType,
        "--aggregate-id",
        `o-${n}`,
        "--type",
        "Placed",
        "--payload",
        "{}",
      );
  };
  try {
    const relay = processes.run("relay", [main, "relay", ...store, ...broker, "--http", "127.0.0.1:0", "--json"]);
    const { http } = (await relay.told("that it has started", ({ type }) => type === "relay.started")) as { http: string };
    const child = fileURLToPath(new URL("child.mjs", import.meta.url));
    const subscriber = processes.run("subscriber", [child, JSON.stringify({ module, options, path: join(folder, "shop.db"), topic })]);
    await subscriber.ready();
    const samples = async (): Promise<readonly Sample[]> => samplesOf(await (await fetch(`${http}/metrics`)).text());
    const one = async (name: string): Promise<number | undefined> =>
      (await samples()).find((of) => of.name === name && of.labels["consumer"] === "shipping" && of.labels["topic"] === topic)?.value;
    const firing = async (): Promise<readonly unknown[]> => evaluate(exprOf("WaybillConsumerGone"), await samples());

    await add(1);
    await until(async () => (await count("SELECT count(*) AS n FROM inbox")) === 1);
    await until(async () => (await one("waybill_lag_messages")) === 0);
    expect(await one("waybill_consumer_running")).toBe(1);
    expect(await firing()).toEqual([]);
    expect((await run("status", ...store, ...broker)).stdout).toMatch(/^all is well: 1 relay runs, nothing waits/);
    const check = [...store, ...broker, "--check", "--consumer", "shipping", "--topic", topic, "--max-age", "10s"];
    await ok("status", ...check);

    await subscriber.kill();
    const killed = performance.now();
    await add(6);
    await until(async () => (await count("SELECT count(*) AS n FROM outbox WHERE status = 'PUBLISHED'")) === 7);
    const gone = `shipping is 6 messages behind on ${topic}, and no subscriber of it has run for `;
    await until(async () => (await run("status", ...store, ...broker)).stdout.includes(gone));
    await until(async () => (await run("status", ...check)).code === 1);
    await until(async () => (await firing()).length > 0);
    expect(performance.now() - killed).toBeLessThan(30_000);

    expect(await firing()).toEqual([{ labels: { consumer: "shipping", topic }, value: 6 }]);
    expect(await one("waybill_consumer_running")).toBe(0);
    expect((await run("status", ...check)).stderr).toContain(gone);
    for (const more of [[], broker]) {
      const { code, stdout, stderr } = await run("status", ...store, "--check", "--max-age", "10s", ...more);
      expect([code, stdout]).toEqual([1, ""]);
      expect(stderr).toMatch(/no subscriber of it has run for .*NEEDS_ATTENTION/s);
      expect((await run("status", ...store, ...more)).stdout).not.toContain("all is well");
    }
  } catch (error) {
    throw new Error(`${String(error)}\n${processes.story()}`, { cause: error });
  } finally {
    await processes.end();
  }
}

const says = "subscribers that are killed while events wait show within 30 s in status, its check, the relay's page and a rule";

test(`${says}, on the embedded broker`, async () => {
  await deadSubscriber("embedded:broker.db", "brokers/embedded/index.js", { path: join(folder, "broker.db") });
});

for (const subject of [kafka, rabbitmq, nats, redis]) {
  await describeWith(subject.name, subject.name, () => {
    test(says, async () => {
      const server = await subject.start();
      try {
        await deadSubscriber(server.url(), subject.module, { url: server.url() });
      } finally {
        await server[Symbol.asyncDispose]();
      }
    });
  });
}
