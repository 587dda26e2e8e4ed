import type mysql2 from "mysql2/promise";
import { afterAll, beforeAll, expect, test } from "vitest";
import { mysql, type MysqlPool } from "../../src/stores/mysql/index.ts";
import { fingerprints } from "../../src/stores/mysql/schema.ts";
import { describeWith } from "../servers/available.ts";
import type { Server } from "../servers/server.ts";
import { both } from "./mariadb-own.ts";
import { emptyDatabase, migrated } from "./mysql-database.ts";
import { relayOn } from "./mysql-relay.ts";

const another = "0".repeat(64);

for (const { name, title, start } of both)
  await describeWith(name, `migrations on ${title}`, () => {
    let server: Server;
    const open: mysql2.Pool[] = [];
    const kept = async (making: Promise<mysql2.Pool>): Promise<mysql2.Pool> => {
      open.push(await making);
      return open.at(-1)!;
    };
    const fresh = (): Promise<mysql2.Pool> => kept(emptyDatabase((database) => server.url(database)));
    const whole = (): Promise<mysql2.Pool> => kept(migrated((database) => server.url(database)));
    beforeAll(async () => {
      server = await start();
    });
    afterAll(async () => {
      for (const pool of open) await pool.end();
      await server[Symbol.asyncDispose]();
    });

    for (const partitions of [undefined, "day"] as const)
      test(`what is printed makes what migrate makes, ${partitions === undefined ? "without" : "with"} partitions`, async () => {
        const layout = partitions === undefined ? {} : { partitions };
        const wanted = await kept(migrated((database) => server.url(database), layout));
        const pool = await fresh();
        // Whatever the mode and the patience of the session that runs it.
        const connection = await pool.getConnection();
        await connection.query("SET SESSION sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES', lock_wait_timeout = 77");
        const before = await settingsOf(connection);
        for (const sql of statementsOf(mysql({ pool, ...layout }).schema.print())) await connection.query(sql);
        expect(await settingsOf(connection)).toEqual(before);
        connection.destroy();
        expect(await mysql({ pool, ...layout }).schema.migrate()).toEqual([]);
        expect(await schemaOf(pool)).toEqual(await schemaOf(wanted));
      });

    test("a migration that is cut off before any of its statements goes on from there", async () => {
      const wanted = await schemaOf(await whole());
      let cuts = 0;
      for (let step = 1; ; step++) {
        const pool = await fresh();
        const cut = cutAt(pool, step);
        const applied = await mysql({ pool: cut })
          .schema.migrate()
          .catch(() => "cut off");
        if (applied !== "cut off") break;
        cuts++;
        await expect(mysql({ pool }).schema.check()).rejects.toMatchObject({ code: "NOT_MIGRATED" });
        expect(await mysql({ pool }).schema.migrate()).toEqual([1]);
        expect(await schemaOf(pool)).toEqual(wanted);
      }
      expect(cuts).toBeGreaterThan(15);
    });

    test("printed statements that were cut off are gone on with, and migrations beside each other wait", async () => {
      const pool = await fresh();
      const store = mysql({ pool });
      const statements = statementsOf(store.schema.print());
      for (const sql of statements.slice(0, Math.floor(statements.length / 2))) await pool.query(sql);
      await expect(store.schema.check()).rejects.toMatchObject({ code: "NOT_MIGRATED" });
      const applied = await Promise.all([1, 2, 3].map(() => store.schema.migrate()));
      expect(applied.flat()).toEqual([1]);
      await store.schema.check();
      expect(await schemaOf(pool)).toEqual(await schemaOf(await whole()));
    });

    const refusals: readonly [what: string, plant: string | readonly string[], code: string, told: RegExp][] = [
      [
        "of a build that wrote no fingerprint",
        ["ALTER TABLE waybill_meta DROP COLUMN fingerprint", "UPDATE waybill_meta SET version = 3"],
        "SCHEMA_UNRELEASED",
        /tables of an unreleased build of Waybill \(version 3;/,
      ],
      ["of an earlier text", `UPDATE waybill_meta SET fingerprint = '${another}'`, "SCHEMA_UNRELEASED", /version 1, text 000000000000;/],
      ["of a newer version", "UPDATE waybill_meta SET version = 999", "SCHEMA_NEWER", /version 999/],
    ];
    test.each(refusals)("tables %s are refused with what to do, and nothing is written", async (_, plant, code, told) => {
      const pool = await whole();
      for (const sql of [plant].flat()) await pool.query(sql);
      const before = await schemaOf(pool);
      for (const look of ["check", "migrate"] as const)
        await expect(mysql({ pool }).schema[look]()).rejects.toMatchObject({ code, message: expect.stringMatching(told) as unknown });
      expect(await schemaOf(pool)).toEqual(before);
    });

    const foreign: readonly [what: string, plant: string | readonly string[]][] = [
      ["a table of the user's own with the name of one of ours", "CREATE TABLE outbox (id INT)"],
      ["a view of the user's own with the name of ours", "CREATE VIEW outbox_events AS SELECT 1 AS one"],
      ["what a migration of an early build left when it was cut off", "CREATE TABLE waybill_keys (id INT)"],
      [
        "what a migration of another text left when it was cut off",
        [
          "CREATE TABLE waybill_meta (id INT NOT NULL PRIMARY KEY, version INT NOT NULL, fingerprint VARCHAR(64) NOT NULL)",
          `INSERT INTO waybill_meta VALUES (1, 0, '${another}')`,
          "CREATE TABLE waybill_keys (id INT)",
        ],
      ],
    ];
    test.each(foreign)("%s is refused by its name, and nothing is written", async (_, plant) => {
      const pool = await fresh();
      for (const sql of [plant].flat()) await pool.query(sql);
      const before = await schemaOf(pool);
      await expect(mysql({ pool }).schema.migrate()).rejects.toMatchObject({
        code: "SCHEMA_UNRELEASED",
        message: expect.stringMatching(/ has a table or view (outbox|outbox_events|waybill_keys) that no released version/) as unknown,
      });
      expect(await schemaOf(pool)).toEqual(before);
    });

    test("a migration under traffic goes on to have nothing to do", async () => {
      const pool = await whole();
      const store = mysql({ pool });
      const relay = await relayOn(store);
      for (let n = 0; n < 5; n++) {
        await Promise.all([
          store.schema.migrate().then((applied) => expect(applied).toEqual([])),
          pool.query("INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', '1', 'E', '1')"),
        ]);
      }
      expect(await relay.drain()).toHaveLength(5);
      expect(fingerprints).toHaveLength(1);
    });
  });

/** As the server's own client reads a script. */
const statementsOf = (script: string): readonly string[] =>
  script
    .replaceAll(/^--.*$/gm, "")
    .split(/DELIMITER (?:\/\/|;)\n?/)
    .flatMap((part) => (part.trimEnd().endsWith("//") ? [part.trimEnd().slice(0, -2)] : part.split(/;\n/)))
    .filter((sql) => sql.trim() !== "");

async function settingsOf(connection: mysql2.PoolConnection): Promise<unknown> {
  const [rows] = await connection.query("SELECT @@SESSION.sql_mode AS mode, @@SESSION.lock_wait_timeout AS patience");
  return rows;
}

/** Fails instead of the nth statement that changes the tables or their version. */
function cutAt(pool: mysql2.Pool, nth: number): MysqlPool {
  let seen = 0;
  const guarded = (connection: mysql2.PoolConnection): mysql2.PoolConnection =>
    new Proxy(connection, {
      get(of, name) {
        const value: unknown = Reflect.get(of, name, of);
        if (name !== "query") return typeof value === "function" ? (value.bind(of) as unknown) : value;
        return async (query: { readonly sql: string }): Promise<unknown> => {
          if (/^\s*(CREATE|ALTER|INSERT|UPDATE)/.test(query.sql) && ++seen === nth) throw new Error("cut off");
          return of.query(query as mysql2.QueryOptions);
        };
      },
    });
  return { end: () => pool.end(), getConnection: async () => guarded(await pool.getConnection()) };
}

/** Everything that statements have made. */
async function schemaOf(pool: mysql2.Pool): Promise<unknown> {
  const [tables] = await pool.query<mysql2.RowDataPacket[]>(
    "SELECT TABLE_NAME AS name, DATABASE() AS place FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() ORDER BY TABLE_NAME",
  );
  const made: string[] = [];
  for (const { name, place } of tables as { name: string; place: string }[]) {
    const [[row]] = await pool.query<mysql2.RowDataPacket[]>(`SHOW CREATE TABLE \`${name}\``);
    made.push(
      String(row!["Create Table"] ?? row!["Create View"])
        .replaceAll(`\`${place}\`.`, "")
        .replace(/ AUTO_INCREMENT=\d+/, ""),
    );
  }
  const [triggers] = await pool.query(
    "SELECT TRIGGER_NAME, ACTION_ORDER, SQL_MODE, ACTION_STATEMENT FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = DATABASE() ORDER BY TRIGGER_NAME",
  );
  const [rows] = await pool.query("SELECT * FROM waybill_meta").catch(() => [null]);
  return { made, triggers, rows };
}
