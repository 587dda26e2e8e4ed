import mysql2 from "mysql2/promise";
import { afterAll, beforeAll, expect, test } from "vitest";
import { sampleEvent } from "../../src/conformance/corpus.ts";
import { mysql, type MysqlPool } from "../../src/stores/mysql/index.ts";
import { describeWith } from "../servers/available.ts";
import type { Server } from "../servers/server.ts";
import { both, ownMariadb } from "./mariadb-own.ts";
import { hostileRows, insertHostile, nested } from "./mysql-hostile.ts";
import { relayOn } from "./mysql-relay.ts";
import { migrated } from "./mysql-database.ts";

for (const { name, title, start } of both)
  await describeWith(name, `what the tables of ${title} refuse`, () => {
    const mariadb = ownMariadb(start);

    mariadb.own(
      "whoever may only insert writes nothing that no relay can carry, whatever their session is set to",
      async ({ pool, rows, database }) => {
        await pool.query(`CREATE USER IF NOT EXISTS inserter@'127.0.0.1'`);
        await pool.query(`GRANT INSERT ON ${database}.outbox TO inserter@'127.0.0.1'`);
        const uri = mariadb.server.url(database).replace("root@", "inserter@");
        const connection = await mysql2.createConnection(uri);
        for (const [at, [about, given]] of Object.entries(hostileRows).entries())
          await expect(insertHostile(connection, at, given), about).rejects.toMatchObject({ errno: 4025, sqlState: "23000" });
        // JSON that other programs read, and the server does not: MySQL has an error of its own for it.
        for (const depth of [200, 5_000])
          await expect(insertHostile(connection, depth, { headers: nested(depth) })).rejects.toMatchObject({
            errno: 4025,
            message: "CONSTRAINT `waybill_headers` failed",
          });
        // A rule that is neither true nor false lets nothing through; IGNORE would put something else into these columns.
        const nulls: Readonly<Record<string, null>>[] = ["aggregate_id", "event_type", "content_type", "headers"].map((column) => ({
          [column]: null,
        }));
        for (const [at, given] of nulls.entries()) {
          const row = { aggregate_type: "T", aggregate_id: `null-${at}`, event_type: "E", payload: "1", ...given };
          const values = Object.values(row).map((value) => (value === null ? "NULL" : `'${value}'`));
          await expect(
            connection.query(`INSERT IGNORE INTO outbox (${Object.keys(row).join(", ")}) VALUES (${values.join(", ")})`),
            JSON.stringify(given),
          ).rejects.toMatchObject({ errno: 4025 });
        }
        const good = [
          { headers: '{"a":1.5e-3,"b":[-1,true],"c":"\\u00e9\\n\\\\\\"/"}' },
          { headers: "{}" },
          { headers: JSON.stringify({ a: "x".repeat(16_376) }) },
          { headers: JSON.stringify({ a: '\\"\n'.repeat(2_700) }) },
          { retry_count: 3 },
          { aggregate_id: "é".repeat(127) },
        ];
        for (const [at, given] of good.entries()) await insertHostile(connection, 100 + at, given);
        await connection.end();
        expect(await rows("SELECT COUNT(*) FROM outbox")).toEqual([[good.length]]);
      },
    );
  });

for (const { name, title, start } of both)
  await describeWith(name, `rows that no relay can carry, on ${title}`, () => {
    const { own } = ownMariadb(start);

    own("are parked in as many statements whether there are ten of them or a thousand", async ({ pool, store }) => {
      const [[made]] = (await pool.query("SHOW CREATE TRIGGER waybill_guard")) as unknown as [[Record<string, string>]];
      await pool.query("DROP TRIGGER waybill_guard");
      const asked: string[] = [];
      const counting = mysql({ pool: counted(pool, (sql) => asked.push(sql)) });
      await store.leases.renew("r", 60_000);
      const holding = { relay: "r", lanes: await store.leases.take("r", [...Array(64).keys()]) };
      const statements: number[] = [];
      for (const count of [10, 1_000]) {
        const row = (n: number): string => `('Hostile', 'h-${count}-${n}', 'E', '{}', REPEAT('x', 16000))`;
        await pool.query(
          `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, headers) VALUES ${Array.from({ length: count }, (_, n) => row(n)).join(", ")}`,
        );
        const window = await store.outbox.claim(holding, { limit: count, open: [], narrow: false });
        expect(window.claims.map(({ unreadable }) => unreadable)).toEqual(Array(count).fill("headers are not JSON"));
        asked.length = 0;
        await counting.outbox.settle(
          "r",
          window.id!,
          window.claims.map((claim) => ({ claim, as: "parked", error: "ROW_UNREADABLE: no", release: false })),
        );
        statements.push(asked.length);
      }
      await pool.query(made["SQL Original Statement"]!);
      expect((await store.operator.status()).states).toMatchObject({ PENDING: 0, DEAD: 1_010 });
      expect(statements[1]).toBeLessThanOrEqual(statements[0]!); // the first settle prepares its connection too
      expect(statements[1]).toBeLessThan(15);
    });
  });

/** Names every statement that goes through the pool. */
const counted = (pool: mysql2.Pool, asked: (sql: string) => void): MysqlPool => ({
  end: () => pool.end(),
  getConnection: async () =>
    new Proxy(await pool.getConnection(), {
      get(of, name) {
        const value: unknown = Reflect.get(of, name, of);
        if (name !== "query") return typeof value === "function" ? (value.bind(of) as unknown) : value;
        return (query: mysql2.QueryOptions): unknown => (asked(query.sql), of.query(query));
      },
    }),
});

for (const { name, title, start } of both)
  await describeWith(name, `a ${title} that takes less at once than it did`, () => {
    let server: Server;
    beforeAll(async () => {
      server = await start({ settings: { "max-allowed-packet": "64M" } });
    });
    afterAll(() => server[Symbol.asyncDispose]());

    test("a payload that the server may not send any more ends DEAD or is published whole, and never empty", async () => {
      const pool = await migrated((database) => server.url(database));
      const add = (id: string, bytes: number): Promise<unknown> =>
        pool.query(
          `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', '${id}', 'E', REPEAT('x', ${bytes}))`,
        );
      await add("small", 10);
      await add("large", 3_000_000);
      await add("small-2", 10);
      const [[{ database }]] = (await pool.query("SELECT DATABASE() AS `database`")) as unknown as [[{ database: string }]];
      await pool.query("SET GLOBAL max_allowed_packet = 1048576");
      await pool.end();
      for (const bytes of [undefined, 100_000_000, 1_000]) {
        await using store = mysql({ url: server.url(database) });
        const relay = await relayOn(store, `r-${String(bytes)}`);
        const judged: [string, number, boolean][] = [];
        for (let tries = 0; judged.length < 3 && tries < 10; tries++) {
          const window = await store.outbox.claim(relay.holding, {
            limit: 10,
            open: [],
            narrow: false,
            ...(bytes === undefined ? {} : { bytes }),
          });
          for (const claim of window.claims) {
            const { envelope, unreadable, unread } = claim;
            // What is claimed without its payload is read apart.
            const data =
              unread === undefined ? envelope.data : await store.outbox.payload(claim, new AbortController().signal).catch(() => null);
            judged.push([envelope.aggregateId, data?.byteLength ?? 0, unreadable === undefined && data !== null]);
          }
          await relay.settle(window, (claim) => ({ claim, as: "parked", error: "again", release: false }));
        }
        expect(judged.sort()).toEqual([
          // MySQL sends more than that all the same.
          name === "mariadb" ? ["large", 0, false] : ["large", 3_000_000, true],
          ["small", 10, true],
          ["small-2", 10, true],
        ]);
        await store.operator.list({ limit: 10 });
        await store.operator.redrive({}, { who: "test", dryRun: false });
        await store.leases.leave(`r-${String(bytes)}`);
      }
    });

    test("a letter of more bytes than one statement takes is kept whole", async () => {
      const pool = await migrated((database) => server.url(database));
      const bytes = Uint8Array.from({ length: 5_000_000 }, (_, n) => (n * 7) & 0xff);
      await pool.query("SET GLOBAL max_allowed_packet = 16777216");
      const [[{ database }]] = (await pool.query("SELECT DATABASE() AS `database`")) as unknown as [[{ database: string }]];
      await pool.end();
      const again = mysql2.createPool(server.url(database));
      await mysql({ pool: again }).inbox.park({
        envelope: sampleEvent({ data: bytes }),
        raw: bytes,
        topic: "t",
        consumer: "c",
        error: "no",
        attempts: 1,
      });
      const [[{ data, raw }]] = (await again.query("SELECT data, raw FROM waybill_letters")) as unknown as [
        [{ data: Buffer; raw: Buffer }],
      ];
      expect([data.equals(bytes), raw.equals(bytes)]).toEqual([true, true]);
      await again.end();
    });
  });
