import { afterAll, beforeAll, expect, test } from "vitest";
import { systemClock } from "../../../src/core/clock.ts";
import { LANES } from "../../../src/core/lane.ts";
import { createConnection } from "../../../src/stores/postgres/connection.ts";
import { createTailer } from "../../../src/stores/postgres/log/tailer.ts";
import { namesOf } from "../../../src/stores/postgres/names.ts";
import { describeWith } from "../../servers/available.ts";
import type { Postgres } from "../../servers/postgres.ts";
import { harnessOn } from "../postgres-harness.ts";
import { eventsOf, idsOf, logCase, never, readIds, readUntil, startLogged, versions } from "./harness.ts";

for (const [name, version] of versions)
  await describeWith(name, `the log of PostgreSQL ${version}`, () => {
    let server: Postgres;
    beforeAll(async () => {
      server = await startLogged(version);
    });
    afterAll(() => server[Symbol.asyncDispose]());

    test("has each committed transaction's events in the order of the commits, and nothing that was rolled back", async () => {
      await using outbox = await logCase(server);
      const { pool, add } = outbox;
      const place = await outbox.tailer.prepare(never());
      const [first, second] = [await pool.connect(), await pool.connect()];
      await first.query("BEGIN");
      await second.query("BEGIN");
      await add(["second 1"], first);
      await add(["first 1", "first 2"], second);
      await first.query("SAVEPOINT a");
      await add(["undone"], first);
      await first.query("ROLLBACK TO a");
      await first.query("SAVEPOINT b");
      await add(["second 2"], first);
      await first.query("RELEASE b");
      await second.query("COMMIT");
      await first.query("COMMIT");
      await first.query("BEGIN");
      await add(["gone"], first);
      await first.query("ROLLBACK");
      await add(["third"]);
      first.release();
      second.release();
      const batches = await readUntil(await outbox.tailer.read(place, never()), (so) => eventsOf(so).length === 5);
      const transactions = batches.flatMap((batch) => batch.transactions);
      expect(transactions.map(({ events }) => idsOf(events))).toEqual([["first 1", "first 2"], ["second 1", "second 2"], ["third"]]);
      const xids = await pool.query<{ id: string; xid: string }>(
        `SELECT aggregate_id AS id, xmin::text AS xid FROM ${outbox.schema}.outbox`,
      );
      expect(transactions.map(({ xid }) => xid)).toEqual(
        ["first 1", "second 1", "third"].map((id) => xids.rows.find((row) => row.id === id)!.xid),
      );
      expect(batches.at(-1)!.end).toBe(transactions.at(-1)!.end);
    });

    test("is read again from a position, without what had ended before it", async () => {
      await using outbox = await logCase(server);
      const place = await outbox.tailer.prepare(never());
      for (const id of ["1", "2", "3", "4"]) await outbox.add([id]);
      const batches = await readUntil(await outbox.tailer.read(place, never()), (so) => eventsOf(so).length === 4);
      const position = batches.flatMap(({ transactions }) => transactions)[1]!.end!;
      expect(await readIds(await outbox.tailer.read({ ...place, position }, never()), 2)).toEqual(["3", "4"]);
      expect(await readIds(await outbox.tailer.read(place, never()), 4), "reading confirms nothing").toEqual(["1", "2", "3", "4"]);
    });

    test("lacks the rows that are the table's: delayed, retried, settled", async () => {
      await using outbox = await logCase(server);
      const place = await outbox.tailer.prepare(never());
      const insert = (columns: string, values: string): Promise<unknown> =>
        outbox.pool.query(
          `INSERT INTO ${outbox.schema}.outbox (aggregate_type, aggregate_id, event_type, payload, ${columns}) VALUES ('Order', 'not this', 'E', '1', ${values})`,
        );
      await insert("available_at", "now() + interval '1 hour'");
      await insert("available_at", "'infinity'");
      await insert("next_attempt_at", "now()");
      for (const status of ["FAILED", "BLOCKED", "DEAD", "PUBLISHED", "DISCARDED"]) await insert("status", `'${status}'`);
      await outbox.add(["this"]);
      expect(await readIds(await outbox.tailer.read(place, never()), 1)).toEqual(["this"]);
    });

    test("gives each row as polling does, hostile rows included", async () => {
      const harness = await harnessOn(() => server.url())();
      const settings = { url: server.url(), connections: 2, connectTimeoutMs: 10_000 };
      const connection = createConnection({ pool: settings, place: "the database", statementTimeoutMs: 30_000 });
      const tailer = createTailer({ connection, names: namesOf(harness.schema), clock: systemClock, ...settings });
      const place = await tailer.prepare(never());
      await harness.pool.query(
        `INSERT INTO ${harness.schema}.outbox (aggregate_type, aggregate_id, event_type, event_version, payload, payload_bytes, content_type, headers, idempotency_key, created_at)
         VALUES ('Größe', 'änderung-漢字-🎉', 'E', 7, E'{"a": "\\u00fc\\n🎉"}', NULL, 'application/json', '{"trace": "1", "n": 2}', 'key', '1823-04-05 06:07:08.123456+00'),
                ('Order', '2', 'E', 1, NULL, '\\x00ff0d0a', 'application/octet-stream', '{}', NULL, '9999-12-31 23:59:59.999999+00'),
                ('Order', '3', 'E', 1, '', NULL, 'text/plain', '{}', NULL, '0001-01-01 00:00:00+00')`.replace(
          "'[]'::json #> '{}' ",
          "'{}'",
        ),
      );
      await harness.hostile!();
      const all = Array.from({ length: LANES }, (_, lane) => lane);
      await harness.store.leases.renew("relay", 60_000);
      const lanes = await harness.store.leases.take("relay", all);
      const { claims } = await harness.store.outbox.claim({ relay: "relay", lanes }, { limit: 1_000, open: [], narrow: false });
      await harness.pool.query(
        `INSERT INTO ${harness.schema}.outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', 'last', 'E', '1')`,
      );
      const reading = await tailer.read(place, never());
      const logged = eventsOf(await readUntil(reading, (so) => idsOf(eventsOf(so)).includes("last"))).slice(0, -1);
      const detours = await harness.pool.query<{ seq: string }>(
        `SELECT seq FROM ${harness.schema}.outbox WHERE available_at IS NOT NULL OR next_attempt_at IS NOT NULL`,
      );
      const theTables = new Set(detours.rows.map(({ seq }) => BigInt(seq)));
      const polled = claims.filter(({ envelope }) => !theTables.has(envelope.seq));
      const told = (of: (typeof logged)[number]): unknown => ({
        ...of.envelope,
        data: Buffer.from(of.envelope.data).toString("hex"),
        unreadable: of.unreadable,
        failures: of.failures,
      });
      expect(polled.length).toBeGreaterThan(15);
      expect(logged.map(told)).toEqual(polled.map(told));
      await tailer.drop();
      await connection.close();
      await harness.close();
    });

    test("of a partitioned outbox is that of one table, and knows no columns of the user's", async () => {
      await using outbox = await logCase(server, { partitions: "day" });
      const place = await outbox.tailer.prepare(never());
      const reading = await outbox.tailer.read(place, never());
      const ids = readIds(reading, 4);
      await outbox.add(["1"]);
      await outbox.pool.query(
        `INSERT INTO ${outbox.schema}.outbox (aggregate_type, aggregate_id, event_type, payload, created_at) VALUES ('Order', '2', 'E', '1', now() + interval '1 day')`,
      );
      await outbox.pool.query(
        `ALTER TABLE ${outbox.schema}.outbox ADD COLUMN tenant text DEFAULT 'somebody', ADD COLUMN place point DEFAULT '(1,2)'`,
      );
      await outbox.add(["3"]);
      await outbox.pool.query(`ALTER TABLE ${outbox.schema}.outbox DROP COLUMN tenant`);
      await outbox.add(["4"]);
      expect(await ids).toEqual(["1", "2", "3", "4"]);
    });

    test("goes on under load while a user adds and drops columns and truncates the table", async () => {
      await using outbox = await logCase(server);
      const place = await outbox.tailer.prepare(never());
      const reading = await outbox.tailer.read(place, never());
      const count = 400;
      const wanted = Array.from({ length: count }, (_, at) => String(at));
      const reads = readIds(reading, count);
      const writers = [0, 1, 2, 3].map(async (writer) => {
        for (let at = writer; at < count; at += 4) await outbox.add([String(at)]);
      });
      const changes = (async () => {
        for (let at = 0; at < 6; at++) {
          await outbox.pool.query(`ALTER TABLE ${outbox.schema}.outbox ADD COLUMN extra_${at} integer DEFAULT ${at}`);
          await outbox.pool.query(`TRUNCATE ${outbox.schema}.outbox`);
          if (at % 2 === 0) await outbox.pool.query(`ALTER TABLE ${outbox.schema}.outbox DROP COLUMN extra_${at}`);
        }
      })();
      await Promise.all([...writers, changes]);
      expect([...(await reads)].sort()).toEqual([...wanted].sort());
    });

    test("is confirmed by nobody but the caller, and an idle outbox beside foreign writes by what a keep-alive says", async () => {
      await using outbox = await logCase(server);
      const place = await outbox.tailer.prepare(never());
      await outbox.pool.query(
        `CREATE TABLE ${outbox.schema}.foreign_rows AS SELECT repeat(md5(g::text), 30) AS t FROM generate_series(1, 20000) g`,
      );
      const { rows } = await outbox.pool.query<{ lsn: string }>("SELECT pg_current_wal_lsn() AS lsn");
      const before = (await outbox.slot())!["confirmed_flush_lsn"];
      const reading = await outbox.tailer.read(place, never());
      const isPast = async (position: unknown): Promise<boolean> =>
        (await outbox.pool.query<{ past: boolean }>("SELECT $1::pg_lsn >= $2::pg_lsn AS past", [position, rows[0]!.lsn])).rows[0]!.past;
      for await (const batch of reading) {
        expect(batch.transactions).toEqual([]);
        if (await isPast(batch.end)) {
          expect((await outbox.slot())!["confirmed_flush_lsn"]).toBe(before);
          reading.confirm(batch.end);
          break;
        }
      }
      expect(await isPast((await outbox.slot())!["confirmed_flush_lsn"])).toBe(true);
    });
  });
