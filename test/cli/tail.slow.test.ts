import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { memoryBroker } from "../../src/brokers/memory/index.ts";
import { isAtLeast } from "../../src/core/finding.ts";
import { createRelay } from "../../src/relay/create-relay.ts";
import { grants } from "../../src/stores/postgres/grants.ts";
import { postgres } from "../../src/stores/postgres/index.ts";
import { namesOf } from "../../src/stores/postgres/names.ts";
import { describeWith } from "../servers/available.ts";
import { startPgBouncer } from "../servers/pgbouncer.ts";
import type { Postgres } from "../servers/postgres.ts";
import { startLogged } from "../stores/postgres-log/harness.ts";
import { until } from "./build.ts";
import { inProcess } from "./in-process.ts";

interface Answer {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

for (const [name, version] of [
  ["postgres", 15],
  ["postgres18", 18],
] as const)
  await describeWith(name, `waybill tail on PostgreSQL ${version}`, () => {
    let server: Postgres;
    let pool: pg.Pool;
    let cwd = "";

    beforeAll(async () => {
      cwd = mkdtempSync(join(tmpdir(), "waybill-tail-"));
      writeFileSync(join(cwd, "tail.json"), JSON.stringify({ mode: "tail" }));
      server = await startLogged(version);
      pool = new pg.Pool({ connectionString: server.url(), max: 4 });
      pool.on("error", () => undefined);
      await using store = postgres({ url: server.url() });
      await store.schema.migrate();
      for (const role of ["writer", "relay", "subscriber", "operator"]) await pool.query(`CREATE ROLE waybill_${role} LOGIN`);
      await pool.query(grants(namesOf("public"), false));
    });
    afterAll(async () => {
      await pool?.end();
      await server?.[Symbol.asyncDispose]();
      rmSync(cwd, { recursive: true, force: true });
    });

    const at = (url: string, ...args: readonly string[]): Promise<Answer> => inProcess([...args, "--store", url], { cwd });
    const waybill = (...args: readonly string[]): Promise<Answer> => at(server.url(), ...args);
    const as = (role: string): string => server.url().replace("postgres@", `${role}@`);
    const json = async (...args: readonly string[]): Promise<Record<string, unknown>> =>
      JSON.parse((await waybill(...args, "--json")).stdout) as Record<string, unknown>;
    const kept = async (): Promise<readonly string[]> => {
      const { rows } = await pool.query<{ name: string }>(
        "SELECT 'slot' AS name FROM pg_replication_slots UNION ALL SELECT 'publication' FROM pg_publication ORDER BY 1",
      );
      return rows.map((row) => row.name);
    };

    test("setup makes publication and slot once, and drop removes them after a yes", { timeout: 60_000 }, async () => {
      expect((await waybill("tail", "status")).stdout).toMatch(/^log +no relay reads it: relays poll\nslot +there is none\n/);
      const first = await waybill("tail", "setup");
      expect(first.stdout).toMatch(/^Made the publication waybill_\w+ and the replication slot waybill_\w+\.\nThe server keeps its log/);
      expect((await waybill("tail", "setup")).stdout).toMatch(/^Nothing was missing: /);
      expect(await json("tail", "status")).toMatchObject({
        ...{ mode: "poll", relay: null, floor: "0" },
        slot: { state: "unread", confirmed: expect.stringMatching(/^[0-9A-F]+\/[0-9A-F]+$/) as string, safeBytes: null },
      });
      for (const not of [[], ["--dry-run"]]) {
        const { stdout } = await waybill("tail", "drop", ...not);
        expect(stdout).toMatch(
          /^Would drop the publication .* and the replication slot .*\nA relay with --mode tail .*\nNothing was changed\./,
        );
        expect(await kept()).toEqual(["publication", "slot"]);
      }
      expect((await waybill("tail", "drop", "--yes")).stdout).toMatch(/^Dropped the publication /);
      expect(await kept()).toEqual([]);
      expect((await waybill("tail", "drop", "--yes")).stdout).toBe("There is neither a slot nor a publication.\n");
      expect((await waybill("tail", "resync")).stdout).toMatch(/^There is no slot\./);
    });

    test("what setup prints writes nothing, and lets the relay's role read the log", { timeout: 60_000 }, async () => {
      const refused = await at(as("waybill_relay"), "tail", "setup");
      expect(refused).toMatchObject({ code: 1, stdout: "" });
      expect(refused.stderr).toMatch(/^waybill: .*\n.*\[LOG_UNREADABLE\]\n$/);
      const { stdout } = await at(as("waybill_relay"), "tail", "setup", "--print");
      expect(await kept()).toEqual([]);
      await pool.query(stdout);
      expect(await kept()).toEqual(["publication"]);
      expect(await at(as("waybill_relay"), "tail", "setup")).toMatchObject({ code: 0, stderr: "" });
      const other = await at(as("waybill_relay"), "tail", "drop", "--yes");
      expect(other).toMatchObject({ code: 1, stderr: expect.stringContaining("only its owner may drop the publication") as string });
      await pool.query("ALTER ROLE waybill_relay NOREPLICATION");
      expect(await waybill("tail", "drop", "--yes")).toMatchObject({ code: 0 });
      // The slot that step 4 shows serves as well.
      const [, publication = "", slot = ""] = /^(CREATE PUBLICATION [^;]+;)[^]*^-- (SELECT .*;)$/m.exec(stdout)!;
      await pool.query(publication);
      await pool.query(slot);
      expect((await waybill("tail", "setup")).stdout).toMatch(/^Nothing was missing: /);
      await waybill("tail", "drop", "--yes");
      await pool.query("ALTER SYSTEM RESET wal_level");
    });

    test("a relay that reads the log shows, and reads again after resync", { timeout: 90_000 }, async () => {
      await using store = postgres({ url: server.url() });
      const relay = createRelay({ store, sink: memoryBroker(), mode: "tail", relayId: "r", leaseMs: 2_000, housekeeping: false });
      await relay.start();
      const reads = async (): Promise<boolean> => ((await json("tail", "status"))["slot"] as { state: string }).state === "streaming";
      try {
        await until(reads);
        await pool.query("INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', 'o', 'Placed', '{}')");
        await until(async () => Number((await json("tail", "status"))["floor"]) > 0);
        const { rows } = await pool.query("SELECT o.status, e.state FROM outbox o JOIN outbox_events e USING (seq)");
        expect(rows).toEqual([{ status: "PENDING", state: "PUBLISHED" }]);
        expect((await waybill("tail", "status")).stdout).toMatch(
          /^log +r:\w+ reads it; events of the log up to \d+ are published\nslot +waybill_\w+: read\n/,
        );
        expect((await waybill("status")).stdout).toMatch(/^log +r:\w+ reads it; events of the log up to \d+ are published$/m);
        expect(await json("status")).toMatchObject({ tail: { relay: expect.stringMatching(/^r:/) as string } });
        expect((await waybill("tail", "setup")).stdout).toMatch(/^Nothing was missing: .*\nA process reads the log\.\n$/);
        expect((await waybill("tail", "drop")).stdout).toContain("A process reads the log now.");
        expect((await waybill("doctor")).stdout).toMatch(/^store +replication slot +waybill_\w+: read$/m);
        expect((await waybill("tail", "resync")).stdout).toMatch(
          /^Dropped the replication slot waybill_\w+\.\n.*makes a new slot by itself/,
        );
        await until(reads);
      } finally {
        await relay.drain();
      }
      expect(await json("tail", "status")).toMatchObject({ mode: "poll", relay: null, position: expect.stringContaining("/") as string });
      await waybill("tail", "drop", "--yes");
    });

    test("doctor looks at the log where one is asked for", { timeout: 60_000 }, async () => {
      expect((await waybill("doctor")).stdout).not.toContain("wal_level");
      const { code, stdout } = await waybill("doctor", "--config", "tail.json");
      expect(code).toBe(0);
      expect(stdout).toMatch(/store: max_slot_wal_keep_size = -1\n.*until the disk is full/);
      expect(stdout).toMatch(/connection to the log +open/);
      const plain = (await at(as("waybill_relay"), "doctor", "--config", "tail.json")).stdout;
      expect(plain).toMatch(/store: connection to the log = rights/);
      expect(plain).toMatch(/store: publication = none/);
    });
  });

await describeWith(["postgres", "pgbouncer"], "waybill tail behind PgBouncer", () => {
  test("names the log url where the pooler carries no log, and takes it", { timeout: 60_000 }, async () => {
    await using server = await startLogged(15);
    await using pooler = await startPgBouncer(server);
    const url = `postgres://postgres@127.0.0.1:${pooler.port}/postgres`;
    const cwd = mkdtempSync(join(tmpdir(), "waybill-tail-"));
    writeFileSync(join(cwd, "tail.json"), JSON.stringify({ mode: "auto" }));
    await using store = postgres({ url: server.url() });
    await store.schema.migrate();
    const doctor = ["doctor", "--config", "tail.json", "--store", url];
    const pooled = (await inProcess(doctor, { cwd })).stdout;
    const carries = isAtLeast(pooler.version, "1.23");
    expect(pooled).toMatch(carries ? /connection to the log +open/ : /connection to the log = link\n.*--log-url/);
    expect((await inProcess([...doctor, "--log-url", server.url()], { cwd })).stdout).toMatch(/connection to the log +open/);
    const setup = await inProcess(["tail", "setup", "--store", url], { cwd, env: { WAYBILL_LOG_URL: server.url() } });
    expect(setup).toMatchObject({ code: 0, stdout: expect.stringMatching(/^Made the publication/) as string });
    expect((await inProcess(["tail", "drop", "--yes", "--store", url], { cwd })).code).toBe(0);
    rmSync(cwd, { recursive: true });
  });
});
