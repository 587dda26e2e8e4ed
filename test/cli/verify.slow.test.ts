import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { RunReport } from "../../src/cli/verify/report.ts";
import { describeWith } from "../servers/available.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";
import { startRedis, type RedisServer } from "../servers/redis.ts";
import { respAt } from "../support/resp.ts";
import { cli } from "./build.ts";

await describeWith(["postgres", "redis"], "waybill verify on PostgreSQL and Redis", () => {
  let database: Postgres;
  let broker: RedisServer;
  let folder: string;
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), "waybill-verify-slow-"));
    [database, broker] = await Promise.all([startPostgres({ version: 15 }), startRedis({ settings: { requirepass: "swordfish-7" } })]);
  });
  afterAll(async () => {
    await Promise.all([database[Symbol.asyncDispose](), broker[Symbol.asyncDispose]()]);
    rmSync(folder, { recursive: true, force: true });
  });

  test("breaks both networks and kills processes, every promise holds, nothing is left behind and no password is told", async () => {
    const url = broker.url().replace("redis://", "redis://:swordfish-7@");
    const args = ["verify", "--store", database.url(), "--broker", url, "--minutes", "0.4", "--seed", "3", "--report", "report.html"];
    const told = await cli(args, { cwd: folder });
    expect(told, told.stdout + told.stderr).toMatchObject({ code: 0, stderr: "" });
    expect(told.stdout).toMatch(/the link to the (store|broker): (black hole|cut|latency|reset)/);
    const json = readFileSync(join(folder, "report.json"), "utf8");
    const report = JSON.parse(json) as RunReport;
    expect(report).toMatchObject({ held: true, broker: expect.stringContaining("redis://***@") as string });
    expect(report.counts.events).toBeGreaterThan(200);
    expect(new Set(report.timeline.faults.map(({ fault }) => fault)).size).toBeGreaterThan(3);
    for (const text of [told.stdout, json, readFileSync(join(folder, "report.html"), "utf8")]) expect(text).not.toContain("swordfish");

    const client = new pg.Client({ connectionString: database.url() });
    await client.connect();
    const { rows } = await client.query("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'verify%'");
    await client.end();
    expect(rows).toEqual([]);
    expect(await respAt(url, ["KEYS", "*"]), "groups go with their streams").toEqual([[]]);
  });
});
