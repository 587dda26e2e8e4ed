import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import mysql2 from "mysql2/promise";
import pg from "pg";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { embedded } from "../../src/brokers/embedded/index.ts";
import { sampleEvent } from "../../src/conformance/corpus.ts";
import type { Store } from "../../src/contracts/store.ts";
import { mysql } from "../../src/stores/mysql/index.ts";
import { postgres } from "../../src/stores/postgres/index.ts";
import { built } from "../cli/build.ts";
import { describeWith } from "../servers/available.ts";
import { startMariadb } from "../servers/mariadb.ts";
import { startPostgres } from "../servers/postgres.ts";
import type { Server } from "../servers/server.ts";

const program = fileURLToPath(new URL("letters-child.mjs", import.meta.url));
const topic = "order.events";
const consumer = "shipping";
const count = 3_000;

/** What the two databases have in common for these cases. */
interface Place {
  readonly name: "postgres" | "mariadb";
  start(): Promise<Server>;
  url(server: Server): string;
  open(url: string, statementTimeoutMs?: number): Store<never, never>;
  ask(url: string): Promise<{ ask(sql: string): Promise<readonly Record<string, unknown>[]>; end(): Promise<void> }>;
}

const places: readonly Place[] = [
  {
    name: "postgres",
    start: () => startPostgres({ version: 15 }),
    url: (server) => server.url(),
    open: (url, statementTimeoutMs = 30_000) => postgres({ url, statementTimeoutMs }) as unknown as Store<never, never>,
    async ask(url) {
      const client = new pg.Client({ connectionString: url });
      client.on("error", () => undefined);
      await client.connect();
      return { ask: async (sql) => (await client.query<Record<string, unknown>>(sql)).rows, end: () => client.end() };
    },
  },
  {
    name: "mariadb",
    start: () => startMariadb(),
    url: (server) => server.url("letters"),
    open: (url, statementTimeoutMs = 30_000) => mysql({ url, statementTimeoutMs }) as unknown as Store<never, never>,
    async ask(url) {
      const client = await mysql2.createConnection(url);
      return { ask: async (sql) => (await client.query(sql))[0] as Record<string, unknown>[], end: () => client.end() };
    },
  },
];

for (const place of places)
  await describeWith(place.name, `operators of letters on ${place.name}`, () => {
    let server: Server;
    let url: string;
    let sql: Awaited<ReturnType<Place["ask"]>>;
    let folder: string;
    const children: ChildProcess[] = [];

    beforeAll(async () => {
      await built();
      server = await place.start();
      url = place.url(server);
      folder = mkdtempSync(join(tmpdir(), "waybill-operators-"));
      if (place.name === "mariadb") {
        const make = await place.ask(server.url());
        await make.ask("CREATE DATABASE letters");
        await make.end();
      }
      await using store = place.open(url);
      await store.schema.migrate();
      sql = await place.ask(url);
      await sql.ask("CREATE TABLE effects (id VARCHAR(100) NOT NULL)");
      await using broker = embedded({ path: join(folder, "broker.db") });
      await broker.provision([topic]);
    });
    afterAll(async () => {
      for (const child of children.splice(0)) child.kill("SIGKILL");
      await sql?.end();
      await server?.[Symbol.asyncDispose]();
      rmSync(folder, { recursive: true, force: true });
    });
    beforeEach(async () => {
      for (const child of children.splice(0)) child.kill("SIGKILL");
      for (const table of ["effects", "waybill_letters", "inbox", "waybill_attempts", "waybill_audit", "waybill_seats"])
        await sql.ask(`DELETE FROM ${table}`);
    });

    const parked = async (store: Store<never, never>, letters: number): Promise<void> => {
      const ids = Array.from({ length: letters }, (_, n) => `e-${n}`);
      // The first is parked by the library, and the others are copies of its row.
      for (const id of ids.slice(0, 1))
        await store.inbox.park({ envelope: sampleEvent({ id, aggregateId: "a" }), topic, consumer, error: "no such street", attempts: 5 });
      const [columns] = [
        "consumer, topic, error_code, error, error_detail, attempts, handler_version, aggregate_type, aggregate_id, event_type, data, raw, whole, parked_at",
      ];
      for (let from = 1; from < letters; from += 500) {
        const rows = ids.slice(from, from + 500).map((id) => `SELECT '${id}' AS id`);
        const swapped = "REPLACE(l.envelope, '\"e-0\"', CONCAT('\"', n.id, '\"'))";
        await sql.ask(
          `INSERT INTO waybill_letters (${columns}, id, digest, envelope) SELECT ${columns
            .split(", ")
            .map((column) => `l.${column}`)
            .join(", ")}, n.id, l.digest, ${swapped} FROM waybill_letters l CROSS JOIN (${rows.join(" UNION ALL ")}) n WHERE l.id = 'e-0'`,
        );
      }
      await sql.ask(
        `INSERT INTO inbox (consumer, event_id, processed_at, handler_version, finished) SELECT l.consumer, l.id, l.parked_at, 0, ${place.name === "postgres" ? "true" : "1"}
         FROM waybill_letters l WHERE l.id <> 'e-0'`,
      );
      expect((await store.consumers.look(consumer))[0]!.letters[0]!.letters).toBe(letters);
      const [newest] = await store.letters.list({ consumer, limit: 1 });
      expect((await store.letters.show(newest!.seq))!.envelope.id).toBe(newest!.id);
    };
    const effects = async (): Promise<readonly [rows: number, ids: number]> => {
      const [row] = await sql.ask("SELECT COUNT(*) AS n, COUNT(DISTINCT id) AS ids FROM effects");
      return [Number(row!["n"]), Number(row!["ids"])];
    };
    const audited = async (action: string): Promise<number> => {
      const [row] = await sql.ask(`SELECT COALESCE(SUM(events), 0) AS n FROM waybill_audit WHERE action = '${action}'`);
      return Number(row!["n"]);
    };
    const subscriber = async (): Promise<ChildProcess> => {
      const child = spawn(process.execPath, [program, url, join(folder, "broker.db")], { stdio: ["pipe", "pipe", "inherit"] });
      children.push(child);
      await once(child.stdout, "data");
      return child;
    };

    test("two of them who redrive one group at once redrive each letter once", async () => {
      await using one = place.open(url);
      await using two = place.open(url);
      await parked(one, count);
      const reports = await Promise.all(
        [one, two, one].map((store, n) => store.letters.redrive({ consumer }, { who: `op-${n}`, dryRun: false })),
      );
      expect(reports.reduce((sum, { letters }) => sum + letters, 0)).toBe(count);
      expect(await audited("redrive")).toBe(count);
      expect((await one.consumers.look(consumer))[0]!.letters).toMatchObject([{ letters: count, redriven: count }]);
    });

    test("a redrive and a discard at once leave each letter applied or discarded, while its subscriber is killed twice", async () => {
      await using store = place.open(url);
      await using other = place.open(url);
      await parked(store, count);
      let child = await subscriber();
      const by = { who: "ann", dryRun: false };
      const redriving = (async () => {
        for (let after = 0n; ;) {
          const report = await store.letters.redrive({ consumer }, { ...by, most: 300, after });
          if (report.letters === 0) return;
          after = report.last!;
        }
      })();
      for (let times = 0; times < 2; times++) {
        const [before] = await effects();
        await expect.poll(async () => (await effects())[0], { timeout: 60_000 }).toBeGreaterThan(before);
        child.kill("SIGKILL");
        child = await subscriber();
      }
      await redriving;
      const discarded = await other.letters.discard({ consumer, type: sampleEvent({}).type }, by);
      await expect.poll(async () => (await store.consumers.look(consumer))[0]!.letters, { timeout: 60_000 }).toEqual([]);
      const [rows, ids] = await effects();
      expect([rows, rows + discarded.letters]).toEqual([ids, count]);
      expect(await audited("discard")).toBe(discarded.letters);
      expect(await audited("redrive")).toBe(count);
    });

    test("a letter that another session holds ends a discard at its batch, and those before are gone", async () => {
      await using store = place.open(url, 1_000);
      await parked(store, 5_000);
      const held = await place.ask(url);
      await held.ask(place.name === "postgres" ? "BEGIN" : "START TRANSACTION");
      const [last] = await held.ask("SELECT MAX(seq) AS seq FROM waybill_letters");
      await held.ask(`SELECT id FROM waybill_letters WHERE seq = ${String(last!["seq"])} FOR UPDATE`);
      await expect(store.letters.discard({ consumer }, { who: "ann", dryRun: false })).rejects.toThrow();
      expect((await store.consumers.look(consumer))[0]!.letters).toMatchObject([{ letters: 1_000 }]);
      expect(await audited("discard")).toBe(4_000);
      await held.ask("ROLLBACK");
      await held.end();
      expect((await store.letters.discard({ consumer }, { who: "ann", dryRun: false })).letters).toBe(1_000);
    });
  });
