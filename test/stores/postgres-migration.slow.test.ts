import { readFileSync } from "node:fs";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Claim, Holding, Outcome } from "../../src/contracts/outbox-store.ts";
import { postgres, type PostgresStore } from "../../src/stores/postgres/index.ts";
import { describeWith } from "../servers/available.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";
import { insertHostile } from "./postgres-hostile.ts";

const layouts = { "one table": "postgres-v1.sql", partitions: "postgres-v1-partitioned.sql" } as const;
const all = [...Array(64).keys()];
let databases = 0;

/** As a relay does it: what cannot be carried is parked unsent. */
const judge = (claim: Claim): Outcome =>
  claim.unreadable === undefined
    ? { claim, as: "published" }
    : { claim, as: "parked", error: `ROW_UNREADABLE: ${claim.unreadable}`, release: false };

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
    if (id !== null) await store.outbox.settle(relay, id, claims.map(judge));
  }
}

await describeWith("postgres", "from earlier versions on PostgreSQL", () => {
  let server: Postgres;
  const pools: pg.Pool[] = [];
  beforeAll(async () => {
    server = await startPostgres({ version: 15 });
  });
  afterAll(async () => {
    for (const pool of pools) await pool.end();
    await server[Symbol.asyncDispose]();
  });

  /** A database with the tables of version 1, as `waybill migrate --print` gave them. */
  const old = async (file: string): Promise<pg.Pool> => {
    const name = `version_1_${++databases}`;
    const admin = new pg.Client({ connectionString: server.url() });
    await admin.connect();
    await admin.query(`CREATE DATABASE ${name}`);
    await admin.end();
    const pool = new pg.Pool({ connectionString: server.url(name), max: 20 });
    pools.push(pool);
    await pool.query(readFileSync(new URL(file, import.meta.url), "utf8"));
    return pool;
  };
  const empty = async (): Promise<pg.Pool> => {
    const pool = await old("postgres-v1.sql");
    await pool.query("DROP SCHEMA public CASCADE; CREATE SCHEMA public");
    return pool;
  };

  describe.each(Object.entries(layouts))("%s", (layout, file) => {
    test("the tables come out as those of a new database, and as they are printed", async () => {
      const migrated = await old(file);
      expect(await postgres({ pool: migrated }).schema.migrate()).toEqual([2, 3, 4]);
      expect(await postgres({ pool: migrated }).schema.migrate()).toEqual([]);
      const more = layout === "partitions" ? ({ partitions: "day" } as const) : {};
      const made = await empty();
      const fresh = postgres({ pool: made, ...more });
      expect(await fresh.schema.migrate()).toEqual([1, 2, 3, 4]);
      const printed = await empty();
      await printed.query(fresh.schema.print());
      const upgraded = await old(file);
      const client = await upgraded.connect();
      await client.query("BEGIN");
      await client.query(fresh.schema.print(1)); // as a migration tool does
      await client.query("COMMIT");
      client.release();
      expect(await schemaOf(upgraded)).toEqual(await schemaOf(made));
      await postgres({ pool: upgraded }).schema.check();
      expect(await schemaOf(migrated)).toEqual(await schemaOf(made));
      expect(await schemaOf(printed)).toEqual(await schemaOf(made));
      await postgres({ pool: printed }).schema.check();
    });

    test("tables of version 2 come out the same, their errors are told and found, and rights on an error are kept", async () => {
      const migrated = await old(file.replace("v1", "v2"));
      const role = `relay_${databases}`;
      await migrated.query(`CREATE ROLE ${role}; GRANT UPDATE (last_error) ON outbox TO ${role}`);
      await migrated.query(
        "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, status, last_error) VALUES ('Order', '1', 'E', '1', 'DEAD', 'MESSAGE_TOO_LARGE: no')",
      );
      const store = postgres({ pool: migrated });
      expect(await store.schema.migrate()).toEqual([3, 4]);
      const other = await old(file);
      await postgres({ pool: other }).schema.migrate();
      expect(await schemaOf(migrated)).toEqual(await schemaOf(other));
      expect((await store.operator.status()).dead).toMatchObject([{ error: "MESSAGE_TOO_LARGE: no", events: 1 }]);
      expect((await store.operator.redrive({ error: "MESSAGE_TOO" }, { who: "ann", dryRun: true })).events).toBe(1);
      const { rows } = await migrated.query(
        `SELECT has_column_privilege('${role}', 'outbox', 'error_code', 'UPDATE') AND has_column_privilege('${role}', 'outbox', 'error_detail', 'UPDATE') AS may`,
      );
      expect(rows).toEqual([{ may: true }]);
    });

    test("tables of version 3 come out the same, and every aggregate stays in its lane", async () => {
      const migrated = await old(file.replace("v1", "v3"));
      const odd = [
        "",
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
      await migrated.query(
        `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
         SELECT t, i, 'E', '1' FROM unnest($1::text[]) t, unnest($1::text[]) i WHERE t <> '' AND i <> ''`,
        [odd],
      );
      await migrated.query(
        `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
         SELECT 'Order', chr(32 + (i * 7919) % 50000) || md5(i::text) || chr(160 + i % 40000), 'E', '1' FROM generate_series(1, 2000) i`,
      );
      await migrated.query("CREATE TABLE archive (LIKE outbox INCLUDING ALL)");
      expect(await postgres({ pool: migrated }).schema.migrate()).toEqual([4]);
      const { rows } = await migrated.query<{ n: number; lanes: number; moved: number }>(
        `SELECT count(*)::int AS n, count(DISTINCT lane)::int AS lanes, count(*) FILTER (WHERE lane <> waybill_lane(aggregate_type, aggregate_id))::int AS moved FROM outbox`,
      );
      expect(rows).toEqual([{ n: 2_289, lanes: 64, moved: 0 }]);
      const parts = await migrated.query("SELECT waybill_lane(t, i) AS lane FROM unnest($1::text[]) t, unnest($1::text[]) i", [odd]);
      const bare = await migrated.query(
        "SELECT (get_byte(sha256(convert_to(t || chr(31) || i, 'UTF8')), 0) % 64)::smallint AS lane FROM unnest($1::text[]) t, unnest($1::text[]) i",
        [odd],
      );
      expect(parts.rows).toEqual(bare.rows);
      await migrated.query(
        "INSERT INTO archive (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', '1', 'E', '1'); DROP TABLE archive",
      );
      const other = await old(file);
      await postgres({ pool: other }).schema.migrate();
      expect(await schemaOf(migrated)).toEqual(await schemaOf(other));
    });

    test("many events are settled on their own page, where the log gets what has changed and not the row, and storage of one's own stays", async () => {
      const pool = await old(file);
      const store = postgres({ pool });
      await store.schema.migrate();
      await pool.query(
        `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) SELECT 'Order', i, 'E', repeat('x', 300) FROM generate_series(1, 1000) i`,
      );
      await pool.query("CREATE TABLE added AS SELECT seq, tableoid AS part, (ctid::text::point)[0] AS page FROM outbox");
      expect(await drain(store)).toHaveLength(1_000);
      const { rows: stayed } = await pool.query<{ n: number }>(
        "SELECT count(*)::int AS n FROM outbox o JOIN added a ON a.seq = o.seq AND a.part = o.tableoid AND a.page = (o.ctid::text::point)[0]",
      );
      expect(stayed[0]!.n).toBeGreaterThan(300); // none, in pages that are full

      const other = await old(file);
      const table = layout === "partitions" ? "outbox_default" : "outbox";
      await other.query(`ALTER TABLE ${table} SET (fillfactor = 90)`);
      await postgres({ pool: other }).schema.migrate();
      const { rows } = await other.query(
        `SELECT array_to_string(reloptions, ',') ~ 'fillfactor=90' AS kept FROM pg_class WHERE relname = '${table}'`,
      );
      expect(rows).toEqual([{ kept: true }]);
    });

    test("rows of version 1 can be settled as they are, and later ones cannot be made hostile by hand", async () => {
      const pool = await old(file);
      await pool.query("INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES ('', 'Order', '1', 'E', '1')");
      const store = postgres({ pool });
      // Up to version 3.
      await pool.query(store.schema.print(1).replace(/-- The same lanes as before[^]*/, "UPDATE waybill_meta SET version = 3"));
      await pool.query("INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES ('b', 'Order', '1', 'E', '1')");
      expect(await store.schema.migrate()).toEqual([4]);
      await pool.query("UPDATE outbox SET status = 'PUBLISHED' WHERE id = ''");
      await expect(pool.query("UPDATE outbox SET id = '' WHERE id = 'b'")).rejects.toMatchObject({ constraint: "waybill_names" });
    });

    test("every hostile row that is there ends DEAD with the cause in words, and all others flow", async () => {
      const pool = await old(file);
      await pool.query(
        `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) SELECT 'Order', i % 50, 'E', '1' FROM generate_series(1, 500) i`,
      );
      const hostile = await insertHostile(pool, "public");
      await pool.query(
        `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) SELECT 'Order', i % 50, 'E', '1' FROM generate_series(1, 500) i`,
      );
      const store = postgres({ pool });
      expect(await store.schema.migrate()).toEqual([2, 3, 4]);
      expect(await drain(store)).toHaveLength(1_000 + hostile.length);
      const { rows } = await pool.query<{ seq: string; status: string; last_error: string | null }>(
        "SELECT seq, status, last_error FROM outbox WHERE status <> 'PUBLISHED'",
      );
      const dead = hostile.filter(({ readable }) => readable !== true);
      expect(new Set(rows.map(({ seq }) => BigInt(seq)))).toEqual(new Set(dead.map(({ seq }) => seq)));
      for (const { status, last_error } of rows)
        expect([status, last_error]).toEqual(["DEAD", expect.stringMatching(/^ROW_UNREADABLE: \w+ \w+/)]);
      expect(await store.operator.list({ state: "DEAD", limit: 100 })).toHaveLength(dead.length);
      // Redriven, they come back, and end the same way.
      expect((await store.operator.redrive({}, { who: "ann", dryRun: false })).events).toBe(dead.length);
      expect(await drain(store)).toHaveLength(dead.length);
      expect((await store.operator.status()).states.DEAD).toBe(dead.length);
      expect((await store.operator.discard({}, { who: "ann", dryRun: false })).events).toBe(dead.length);
    });

    test("no hostile row can be added any more, and ordinary ones can", async () => {
      const pool = await old(file);
      await postgres({ pool }).schema.migrate();
      const insert = (columns: Readonly<Record<string, unknown>>): Promise<unknown> => {
        const row = { aggregate_type: "Order", aggregate_id: "1", event_type: "E", payload: "1", ...columns };
        const names = Object.keys(row);
        return pool.query(
          `INSERT INTO outbox (${names.join(", ")}) VALUES (${names.map((_, at) => `$${at + 1}`).join(", ")})`,
          Object.values(row),
        );
      };
      const strings = JSON.stringify({ a: '{[\\"'.repeat(2_000), b: "]}" });
      for (const good of [
        {},
        { headers: '{"a": {"b": [1, 2]}}' },
        { headers: strings },
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

    test("and none by a session with operators and settings of its own", async () => {
      const pool = await old(file);
      await postgres({ pool }).schema.migrate();
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

  test("writers, subscribers and a relay of version 1 go on while it migrates, and nothing of theirs is lost or refused", async () => {
    const pool = await old("postgres-v1.sql");
    await pool.query(
      `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) SELECT 'Order', 'old-' || i, 'E', '1' FROM generate_series(1, 20000) i`,
    );
    await pool.query(
      `INSERT INTO inbox (consumer, event_id, processed_at, handler_version) SELECT 'c', i, now(), 1 FROM generate_series(1, 20000) i`,
    );
    let busy = true;
    let written = 0;
    const writing = Array.from({ length: 6 }, async (_, writer) => {
      for (let n = 0; busy; n++) {
        const client = await pool.connect();
        await client.query("BEGIN");
        await client.query("INSERT INTO inbox (consumer, event_id, processed_at, handler_version) VALUES ('c', $1, now(), 1)", [
          `${writer}-${n}`,
        ]);
        await client.query(
          "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, idempotency_key) VALUES ('Order', $1, 'E', '1', $2)",
          [`new-${writer}`, `${writer}-${n}`],
        );
        await client.query("COMMIT");
        client.release();
        written++;
      }
    });
    // What a relay of version 1 does again and again, in its own words.
    const relaying = (async () => {
      while (busy) {
        const client = await pool.connect();
        await client.query("BEGIN");
        await client.query("SELECT 1 FROM waybill_lanes ORDER BY lane FOR UPDATE");
        await client.query(
          `UPDATE outbox SET status = 'PUBLISHED', published_at = clock_timestamp() WHERE seq IN (SELECT seq FROM outbox WHERE status = 'PENDING' ORDER BY seq LIMIT 20)`,
        );
        await client.query(
          `INSERT INTO waybill_relays (relay, started_at, expires_at) VALUES ('old', now(), now() + interval '10 seconds')
           ON CONFLICT (relay) DO UPDATE SET expires_at = excluded.expires_at`,
        );
        await client.query("COMMIT");
        client.release();
      }
    })();
    // And a transaction that stays open for longer than the migration waits at a time.
    const lasting = await pool.connect();
    await lasting.query("BEGIN");
    await lasting.query("INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', 'lasting', 'E', '1')");
    const store = postgres({ pool });
    const migrated = store.schema.migrate();
    while (written < 200) await Promise.race([...writing, new Promise((resolve) => setImmediate(resolve))]);
    await lasting.query("SELECT pg_sleep(2)");
    await lasting.query("COMMIT");
    lasting.release();
    expect(await migrated).toEqual([2, 3, 4]);
    const before = written;
    while (written < before + 100) await Promise.race([...writing, new Promise((resolve) => setImmediate(resolve))]);
    expect((await store.leases.look()).live, "the relay of version 1").toEqual(["old"]);
    busy = false;
    await Promise.all([...writing, relaying]);
    await drain(store);
    const { rows } = await pool.query<{ n: number }>("SELECT count(*)::int AS n FROM outbox WHERE status = 'PUBLISHED'");
    expect(rows[0]!.n).toBe(20_001 + written);
    expect(await store.inbox.once({ consumer: "c", id: "1" }, 1, () => undefined)).toBe("seen");
    expect(await store.inbox.once({ consumer: "c", id: "0-0" }, 1, () => undefined)).toBe("seen");
  });
});

/** Columns, constraints, indexes, storage, triggers and functions, but for the number up to which rows are from before. */
async function schemaOf(pool: pg.Pool): Promise<unknown> {
  const { rows } = await pool.query<{ thing: string }>(
    `SELECT 'column ' || table_name || '.' || column_name || ' ' || data_type || ' ' || is_nullable || ' ' || coalesce(column_default, '') AS thing
     FROM information_schema.columns WHERE table_schema = 'public'
     UNION ALL SELECT 'constraint ' || conrelid::regclass || ' ' || conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = 'public'::regnamespace
     UNION ALL SELECT 'index ' || indexdef FROM pg_indexes WHERE schemaname = 'public'
     UNION ALL SELECT 'storage ' || relname || ' ' || (SELECT string_agg(o, ',' ORDER BY o) FROM unnest(reloptions) o) FROM pg_class
       WHERE relnamespace = 'public'::regnamespace AND reloptions IS NOT NULL
     UNION ALL SELECT 'trigger ' || pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
     UNION ALL SELECT 'function ' || p.proname || ' ' || p.prosrc || ' ' || p.prosecdef || ' ' || coalesce(p.proacl::text, '') FROM pg_proc p WHERE pronamespace = 'public'::regnamespace
     ORDER BY 1`,
  );
  return rows.map(({ thing }) => thing.replace(/ NOT VALID$/, ""));
}
