import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { grants } from "../../src/stores/postgres/grants.ts";
import { postgres } from "../../src/stores/postgres/index.ts";
import { namesOf } from "../../src/stores/postgres/names.ts";
import { fingerprints } from "../../src/stores/postgres/schema.ts";
import { until } from "../cli/build.ts";
import { inProcess } from "../cli/in-process.ts";
import { available, describeWith } from "../servers/available.ts";
import { startPgBouncer } from "../servers/pgbouncer.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";
import { badOf } from "./recorded.ts";

const never = new AbortController().signal;

/** `setting letters` of everything bad, as a new connection sees it. */
async function badAt(url: string, options: object = {}): Promise<readonly string[]> {
  await using store = postgres({ url, connections: 1, ...options });
  return badOf(await store.examine!([], never));
}

/** As PostgreSQL 15 and later are by themselves. On 14, doctor finds the schema where every role may create functions. */
async function tighten(server: Postgres): Promise<void> {
  for (const database of ["postgres", "template1"]) {
    const admin = new pg.Client({ connectionString: server.url(database) });
    await admin.connect();
    await admin.query("REVOKE CREATE ON SCHEMA public FROM PUBLIC");
    await admin.end();
  }
}

await describeWith("postgres", "waybill doctor on PostgreSQL", () => {
  let server: Postgres;
  let pool: pg.Pool;

  beforeAll(async () => {
    server = await startPostgres({ version: 15 });
    pool = new pg.Pool({ connectionString: server.url(), max: 2 });
    pool.on("error", () => undefined);
    await tighten(server);
    const store = postgres({ url: server.url() });
    await store.schema.migrate();
    await store[Symbol.asyncDispose]();
    for (const role of ["writer", "relay", "subscriber", "operator"]) await pool.query(`CREATE ROLE waybill_${role} LOGIN`);
    await pool.query(grants(namesOf("public"), false));
  });
  afterAll(async () => {
    await pool?.end();
    await server?.[Symbol.asyncDispose]();
  });

  const as = (role: string): string => server.url().replace("postgres@", `${role}@`);

  test("nothing is bad of a healthy server, for its owner and for a relay with the least rights", async () => {
    expect(await badAt(server.url())).toEqual([]);
    expect(await badAt(as("waybill_relay"))).toEqual([]);
    const { code, stdout } = await inProcess(["doctor", "--store", as("waybill_relay")], { cwd: tmpdir() });
    expect({ code, first: stdout.split("\n")[0] }).toEqual({
      code: 0,
      first: expect.stringMatching(/^0 bad settings, 0 unknown, 1\d good\.$/) as string,
    });
  });

  test("nothing is bad of an outbox with partitions and names of its own", async () => {
    const options = { schema: 'The "schema"', names: { outbox: 'Out, "box"', prefix: "Way " }, partitions: "day" as const };
    await using store = postgres({ url: server.url(), connections: 1, ...options });
    await store.schema.migrate();
    expect(badOf(await store.examine!([], never))).toEqual([]);
    const { rows } = await pool.query<{ name: string }>(
      "SELECT inhrelid::regclass AS name FROM pg_inherits WHERE inhparent = $1::regclass AND inhrelid::regclass::text NOT LIKE '%default%' LIMIT 1",
      [`"The ""schema"""."Out, ""box"""`],
    );
    await pool.query(`ALTER TABLE ${rows[0]!.name} SET (autovacuum_enabled = off)`);
    expect(badOf(await store.examine!([], never))).toEqual(["autovacuum I"]);
  });

  test.each<[what: string, plant: string, undo: string, bad: readonly string[]]>([
    [
      "a database without durable commits",
      "ALTER DATABASE postgres SET synchronous_commit = off",
      "ALTER DATABASE postgres RESET synchronous_commit",
      ["synchronous_commit L"],
    ],
    [
      "a writer without durable commits",
      "ALTER ROLE waybill_writer SET synchronous_commit = off",
      "ALTER ROLE waybill_writer RESET synchronous_commit",
      ["synchronous_commit of role waybill_writer L"],
    ],
    [
      "read-only transactions",
      "ALTER ROLE postgres SET default_transaction_read_only = on",
      "SET default_transaction_read_only = off; ALTER ROLE postgres RESET default_transaction_read_only",
      ["default_transaction_read_only L"],
    ],
    ["a sequence with a cache", "ALTER SEQUENCE waybill_seq CACHE 20", "ALTER SEQUENCE waybill_seq CACHE 1", ["sequence O"]],
    [
      "a dropped index",
      "DROP INDEX outbox_pending",
      "CREATE INDEX outbox_pending ON outbox (lane, seq) WHERE status = 'PENDING' AND (available_at IS NULL OR next_attempt_at IS NOT NULL)",
      ["objects I"],
    ],
    ["a dropped unique index", "DROP INDEX outbox_id", "CREATE UNIQUE INDEX outbox_id ON outbox (id)", ["objects E"]],
    [
      "a unique index made anew without that",
      "DROP INDEX outbox_id; CREATE INDEX outbox_id ON outbox (id)",
      "DROP INDEX outbox_id; CREATE UNIQUE INDEX outbox_id ON outbox (id)",
      ["objects E"],
    ],
    [
      "a function under another name",
      "ALTER FUNCTION waybill_add(json) RENAME TO waybill_add2",
      "ALTER FUNCTION waybill_add2(json) RENAME TO waybill_add",
      ["objects L"],
    ],
    [
      "a trigger that is switched off",
      "ALTER TABLE outbox DISABLE TRIGGER waybill_key",
      "ALTER TABLE outbox ENABLE TRIGGER waybill_key",
      ["objects D"],
    ],
    [
      "numbers drawn from the sequence itself",
      "ALTER TABLE outbox ALTER seq SET DEFAULT nextval('waybill_seq')",
      "ALTER TABLE outbox ALTER seq SET DEFAULT CASE WHEN pg_current_xact_id() IS NULL THEN NULL ELSE nextval('waybill_seq') END",
      ["defaults O"],
    ],
    ["an unlogged table", "ALTER TABLE waybill_holds SET UNLOGGED", "ALTER TABLE waybill_holds SET LOGGED", ["persistence L"]],
    ["no vacuum", "ALTER TABLE outbox SET (autovacuum_enabled = false)", "ALTER TABLE outbox RESET (autovacuum_enabled)", ["autovacuum I"]],
    ["lanes without a row", "DELETE FROM waybill_lanes WHERE lane = 5", "INSERT INTO waybill_lanes (lane) VALUES (5)", ["lanes L"]],
    [
      "newer tables",
      "UPDATE waybill_meta SET version = 99",
      `UPDATE waybill_meta SET version = ${fingerprints.length}`,
      ["schema version L"],
    ],
    [
      "tables of an unreleased build",
      "UPDATE waybill_meta SET fingerprint = 'another'",
      `UPDATE waybill_meta SET fingerprint = '${fingerprints.at(-1)}'`,
      ["schema version L"],
    ],
  ])("%s is found, and nothing else", async (_, plant, undo, bad) => {
    await pool.query(plant);
    try {
      expect(await badAt(server.url())).toEqual(bad);
    } finally {
      await pool.query(undo);
    }
    expect(await badAt(server.url())).toEqual([]);
  });

  test.each<[what: string, plant: string, undo: string, bad: readonly string[]]>([
    [
      "a right that was taken",
      "REVOKE DELETE ON outbox FROM waybill_relay",
      "GRANT DELETE ON outbox TO waybill_relay",
      ["rights of role waybill_relay L"],
    ],
    [
      "the right to settle",
      "REVOKE UPDATE (published_at) ON outbox FROM waybill_relay",
      "GRANT UPDATE (published_at) ON outbox TO waybill_relay",
      ["rights of role waybill_relay L"],
    ],
    [
      "tables that it may not read",
      "REVOKE SELECT ON waybill_meta, waybill_lanes FROM waybill_relay",
      "GRANT SELECT ON waybill_meta, waybill_lanes TO waybill_relay",
      ["rights of role waybill_relay L"],
    ],
    [
      "policies that hide rows",
      "ALTER TABLE outbox ENABLE ROW LEVEL SECURITY",
      "ALTER TABLE outbox DISABLE ROW LEVEL SECURITY",
      ["row security LV"],
    ],
  ])("%s is found for a relay, and nothing else", async (_, plant, undo, bad) => {
    await pool.query(plant);
    try {
      expect(await badAt(as("waybill_relay"))).toEqual(bad);
    } finally {
      await pool.query(undo);
    }
  });

  test("a database without tables is told, and gets none", async () => {
    expect(await badAt(server.url("template1"))).toEqual(["schema version L"]);
    expect(await badAt(server.url("template1"))).toEqual(["schema version L"]);
  });

  test("a standby that nobody waits for is found", async ({ skip }) => {
    const program = join(server.bin, "pg_receivewal");
    if (!existsSync(program)) skip("this PostgreSQL comes without pg_receivewal");
    const folder = mkdtempSync(join(tmpdir(), "waybill-wal-"));
    const args = ["-D", folder, "-h", "127.0.0.1", "-p", String(server.port), "-U", "postgres", "--no-loop"];
    const follower = spawn(program, args, { stdio: "ignore" });
    const ended = new Promise((resolve) => follower.once("close", resolve));
    try {
      await until(async () => (await pool.query("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'")).rowCount === 1);
      expect(await badAt(as("waybill_relay"))).toEqual(["synchronous_standby_names L"]);
    } finally {
      follower.kill("SIGTERM");
      await ended;
      rmSync(folder, { recursive: true, force: true });
    }
  });

  test("nothing is different through PgBouncer", async ({ skip }) => {
    if ((await available("pgbouncer")) !== null) skip("PgBouncer is not to be had");
    await using bouncer = await startPgBouncer(server);
    expect(await badAt(bouncer.url())).toEqual([]);
    await pool.query("ALTER TABLE waybill_holds SET UNLOGGED");
    expect(await badAt(bouncer.url())).toEqual(["persistence L"]);
    await pool.query("ALTER TABLE waybill_holds SET LOGGED");
  });

  test("settings that only a start can change are found, and told by the command without a secret", async () => {
    await using careless = await startPostgres({ version: 15, settings: { fsync: "off", full_page_writes: "off", autovacuum: "off" } });
    await tighten(careless);
    const url = careless.url().replace("postgres@", "postgres:s3cret@");
    const store = postgres({ url });
    await store.schema.migrate();
    await store[Symbol.asyncDispose]();
    expect(await badAt(url)).toEqual(["fsync L", "full_page_writes L", "autovacuum I"]);
    const { code, stdout, stderr } = await inProcess(["doctor", "--store", url], { cwd: tmpdir() });
    expect(code).toBe(1);
    expect(stdout).toMatch(/store: fsync = off, breaks L \(no loss\)\n {4}A machine that loses its power/);
    expect(stdout + stderr).not.toContain("s3cret");
  });
});
