import { cpSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import pg from "pg";
import { afterEach, expect, test } from "vitest";
import { until } from "./cli/build.ts";
import { pack } from "./quick-start/follow.ts";
import { openTerminal, type Terminal } from "./quick-start/terminal.ts";
import { describeWith } from "./servers/available.ts";
import { startKafka } from "./servers/kafka.ts";
import { startNats } from "./servers/nats.ts";
import { freePort } from "./servers/place.ts";
import { startPostgres } from "./servers/postgres.ts";
import { startRabbitmq } from "./servers/rabbitmq.ts";

const root = fileURLToPath(new URL("../", import.meta.url));
const patienceMs = 120_000;
const cleanups: (() => unknown)[] = [];

afterEach(async () => {
  for (const clean of cleanups.splice(0).reverse()) await clean();
});

const projects = [
  { name: "fastify-drizzle-jetstream", broker: "nats", start: startNats, outbox: "outbox", migration: null },
  {
    name: "express-prisma-rabbitmq",
    broker: "rabbitmq",
    start: startRabbitmq,
    outbox: "waybill.outbox",
    // `prisma migrate deploy` needs an engine that is downloaded when it is first run: its file is run by hand here.
    migration: "prisma/migrations/0001_shop/migration.sql",
  },
  { name: "nestjs-typeorm-kafka", broker: "kafka", start: startKafka, outbox: "outbox", migration: null },
] as const;

for (const project of projects) {
  await describeWith(["postgres", project.broker], `examples/${project.name}`, () => {
    test("installed from the packed package, with each process killed once, it ends with as many events and parcels as orders", async () => {
      const folder = mkdtempSync(join(tmpdir(), "waybill-project-"));
      cleanups.push(() => rmSync(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 }));
      const database = await startPostgres({ version: 15 });
      cleanups.push(() => database[Symbol.asyncDispose]());
      const broker = await project.start();
      cleanups.push(() => broker[Symbol.asyncDispose]());
      const port = await freePort();
      const env = {
        ...{ DATABASE_URL: database.url(), BROKER_URL: broker.url(), PORT: String(port) },
        ...{ PRISMA_SCHEMA_ENGINE_BINARY: process.execPath, CHECKPOINT_DISABLE: "1" },
      };
      const tarball = await pack(folder);
      cpSync(join(root, "examples", project.name), folder, { recursive: true });
      const run = async (line: string): Promise<void> => {
        const terminal = openTerminal(line, folder, env);
        expect(await terminal.ended, `${line}\n${terminal.shown()}`).toEqual({ code: 0, signal: null });
      };
      await run(`npm install --ignore-scripts ./${basename(tarball)}`);
      await run("npm run build");
      const pool = new pg.Pool({ connectionString: database.url() });
      cleanups.push(() => pool.end());
      if (project.migration !== null) await pool.query(readFileSync(join(folder, project.migration), "utf8"));
      await run("npx waybill migrate --consumers shipping");

      const count = async (table: string): Promise<number> =>
        Number((await pool.query<{ n: string }>(`SELECT count(*) AS n FROM ${table}`)).rows[0]!.n);
      const terminals = new Map<string, Terminal>();
      const ready = {
        "node_modules/.bin/waybill relay": /won 64 lanes/,
        "node dist/shipping.js": /started/,
        "node dist/orders.js": /listening/,
      };
      const open = async (line: keyof typeof ready): Promise<void> => {
        const terminal = openTerminal(line, folder, env);
        terminals.set(line, terminal);
        cleanups.push(() => (terminal.send("SIGKILL"), terminal.ended));
        const ended = { is: false };
        void terminal.ended.then(() => (ended.is = true));
        await until(() => ready[line].test(terminal.shown()) || ended.is, patienceMs);
        expect(ended, `${line}\n${terminal.shown()}`).toEqual({ is: false });
      };
      const lines = Object.keys(ready) as (keyof typeof ready)[];
      for (const line of lines) await open(line);

      // Requests go on all the while; those of a service that is being killed fail.
      let taking = true;
      const post = (total: number): Promise<number | null> =>
        fetch(`http://127.0.0.1:${port}/orders`, {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: JSON.stringify({ total }),
        }).then(
          ({ status }) => status,
          () => null,
        );
      expect(await post(-1)).toBe(400);
      const requests = (async () => {
        while (taking) {
          await post(4200);
          await new Promise((resolve) => setTimeout(resolve, 30));
        }
      })();
      cleanups.push(() => ((taking = false), requests));
      for (const line of lines) {
        const before = await count("parcels");
        await until(async () => (await count("parcels")) >= before + 10, patienceMs);
        const killed = terminals.get(line)!;
        killed.send("SIGKILL");
        await killed.ended;
        await open(line);
      }
      const before = await count("parcels");
      await until(async () => (await count("parcels")) >= before + 10, patienceMs);
      taking = false;
      await requests;

      const orders = await count("orders");
      await until(async () => (await count("parcels")) >= orders, patienceMs);
      for (const [line, terminal] of terminals) {
        terminal.send("SIGTERM");
        expect(await terminal.ended, `${line}\n${terminal.shown()}`).toEqual({ code: 0, signal: null });
      }
      expect([await count(project.outbox), await count("parcels")]).toEqual([orders, orders]);
    });
  });
}
