import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { describeWith } from "../servers/available.ts";
import { startKafka } from "../servers/kafka.ts";
import { startNats } from "../servers/nats.ts";
import { startPostgres } from "../servers/postgres.ts";
import { startRabbitmq } from "../servers/rabbitmq.ts";
import { startRedis } from "../servers/redis.ts";
import type { Server } from "../servers/server.ts";
import { follow, pack } from "./follow.ts";
import { titleOf } from "./pages.ts";
import type { Broker, Stack } from "./stacks.ts";

/** By their names under `waybill/`. */
export const starts = { rabbitmq: startRabbitmq, nats: startNats, kafka: startKafka, redis: startRedis };

/** The page as a reader has it who uses another broker: the words of its row in place of the first one's, as the page says. */
function rewritten(page: string, from: string, to: string): string {
  const rows = [...page.matchAll(/^\| \[(.+)\]\(.+\) \|(.+)\|$/gm)].map(
    ([, title = "", cells = ""]) => [title, [...cells.matchAll(/`([^`]+)`/g)].map(([, word]) => word!)] as const,
  );
  const [before, after] = [from, to].map((title) => rows.find(([of]) => of === title)![1]);
  expect(new Set([before!.length, after!.length])).toEqual(new Set([4]));
  const [head, ...steps] = page.split("## 1. Servers");
  return [head, before!.reduce((text, word, at) => text.replaceAll(word, after![at]!), steps.join("## 1. Servers"))].join("## 1. Servers");
}

/** Tests that follow a stack's quick start on servers of their own, with each of its brokers. */
export async function testQuickStart(stack: Stack): Promise<void> {
  for (const broker of [stack.broker, ...(stack.others ?? [])]) await testWith(stack, broker);
}

async function testWith(stack: Stack, { factory, title }: Broker): Promise<void> {
  const name = factory as keyof typeof starts;
  await describeWith(["postgres", name], `quick start: ${titleOf(stack)}, on ${title}`, () => {
    let servers: readonly [Server, Server];
    let folder: string;
    beforeAll(async () => {
      folder = mkdtempSync(join(tmpdir(), "waybill-packed-"));
      servers = await Promise.all([startPostgres({ version: 15 }), starts[name]()]);
    });
    afterAll(async () => {
      for (const server of servers) await server[Symbol.asyncDispose]();
      rmSync(folder, { recursive: true, force: true });
    });

    test("followed to the letter, with each process killed once, it ends with as many events and parcels as orders", async () => {
      const [database, broker] = servers;
      const counts = await follow(stack.page, await pack(folder), { DATABASE_URL: database.url(), BROKER_URL: broker.url() }, (page) =>
        title === stack.broker.title ? page : rewritten(page, stack.broker.title, title),
      );
      expect(counts["orders"]).toBeGreaterThan(30);
      expect(counts).toEqual({ orders: counts["orders"], outbox: counts["orders"], parcels: counts["orders"] });
    });
  });
}
