import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { LogTailer } from "../../../src/contracts/log-tailer.ts";
import { systemClock } from "../../../src/core/clock.ts";
import { createConnection } from "../../../src/stores/postgres/connection.ts";
import { createTailer } from "../../../src/stores/postgres/log/tailer.ts";
import { namesOf } from "../../../src/stores/postgres/names.ts";
import { describeWith } from "../../servers/available.ts";
import type { Postgres } from "../../servers/postgres.ts";
import { eventsOf, logCase, never, readIds, readUntil, startLogged, troubleOf, versions } from "./harness.ts";

for (const [name, version] of versions)
  await describeWith(name, `the slot on PostgreSQL ${version}`, () => {
    let server: Postgres;
    beforeAll(async () => {
      server = await startLogged(version, { max_slot_wal_keep_size: "64MB", max_wal_size: "64MB", min_wal_size: "32MB" });
    });
    afterAll(() => server[Symbol.asyncDispose]());

    test("comes after its publication, which has inserts only, through the root, and no columns but ours", async () => {
      await using outbox = await logCase(server);
      expect((await outbox.tailer.look()).state).toBe("missing");
      await outbox.tailer.prepare(never());
      expect(outbox.name).toMatch(/^waybill_[0-9a-f]{16}$/);
      const { rows } = await outbox.pool.query<Record<string, unknown>>(
        "SELECT pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot FROM pg_publication WHERE pubname = $1",
        [outbox.name],
      );
      expect(rows).toEqual([{ pubinsert: true, pubupdate: false, pubdelete: false, pubtruncate: false, pubviaroot: true }]);
      if (version >= 15) {
        const columns = await outbox.pool.query<{ columns: string }>(
          "SELECT array_to_string(attnames, ',') AS columns FROM pg_publication_tables WHERE pubname = $1",
          [outbox.name],
        );
        expect(columns.rows[0]!.columns).not.toMatch(/lane|last_error|published_at/);
      }
      const slot = (await outbox.slot())!;
      expect(slot).toMatchObject({ plugin: "pgoutput", active: false, temporary: false });
      if (version >= 17) expect(slot).toMatchObject({ failover: true });
      expect((await outbox.tailer.look()).state).toBe("unread");
    });

    test("is told of as it is: streaming, with what is retained and what is safe", async () => {
      await using outbox = await logCase(server);
      const place = await outbox.tailer.prepare(never());
      const reading = await outbox.tailer.read(place, never());
      const look = await outbox.tailer.look();
      expect(look.state).toBe("streaming");
      expect(look.safeBytes).toBeGreaterThan(0);
      await outbox.add(["1"]);
      await outbox.pool.query("SELECT pg_switch_wal()");
      const batches = await readUntil(reading, (so) => eventsOf(so).length === 1);
      const later = await outbox.tailer.look();
      expect(later.behindBytes).toBeGreaterThan(0);
      expect(later.retainedBytes).toBeGreaterThanOrEqual(later.behindBytes);
      expect(batches.flatMap(({ transactions }) => transactions)).toHaveLength(1);
    });

    test("waits for open transactions, and names the one that it waits for; called off, it leaves nothing behind", async () => {
      await using outbox = await logCase(server);
      const open = new pg.Client({ connectionString: server.url(), application_name: "a report" });
      await open.connect();
      await open.query("BEGIN; SELECT pg_current_xact_id()");
      const off = new AbortController();
      const making = troubleOf(outbox.tailer.prepare(off.signal));
      await expect
        .poll(async () => outbox.tailer.look())
        .toMatchObject({ state: "preparing", waitsFor: expect.stringMatching(/a report/) as string });
      off.abort();
      expect(await making).toMatch(/called off/);
      expect(await outbox.slot()).toBeNull();
      await open.query("COMMIT");
      await open.end();
      await outbox.tailer.prepare(never());
      expect(await outbox.slot()).not.toBeNull();
    });

    test("is given back and asked for again when a transaction stays open for longer than lock_timeout", async () => {
      await using outbox = await logCase(server, { lockTimeoutMs: 200 });
      const open = await outbox.pool.connect();
      await open.query("BEGIN; SELECT pg_current_xact_id()");
      const making = outbox.tailer.prepare(never());
      await expect.poll(() => server.log().split("canceling statement due to lock timeout").length).toBeGreaterThan(2);
      await open.query("COMMIT");
      open.release();
      await making;
      expect(await outbox.slot()).toMatchObject({ active: false });
    });

    test("that is there serves again, and one whose publication is not surely older is made again", async () => {
      await using outbox = await logCase(server);
      await outbox.tailer.prepare(never());
      const first = await outbox.tailer.prepare(never());
      await outbox.add(["1"]);
      expect(await readIds(await outbox.tailer.read(first, never()), 1)).toEqual(["1"]);
      await outbox.pool.query(`DROP PUBLICATION ${outbox.name}`);
      const again = await outbox.tailer.prepare(never());
      await outbox.add(["2"]);
      expect(await readIds(await outbox.tailer.read(again, never()), 1)).toEqual(["2"]);
    });

    test("that is older than its publication is refused, and skips no event in silence", async () => {
      await using outbox = await logCase(server);
      await outbox.pool.query("SELECT pg_create_logical_replication_slot($1, 'pgoutput')", [outbox.name]);
      await outbox.add(["before"]);
      const { rows } = await outbox.pool.query<{ system: string }>("SELECT system_identifier::text AS system FROM pg_control_system()");
      const from = { system: rows[0]!.system, position: (await outbox.slot())!["confirmed_flush_lsn"] as string };
      expect(await troubleOf(outbox.tailer.read(from, never()))).toBe("publication");
      await outbox.pool.query(
        `CREATE PUBLICATION ${outbox.name} FOR TABLE ${outbox.schema}.outbox WITH (publish = 'insert', publish_via_partition_root = true)`,
      );
      await outbox.add(["after"]);
      const read = async (): Promise<unknown> => readUntil(await outbox.tailer.read(from, never()), (so) => eventsOf(so).length > 0);
      expect(await troubleOf(read())).toBe("publication");
    });

    test("whose WAL was removed is lost, says why, and is made anew", async () => {
      await using outbox = await logCase(server);
      const place = await outbox.tailer.prepare(never());
      await outbox.pool.query(
        `CREATE TABLE ${outbox.schema}.other AS SELECT g, repeat(md5(g::text), 30) AS t FROM generate_series(1, 10000) g`,
      );
      await expect
        .poll(
          async () => {
            await outbox.pool.query(`UPDATE ${outbox.schema}.other SET g = g + 1`);
            await outbox.pool.query("SELECT pg_switch_wal()");
            await outbox.pool.query("CHECKPOINT");
            return outbox.tailer.look();
          },
          { timeout: 60_000 },
        )
        .toMatchObject({ state: "lost", why: expect.stringMatching(/wal/i) as string });
      expect(await troubleOf(outbox.tailer.read(place, never()))).toBe("lost");
      const anew = await outbox.tailer.prepare(never());
      await outbox.add(["1"]);
      expect(await readIds(await outbox.tailer.read(anew, never()), 1)).toEqual(["1"]);
    });

    test("that was confirmed further than the position to read from is refused: events between would be skipped", async () => {
      await using outbox = await logCase(server);
      const place = await outbox.tailer.prepare(never());
      const reading = await outbox.tailer.read(place, never());
      await outbox.add(["1"]);
      for await (const batch of reading)
        if (eventsOf([batch]).length === 1) {
          reading.confirm(batch.end);
          break;
        }
      expect(await troubleOf(outbox.tailer.read(place, never()))).toBe("ahead");
      expect(await troubleOf(outbox.tailer.read({ ...place, system: "1" }, never()))).toBe("elsewhere");
    });

    test("of two databases with outboxes of the same name are two", async () => {
      await using outbox = await logCase(server);
      await outbox.pool.query(`CREATE DATABASE second_${version}`);
      const create = (database: string | undefined): [LogTailer, () => Promise<void>] => {
        const settings = { url: server.url(database), connections: 2, connectTimeoutMs: 10_000 };
        const connection = createConnection({ pool: settings, place: "the database", statementTimeoutMs: 30_000 });
        return [createTailer({ connection, names: namesOf(outbox.schema), clock: systemClock, ...settings }), () => connection.close()];
      };
      const pool = new pg.Pool({ connectionString: server.url(`second_${version}`) });
      await pool.query(`CREATE SCHEMA ${outbox.schema}; CREATE TABLE ${outbox.schema}.outbox (LIKE pg_class)`);
      const [second, close] = create(`second_${version}`);
      await outbox.tailer.prepare(never());
      expect((await second.look()).state).toBe("missing");
      await pool.end();
      await close();
    });

    test("needs a role with REPLICATION, and uses a publication that this role could not create", async () => {
      await using outbox = await logCase(server);
      const { pool, schema } = outbox;
      await pool.query(`CREATE ROLE plain_${schema} LOGIN; CREATE ROLE reader_${schema} LOGIN REPLICATION;
        GRANT USAGE ON SCHEMA ${schema} TO plain_${schema}, reader_${schema}`);
      const as = (role: string): { readonly tailer: LogTailer; close(): Promise<void> } => {
        const url = new URL(server.url());
        url.username = role;
        const settings = { url: url.href, connections: 2, connectTimeoutMs: 10_000 };
        const connection = createConnection({ pool: settings, place: "the database", statementTimeoutMs: 30_000 });
        return {
          tailer: createTailer({ connection, names: namesOf(schema), clock: systemClock, ...settings }),
          close: () => connection.close(),
        };
      };
      const [plain, reader] = [as(`plain_${schema}`), as(`reader_${schema}`)];
      expect(await troubleOf(plain.tailer.prepare(never()))).toBe("rights");
      expect(await troubleOf(reader.tailer.prepare(never()))).toBe("rights");
      expect(await outbox.slot(), "no slot without a publication").toBeNull();
      await outbox.tailer.prepare(never());
      await outbox.tailer.drop();
      const place = await reader.tailer.prepare(never());
      await outbox.add(["1"]);
      expect(await readIds(await reader.tailer.read(place, never()), 1)).toEqual(["1"]);
      await plain.close();
      await reader.close();
    });

    test("is dropped beside its reader", async () => {
      await using outbox = await logCase(server);
      const place = await outbox.tailer.prepare(never());
      const reading = troubleOf(readUntil(await outbox.tailer.read(place, never()), () => false));
      await outbox.tailer.drop();
      await reading;
      expect(await outbox.slot()).toBeNull();
      await outbox.tailer.drop();
    });
  });

await describeWith("postgres", "a server that does not write a logical log", () => {
  test("is refused, and no publication is made", async () => {
    await using server = await startLogged(15, { wal_level: "replica" });
    await using outbox = await logCase(server);
    expect(await troubleOf(outbox.tailer.prepare(never()))).toBe("not logical");
    expect((await outbox.pool.query("SELECT 1 FROM pg_publication")).rows).toEqual([]);
  });

  test("without a free slot says so", async () => {
    await using server = await startLogged(15, { max_replication_slots: 1 });
    await using outbox = await logCase(server);
    await outbox.pool.query("SELECT pg_create_physical_replication_slot('others')");
    expect(await troubleOf(outbox.tailer.prepare(never()))).toBe("full");
  });
});

await describeWith("postgres18", "a log that waits for a standby", () => {
  test("is told of with the standby's name, and stands still until it need not wait", async () => {
    await using server = await startLogged(18);
    await using outbox = await logCase(server);
    const place = await outbox.tailer.prepare(never());
    await outbox.pool.query("SELECT pg_create_physical_replication_slot('standby_1')");
    await outbox.pool.query("ALTER SYSTEM SET synchronized_standby_slots = 'standby_1'");
    await outbox.pool.query("SELECT pg_reload_conf()");
    await outbox.add(["1"]);
    const reading = await outbox.tailer.read(place, never());
    const ids = readIds(reading, 1);
    await expect.poll(() => outbox.tailer.look()).toMatchObject({ state: "waits for standby", standby: "standby_1" });
    await outbox.pool.query("ALTER SYSTEM RESET synchronized_standby_slots");
    await outbox.pool.query("SELECT pg_reload_conf()");
    expect(await ids).toEqual(["1"]);
  });
});
