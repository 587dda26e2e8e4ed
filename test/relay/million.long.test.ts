import { readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { expect, test } from "vitest";
import { cli, start, until } from "../cli/build.ts";
import { describeWith } from "../servers/available.ts";
import { startPostgres } from "../servers/postgres.ts";
import { startRedis } from "../servers/redis.ts";
import { respAt } from "../support/resp.ts";

const events = 1_000_000;
const aggregates = 1_000;
const topic = "order.events";

await describeWith(["postgres", "redis"], "a million events that wait", () => {
  test("are published once each, every aggregate's in order, by a relay that stays as small as it is", { timeout: 900_000 }, async () => {
    await using database = await startPostgres({ version: 15, settings: { max_wal_size: "4GB" } });
    await using broker = await startRedis({ settings: { appendfsync: "everysec" } });
    const folder = await mkdtemp(join(tmpdir(), "waybill-million-"));
    const db = new pg.Client({ connectionString: database.url() });
    await db.connect();
    try {
      const urls = ["--store", database.url(), "--broker", broker.url()];
      const migrated = await cli(["migrate", ...urls, "--topics", topic], { cwd: folder });
      expect(migrated).toMatchObject({ code: 0 });
      await db.query(
        `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
         SELECT 'Order', 'order-' || (i % $2::int), 'OrderPlaced', json_build_object('n', i / $2::int, 'text', repeat('x', 250))::text
         FROM generate_series(0, $1::int - 1) i`,
        [events, aggregates],
      );
      const waiting = async (): Promise<boolean> =>
        (await db.query("SELECT 1 FROM outbox WHERE status <> 'PUBLISHED' LIMIT 1")).rowCount === 1;

      const { child, result } = await start(["relay", ...urls], { cwd: folder });
      await until(async () => {
        await new Promise((resolve) => setTimeout(resolve, 500));
        return !(await waiting());
      }, 800_000);
      const peakMiB = Number(/VmHWM:\s+(\d+) kB/.exec(readFileSync(`/proc/${child.pid}/status`, "utf8"))![1]) / 1024;
      child.kill("SIGTERM");
      expect((await result).code).toBe(0);

      const next = new Map<string, number>();
      let read = 0;
      for (let from = "-"; ;) {
        const [page] = (await respAt(broker.url(), ["XRANGE", topic, from, "+", "COUNT", "500"])) as [[string, string[]][]];
        for (const [, fields] of page) {
          const of = (name: string): string => fields[fields.indexOf(name) + 1]!;
          const key = of("ce_partitionkey");
          const n = (JSON.parse(of("data")) as { n: number }).n;
          if (n !== (next.get(key) ?? 0)) throw new Error(`${key} has ${n} where ${next.get(key) ?? 0} was expected`);
          next.set(key, n + 1);
          read += 1;
        }
        const last = page.at(-1);
        if (last === undefined) break;
        from = `(${last[0]}`;
      }
      expect(read).toBe(events);
      expect(peakMiB).toBeLessThan(350);
      console.log(`the relay had ${Math.round(peakMiB)} MiB at most`);
    } finally {
      await db.end();
      await rm(folder, { recursive: true, force: true });
    }
  });
});
