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
import type { Stack } from "./stacks.ts";

const starts = { rabbitmq: startRabbitmq, nats: startNats, kafka: startKafka, redis: startRedis };

/** A test that follows a stack's quick start on servers of its own. */
export async function testQuickStart(stack: Stack): Promise<void> {
  const name = stack.broker.factory as keyof typeof starts;
  await describeWith(["postgres", name], `quick start: ${titleOf(stack)}`, () => {
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
      const counts = await follow(stack.page, await pack(folder), { DATABASE_URL: database.url(), BROKER_URL: broker.url() });
      expect(counts["orders"]).toBeGreaterThan(30);
      expect(counts).toEqual({ orders: counts["orders"], outbox: counts["orders"], parcels: counts["orders"] });
    });
  });
}
