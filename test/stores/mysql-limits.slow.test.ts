import mysql2 from "mysql2/promise";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Claim, Outcome } from "../../src/contracts/outbox-store.ts";
import { sampleEvent } from "../../src/conformance/corpus.ts";
import { mysql } from "../../src/stores/mysql/index.ts";
import { describeWith } from "../servers/available.ts";
import { startMariadb } from "../servers/mariadb.ts";
import type { Server } from "../servers/server.ts";
import { ownMariadb } from "./mariadb-own.ts";
import { hostileRows, insertHostile } from "./mysql-hostile.ts";
import { relayOn } from "./mysql-relay.ts";
import { version1 } from "./mysql-v1.ts";

const judge = (claim: Claim): Outcome =>
  claim.unreadable === undefined
    ? { claim, as: "published" }
    : { claim, as: "parked", error: `ROW_UNREADABLE: ${claim.unreadable}`, release: false };

await describeWith("mariadb", "what MariaDB's tables refuse, and what they held before", () => {
  const mariadb = ownMariadb();

  mariadb.own(
    "whoever may only insert writes nothing that no relay can carry, whatever their session is set to",
    async ({ pool, rows, database }) => {
      await pool.query(`CREATE USER IF NOT EXISTS inserter@'127.0.0.1'`);
      await pool.query(`GRANT INSERT ON ${database}.outbox TO inserter@'127.0.0.1'`);
      const uri = mariadb.server.url(database).replace("root@", "inserter@");
      const connection = await mysql2.createConnection(uri);
      for (const [at, [about, given]] of Object.entries(hostileRows).entries())
        await expect(insertHostile(connection, at, given), about).rejects.toMatchObject({ errno: 4025, sqlState: "23000" });
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
        { retry_count: 3 },
        { aggregate_id: "é".repeat(127) },
      ];
      for (const [at, given] of good.entries()) await insertHostile(connection, 100 + at, given);
      await connection.end();
      expect(await rows("SELECT COUNT(*) FROM outbox")).toEqual([[good.length]]);
    },
  );

  test("every hostile row of version 1 ends DEAD with the cause in words, or is carried, and all others flow", async () => {
    const pool = await version1((database) => mariadb.server.url(database));
    const connection = await pool.getConnection();
    const good = (n: number): Promise<unknown> =>
      pool.query("INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', ?, 'E', '1')", [`o-${n}`]);
    const expected = Object.entries(hostileRows);
    for (const [at, [, given]] of expected.entries()) await (insertHostile(connection, at, given), good(at));
    await insertHostile(connection, 999, { status: "FAILED", next_attempt_at: null });
    connection.destroy();
    const store = mysql({ pool });
    expect(await store.schema.migrate()).toEqual([2, 3]);
    const relay = await relayOn(store);
    for (let idle = 0; idle < 2;) {
      const window = await relay.claim();
      idle = window.id === null && !window.more ? idle + 1 : 0;
      await relay.settle(window, judge);
    }
    const { states } = await store.operator.status();
    const unreadable = expected.filter(
      ([, given]) => !/^(available_at|status|published_at|retry_count)$/.test(Object.keys(given)[0]!),
    ).length;
    expect(states).toMatchObject({ PENDING: 0, FAILED: 0, BLOCKED: 0, DEAD: unreadable, PUBLISHED: 2 * expected.length + 1 - unreadable });
    for (const { lastError } of await store.operator.list({ state: "DEAD", limit: 100 }))
      expect(lastError).toMatch(/^ROW_UNREADABLE: \w+ \w+/);
    await pool.end();
  });
});

await describeWith("mariadb", "a MariaDB that takes less at once than it did", () => {
  let server: Server;
  beforeAll(async () => {
    server = await startMariadb({ settings: { "max-allowed-packet": "64M" } });
  });
  afterAll(() => server[Symbol.asyncDispose]());

  test("a payload that the server cannot send any more ends DEAD, and is never published empty", async () => {
    const pool = await version1((database) => server.url(database));
    await mysql({ pool }).schema.migrate();
    const add = (id: string, bytes: number): Promise<unknown> =>
      pool.query(
        `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', '${id}', 'E', REPEAT('x', ${bytes}))`,
      );
    await add("small", 10);
    await add("large", 3_000_000);
    await add("small-2", 10);
    const [[{ name }]] = (await pool.query("SELECT DATABASE() AS name")) as unknown as [[{ name: string }]];
    await pool.query("SET GLOBAL max_allowed_packet = 1048576");
    await pool.end();
    for (const bytes of [undefined, 100_000_000, 1_000]) {
      await using store = mysql({ url: server.url(name) });
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
          const read = unread === undefined || (await store.outbox.payload(claim, new AbortController().signal).catch(() => null)) !== null;
          judged.push([envelope.aggregateId, envelope.data.byteLength, unreadable === undefined && read]);
        }
        await relay.settle(window, (claim) => ({ claim, as: "parked", error: "again", release: false }));
      }
      expect(judged.sort()).toEqual([
        ["large", 0, false],
        ["small", 10, true],
        ["small-2", 10, true],
      ]);
      await store.operator.list({ limit: 10 });
      await store.operator.redrive({}, { who: "test", dryRun: false });
      await store.leases.leave(`r-${String(bytes)}`);
    }
  });

  test("a letter of more bytes than one statement takes is kept whole", async () => {
    const pool = await version1((database) => server.url(database));
    const store = mysql({ pool });
    await store.schema.migrate();
    const bytes = Uint8Array.from({ length: 5_000_000 }, (_, n) => (n * 7) & 0xff);
    await pool.query("SET GLOBAL max_allowed_packet = 16777216");
    const [[{ name }]] = (await pool.query("SELECT DATABASE() AS name")) as unknown as [[{ name: string }]];
    await pool.end();
    const again = mysql2.createPool(server.url(name));
    await mysql({ pool: again }).inbox.park({
      envelope: sampleEvent({ data: bytes }),
      raw: bytes,
      topic: "t",
      consumer: "c",
      error: "no",
      attempts: 1,
    });
    const [[{ data, raw }]] = (await again.query("SELECT data, raw FROM waybill_letters")) as unknown as [[{ data: Buffer; raw: Buffer }]];
    expect([data.equals(bytes), raw.equals(bytes)]).toEqual([true, true]);
    await again.end();
  });
});
