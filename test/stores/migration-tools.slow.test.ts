import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { drizzle } from "drizzle-orm/node-postgres";
import { migrate } from "drizzle-orm/node-postgres/migrator";
import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { postgres } from "../../src/stores/postgres/index.ts";
import { inProcess } from "../cli/in-process.ts";
import { describeWith } from "../servers/available.ts";
import { startPostgres } from "../servers/postgres.ts";
import type { Server } from "../servers/server.ts";

await describeWith("postgres", "migrate --print for a migration tool", () => {
  let server: Server;
  let folder: string;
  let pool: pg.Pool;
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), "waybill-tools-"));
    server = await startPostgres({ version: 15 });
    pool = new pg.Pool({ connectionString: server.url() });
  });
  afterAll(async () => {
    await pool.end();
    await server[Symbol.asyncDispose]();
    rmSync(folder, { recursive: true, force: true });
  });

  /** The statements, of a server that is not there: printing asks none. */
  async function printed(...flags: readonly string[]): Promise<string> {
    writeFileSync(join(folder, "waybill.config.json"), JSON.stringify({ store: "postgres://nobody@127.0.0.1:1/none", schema: "waybill" }));
    const { code, stdout, stderr } = await inProcess(["migrate", "--print", ...flags], { cwd: folder });
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    return stdout;
  }

  test("Drizzle's migrator runs it as one of its files, beside others, and rolls it back with them", async () => {
    const files: Record<string, string> = {
      "0000_orders": "CREATE TABLE orders (id text PRIMARY KEY);",
      "0001_waybill": await printed(),
    };
    const kit = async (more: Record<string, string>): Promise<void> => {
      const all = Object.entries({ ...files, ...more });
      mkdirSync(join(folder, "drizzle/meta"), { recursive: true });
      for (const [tag, sql] of all) writeFileSync(join(folder, "drizzle", `${tag}.sql`), sql);
      const entries = all.map(([tag], idx) => ({ idx, version: "7", when: 1_800_000_000_000 + idx, tag, breakpoints: true }));
      writeFileSync(join(folder, "drizzle/meta/_journal.json"), JSON.stringify({ version: "7", dialect: "postgresql", entries }));
      await migrate(drizzle(pool), { migrationsFolder: join(folder, "drizzle") });
    };
    const store = postgres({ pool, schema: "waybill" });
    await expect(kit({ "0002_wrong": "CREATE TABLE orders (id text);" })).rejects.toThrow();
    await expect(store.schema.check()).rejects.toMatchObject({ code: "NOT_MIGRATED" });
    await kit({});
    await store.schema.check();
    await kit({});
    expect(await store.schema.migrate()).toEqual([]);
  });

  test("grants are apart, and run after the tables", async () => {
    expect(await printed()).not.toMatch(/ TO waybill_/);
    for (const role of ["writer", "relay", "subscriber", "operator"]) await pool.query(`CREATE ROLE waybill_${role}`);
    await pool.query(await printed("--grants"));
    const { rows } = await pool.query("SELECT has_table_privilege('waybill_relay', 'waybill.outbox', 'SELECT') AS may");
    expect(rows).toEqual([{ may: true }]);
  });
});
