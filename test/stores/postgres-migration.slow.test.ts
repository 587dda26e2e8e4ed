import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Claim, Holding } from "../../src/contracts/outbox-store.ts";
import { postgres, type PostgresOptions, type PostgresStore } from "../../src/stores/postgres/index.ts";
import { fingerprints } from "../../src/stores/postgres/schema.ts";
import { describeWith } from "../servers/available.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";

const layouts = { "one table": {}, partitions: { partitions: "day" } } as const;
const all = [...Array(64).keys()];
let databases = 0;

async function drain(store: PostgresStore, relay = "r"): Promise<Claim[]> {
  await store.leases.renew(relay, 60_000);
  const holding: Holding = { relay, lanes: await store.leases.take(relay, all) };
  const taken: Claim[] = [];
  for (;;) {
    const { id, claims, more } = await store.outbox.claim(holding, { limit: 500, open: [], narrow: false });
    if (id === null && !more) {
      await store.leases.leave(relay);
      return taken;
    }
    taken.push(...claims);
    if (id !== null)
      await store.outbox.settle(
        relay,
        id,
        claims.map((claim) => ({ claim, as: "published" })),
      );
  }
}

await describeWith("postgres", "the tables on PostgreSQL", () => {
  let server: Postgres;
  const pools: pg.Pool[] = [];
  beforeAll(async () => {
    server = await startPostgres({ version: 15 });
  });
  afterAll(async () => {
    for (const pool of pools) await pool.end();
    await server[Symbol.asyncDispose]();
  });

  const empty = async (): Promise<pg.Pool> => {
    const name = `database_${++databases}`;
    const admin = new pg.Client({ connectionString: server.url() });
    await admin.connect();
    await admin.query(`CREATE DATABASE ${name}`);
    await admin.end();
    const pool = new pg.Pool({ connectionString: server.url(name), max: 20 });
    pools.push(pool);
    return pool;
  };
  const migrated = async (more: Omit<PostgresOptions, "url" | "pool">): Promise<{ pool: pg.Pool; store: PostgresStore }> => {
    const pool = await empty();
    const store = postgres({ pool, ...more });
    await store.schema.migrate();
    return { pool, store };
  };

  describe.each(Object.entries(layouts))("%s", (layout, more) => {
    test("migrate makes what is printed, once", async () => {
      const pool = await empty();
      const { schema } = postgres({ pool, ...more });
      expect(await schema.migrate()).toEqual([1]);
      expect(await schema.migrate()).toEqual([]);
      const printed = await empty();
      const client = await printed.connect();
      await client.query("BEGIN");
      await client.query(schema.print()); // as a migration tool does
      await client.query("COMMIT");
      client.release();
      expect(await schemaOf(printed)).toEqual(await schemaOf(pool));
      await postgres({ pool: printed, ...more }).schema.check();
      expect(await postgres({ pool: printed, ...more }).schema.migrate()).toEqual([]);
      const { rows } = await printed.query("SELECT * FROM waybill_meta");
      expect(rows).toEqual([{ version: 1, fingerprint: fingerprints[0], partitions: layout === "partitions" ? "day" : null }]);
    });

    test.each([
      [
        "SCHEMA_UNRELEASED",
        "an unreleased build with the same version",
        "UPDATE waybill_meta SET fingerprint = 'another'",
        /version 1, text another;/,
      ],
      [
        "SCHEMA_UNRELEASED",
        "an early build",
        "ALTER TABLE waybill_meta DROP COLUMN fingerprint; UPDATE waybill_meta SET version = 4",
        /\(version 4; this code/,
      ],
      [
        "SCHEMA_NEWER",
        "a later version",
        "UPDATE waybill_meta SET version = 2, fingerprint = 'later'",
        /has tables of version 2, and this code knows 1 at most/,
      ],
    ])("%s: tables of %s are refused, and nothing is written", async (code, _, made, sentence) => {
      const { pool, store } = await migrated(more);
      await pool.query(`${made}; DROP VIEW outbox_events`);
      const before = await schemaOf(pool);
      for (const refused of [() => store.schema.migrate(), () => store.schema.check()])
        await expect(refused()).rejects.toMatchObject({ code, message: expect.stringMatching(sentence) as string });
      expect(await schemaOf(pool)).toEqual(before);
    });

    test("the layout stays the one that the outbox was made with", async () => {
      const { pool } = await migrated(more);
      await postgres({ pool }).schema.check();
      expect(await postgres({ pool }).schema.migrate()).toEqual([]);
      const { schema } = postgres({ pool, partitions: "week" });
      const refusal = { code: "INVALID_OPTION", message: expect.stringMatching(/partitions: "week" was asked for/) as string };
      await expect(schema.migrate()).rejects.toMatchObject(refusal);
      await expect(schema.check()).rejects.toMatchObject(refusal);
    });

    test("an aggregate's lane follows from the SHA-256 of its name alone", async () => {
      const { pool } = await migrated(more);
      const odd = [
        "\\",
        "\\\\",
        "\\x41",
        "\\101",
        "'",
        "''",
        '"',
        "$1",
        "%",
        "\u001f",
        "a\u001fb",
        "é",
        "漢字",
        "🙂",
        "\u0301",
        "x".repeat(255),
        " ",
      ];
      await pool.query(
        `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
         SELECT t, i, 'E', '1' FROM unnest($1::text[]) t, unnest($1::text[]) i`,
        [odd],
      );
      await pool.query(
        `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
         SELECT 'Order', chr(32 + (i * 7919) % 50000) || md5(i::text) || chr(160 + i % 40000), 'E', '1' FROM generate_series(1, 2000) i`,
      );
      const { rows } = await pool.query<{ n: number; lanes: number; moved: number }>(
        `SELECT count(*)::int AS n, count(DISTINCT lane)::int AS lanes,
                count(*) FILTER (WHERE lane <> get_byte(sha256(convert_to(aggregate_type || chr(31) || aggregate_id, 'UTF8')), 0) % 64)::int AS moved FROM outbox`,
      );
      expect(rows).toEqual([{ n: 2_289, lanes: 64, moved: 0 }]);
    });

    test("many events are settled on their own page, where the log gets what has changed and not the row", async () => {
      const { pool, store } = await migrated(more);
      await pool.query(
        `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) SELECT 'Order', i, 'E', repeat('x', 300) FROM generate_series(1, 1000) i`,
      );
      await pool.query("CREATE TABLE added AS SELECT seq, tableoid AS part, (ctid::text::point)[0] AS page FROM outbox");
      expect(await drain(store)).toHaveLength(1_000);
      const { rows: stayed } = await pool.query<{ n: number }>(
        "SELECT count(*)::int AS n FROM outbox o JOIN added a ON a.seq = o.seq AND a.part = o.tableoid AND a.page = (o.ctid::text::point)[0]",
      );
      expect(stayed[0]!.n).toBeGreaterThan(300); // none, in pages that are full
    });

    test("no hostile row can be added, and ordinary ones can", async () => {
      const { pool } = await migrated(more);
      const insert = (columns: Readonly<Record<string, unknown>>): Promise<unknown> => {
        const row = { aggregate_type: "Order", aggregate_id: "1", event_type: "E", payload: "1", ...columns };
        const names = Object.keys(row);
        return pool.query(
          `INSERT INTO outbox (${names.join(", ")}) VALUES (${names.map((_, at) => `$${at + 1}`).join(", ")})`,
          Object.values(row),
        );
      };
      const ofBytes = (bytes: number): string => JSON.stringify({ a: "x".repeat(bytes - JSON.stringify({ a: "" }).length) });
      const strings = JSON.stringify({ a: '{[\\"'.repeat(2_000), b: "]}" });
      for (const good of [
        {},
        { headers: '{"a": {"b": [1, 2]}}' },
        { headers: strings },
        { headers: ofBytes(16_384) },
        { aggregate_id: "é".repeat(127), available_at: "infinity", content_type: "text/plain; charset=utf-8", idempotency_key: "k" },
      ])
        await insert(good);
      for (const [rule, bad] of [
        ["names", { aggregate_id: "é".repeat(128) }],
        ["names", { aggregate_type: "x".repeat(256) }],
        ["names", { event_type: "x".repeat(256) }],
        ["names", { id: "x".repeat(256) }],
        ["names", { id: "" }],
        ["names", { idempotency_key: "x".repeat(256) }],
        ["names", { idempotency_key: "" }],
        ["content_type", { content_type: "" }],
        ["content_type", { content_type: "a\nb" }],
        ["content_type", { content_type: "x".repeat(256) }],
        ["headers", { headers: "[]" }],
        ["headers", { headers: "null" }],
        ["headers", { headers: `{"a":${"[".repeat(3_000)}${"]".repeat(3_000)}}` }],
        ["headers", { headers: `{"a":"${"x".repeat(5_000)}","b":[]}` }],
        ["headers", { headers: ofBytes(16_385) }],
        ["headers", { headers: JSON.stringify({ a: "x".repeat(140_000) }) }],
        ["times", { available_at: "-infinity" }],
        ["times", { available_at: "0044-03-15 BC" }],
        ["times", { available_at: "10000-01-01T00:00:00Z" }],
        ["retries", { retry_count: -1 }],
        ["retries", { retry_count: 2_147_483_647 }],
        ["names", { aggregate_type: "" }],
        ["names", { aggregate_id: "" }],
        ["names", { event_type: "" }],
        ["payload", { payload: null }],
        ["payload", { payload_bytes: Buffer.from("1") }],
        ["version", { event_version: 0 }],
        ["status", { status: "PUBLISHING" }],
        ["times", { created_at: "0044-03-15 BC" }],
        ["times", { created_at: "10000-01-01T00:00:00Z" }],
        ["times", { next_attempt_at: "-infinity" }],
        ["times", { published_at: "10000-01-01T00:00:00Z" }],
      ] as const) {
        const refused = { code: "23514", constraint: `waybill_${rule}` };
        await expect(insert(bad), JSON.stringify(bad).slice(0, 100)).rejects.toMatchObject(refused);
      }
    });

    test("and no hostile one by a session with operators and settings of its own", async () => {
      const { pool } = await migrated(more);
      const client = await pool.connect();
      try {
        await client.query(`
          CREATE SCHEMA evil;
          CREATE FUNCTION evil.yes(int, int) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT true';
          CREATE FUNCTION evil.yes(text, text) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT true';
          CREATE FUNCTION evil.octet_length(text) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1';
          CREATE FUNCTION evil.concat(text, text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT ''::text $$;
          CREATE OPERATOR evil.>= (LEFTARG = int, RIGHTARG = int, FUNCTION = evil.yes);
          CREATE OPERATOR evil.<= (LEFTARG = int, RIGHTARG = int, FUNCTION = evil.yes);
          CREATE OPERATOR evil.<> (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.yes);
          CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.yes);
          CREATE OPERATOR evil.~ (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.yes);
          CREATE OPERATOR evil.!~ (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.yes);
          CREATE OPERATOR evil.|| (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.concat);
          SET search_path = evil, public, pg_catalog; SET standard_conforming_strings = off; SET DateStyle = 'German, DMY'; SET TimeZone = 'Asia/Tehran'`);
        const insert = (columns: Readonly<Record<string, unknown>>): Promise<unknown> => {
          const row = { aggregate_type: "Order", aggregate_id: "1", event_type: "E", payload: "1", ...columns };
          const names = Object.keys(row);
          return client.query(
            `INSERT INTO outbox (${names.join(", ")}) VALUES (${names.map((_, at) => `$${at + 1}`).join(", ")})`,
            Object.values(row),
          );
        };
        await insert({ headers: JSON.stringify({ a: '{[\\"'.repeat(2_000), b: "]}" }), content_type: "text/plain" });
        for (const [rule, bad] of [
          ["names", { id: "x".repeat(256) }],
          ["names", { aggregate_type: "" }],
          ["content_type", { content_type: "a\nb" }],
          ["headers", { headers: `{"a":"${"x".repeat(5_000)}","b":[]}` }],
          ["headers", { headers: `{"a":"${'\\\\"'.slice(0, 2).repeat(3_000)}","b":[]}` }],
          ["headers", { headers: "[]" }],
          ["status", { status: "NONE" }],
          ["times", { available_at: "0044-03-15 BC" }],
          ["retries", { retry_count: -1 }],
        ] as const)
          await expect(insert(bad), rule).rejects.toMatchObject({ code: "23514", constraint: `waybill_${rule}` });
        const { rows } = await pool.query(
          "SELECT lane = (get_byte(sha256(convert_to('Order' || chr(31) || '1', 'UTF8')), 0) % 64) AS same FROM outbox",
        );
        expect(rows).toEqual([{ same: true }]);
      } finally {
        client.release(true);
      }
    });
  });

  test("of many migrations of an empty database at once, one makes the tables", async () => {
    const pool = await empty();
    const applied = await Promise.all(Array.from({ length: 6 }, () => postgres({ pool }).schema.migrate()));
    expect(applied.flat()).toEqual([1]);
    await postgres({ pool }).schema.check();
  });

  test("a migration waits for another one, for a second at a time", async () => {
    const pool = await empty();
    const other = await pool.connect();
    await other.query("BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('waybill.migrate', 0))");
    const migrating = postgres({ pool }).schema.migrate();
    const seen = new Set<string>();
    while (seen.size < 2) {
      const { rows } = await pool.query<{ began: string }>(
        "SELECT xact_start::text AS began FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
      );
      for (const { began } of rows) seen.add(began);
    }
    await other.query("COMMIT");
    other.release();
    expect(await migrating).toEqual([1]);
  });

  test("migrating again waits for no transaction that uses the tables", async () => {
    const { pool, store } = await migrated({});
    const other = await pool.connect();
    await other.query("BEGIN");
    await other.query("INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', '1', 'E', '1')");
    await other.query("LOCK TABLE outbox, inbox IN EXCLUSIVE MODE");
    expect(await store.schema.migrate()).toEqual([]);
    await other.query("COMMIT");
    other.release();
  });
});

/** Columns, constraints, indexes, storage, triggers and functions. */
async function schemaOf(pool: pg.Pool): Promise<unknown> {
  const { rows } = await pool.query<{ thing: string }>(
    `SELECT 'column ' || table_name || '.' || column_name || ' ' || data_type || ' ' || is_nullable || ' ' || coalesce(column_default, '') AS thing
     FROM information_schema.columns WHERE table_schema = 'public'
     UNION ALL SELECT 'constraint ' || conrelid::regclass || ' ' || conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = 'public'::regnamespace
     UNION ALL SELECT 'index ' || indexdef FROM pg_indexes WHERE schemaname = 'public'
     UNION ALL SELECT 'storage ' || relname || ' ' || (SELECT string_agg(o, ',' ORDER BY o) FROM unnest(reloptions) o) FROM pg_class
       WHERE relnamespace = 'public'::regnamespace AND reloptions IS NOT NULL
     UNION ALL SELECT 'view ' || definition FROM pg_views WHERE schemaname = 'public'
     UNION ALL SELECT 'trigger ' || pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
     UNION ALL SELECT 'function ' || p.proname || ' ' || p.prosrc || ' ' || p.prosecdef || ' ' || coalesce(p.proconfig::text, '') || ' ' || coalesce(p.proacl::text, '') FROM pg_proc p WHERE pronamespace = 'public'::regnamespace
     ORDER BY 1`,
  );
  return rows.map(({ thing }) => thing);
}
