import { inspect } from "node:util";
import mysql2 from "mysql2/promise";
import { expect } from "vitest";
import type { SqlTransaction } from "../../src/contracts/handle.ts";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { mysql } from "../../src/stores/mysql/index.ts";
import { describeWith } from "../servers/available.ts";
import { ownMariadb } from "./mariadb-own.ts";
import { relayOn } from "./mysql-relay.ts";

const secret = "payload-of-a-customer";
const hex = Buffer.from(secret).toString("hex");

await describeWith("mariadb", "sessions of MariaDB's users", () => {
  const mariadb = ownMariadb();
  const { own } = mariadb;

  own("under EMPTY_STRING_IS_NULL everything works as it does elsewhere", async ({ database, rows }) => {
    const pool = mysql2.createPool({ uri: mariadb.server.url(database), connectionLimit: 4 });
    pool.on("connection", (connection) => void connection.query("SET SESSION sql_mode = CONCAT(@@sql_mode, ',EMPTY_STRING_IS_NULL')"));
    const store = mysql({ pool });
    await pool.query("DROP TRIGGER waybill_use_key");
    await pool.query("UPDATE waybill_meta SET version = 0"); // so that the triggers are made in this mode
    expect(await store.schema.migrate()).toEqual([1]);
    const outbox = createOutbox({ store });
    const draft = { aggregateType: "Order", aggregateId: "o", type: "E", payload: "", contentType: "text/plain", headers: { empty: "" } };
    await outbox.transaction(pool, (tx) => outbox.add(tx, [draft, { ...draft, payload: new Uint8Array(0), idempotencyKey: "k" }]));
    const again = await outbox.transaction(pool, (tx) => outbox.add(tx, { ...draft, idempotencyKey: "k" }));
    expect(again.duplicate).toBe(true);
    const connection = await pool.getConnection();
    await expect(outbox.add(connection, draft)).rejects.toMatchObject({ code: "NO_TRANSACTION" });
    connection.release();
    const relay = await relayOn(store);
    const window = await relay.claim();
    expect(window.claims.map(({ envelope, unreadable }) => [envelope.headers, envelope.data.byteLength, unreadable])).toEqual([
      [{ empty: "" }, 2, undefined],
      [{ empty: "" }, 0, undefined],
    ]);
    await relay.settle(window, (claim) => ({ claim, as: "retry", afterMs: 0, error: "" }));
    expect(await relay.drain()).toHaveLength(2);
    expect(await store.inbox.once({ consumer: "c", id: "1" }, 1, () => undefined)).toBe("done");
    expect(await store.inbox.once({ consumer: "c", id: "1" }, 1, () => undefined)).toBe("seen");
    expect(await store.inbox.failed({ consumer: "c", id: "2" }, "")).toBe(1);
    expect((await store.operator.status()).states.PUBLISHED).toBe(2);
    await store.operator.list({ limit: 10 });
    expect(await rows("SELECT last_error FROM outbox")).toEqual([[""], [""]]);
    await pool.end();
  });

  own("no error of a statement of ours carries what was added, be it the client's or a library's", async ({ pool, store }) => {
    const outbox = createOutbox({ store });
    const id = "01890000-0000-7000-8000-000000000000";
    const draft = { id, aggregateType: "Order", aggregateId: "o", type: "E", payload: secret, headers: { h: secret } };
    await outbox.transaction(pool, (tx) => outbox.add(tx, draft));
    const clean = (error: unknown): void => {
      expect(error).toBeInstanceOf(Error);
      const told = inspect(error, { depth: 10, showHidden: true, maxStringLength: null });
      expect(told).not.toContain(hex);
      expect(told).not.toContain(secret);
    };
    clean(await outbox.transaction(pool, (tx) => outbox.add(tx, draft)).catch((error: unknown) => error));
    const connection = await pool.getConnection();
    clean(await outbox.add(connection, draft).catch((error: unknown) => error));
    const library: SqlTransaction = {
      query: async (sql) => {
        const found = await connection.query(sql).catch((cause: unknown) => {
          throw Object.assign(new Error(`Failed query: ${sql}`, { cause }), { query: sql });
        });
        return { rows: found[0] as Record<string, unknown>[] };
      },
    };
    await connection.query("START TRANSACTION");
    clean(
      await store.writer
        .append(library, [{ ...draft, eventVersion: 1, contentType: "application/json", idempotencyKey: null, availableAt: null }])
        .catch((error: unknown) => error),
    );
    await connection.query("ROLLBACK");
    connection.release();
    clean(await store.inbox.failed({ consumer: "x".repeat(1_000), id: "1" }, secret).catch((error: unknown) => error));
  });

  const settings = {
    sql_select_limit: "10",
    max_join_size: "10",
    sql_safe_updates: "1",
    sql_auto_is_null: "1",
    completion_type: "1",
    unique_checks: "0",
    tx_read_only: "1",
    tx_isolation: "'SERIALIZABLE'",
    autocommit: "0",
    sql_mode: "'ANSI,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH'",
    character_set_server: "latin1",
    collation_connection: "latin1_swedish_ci",
    character_set_client: "latin1",
    character_set_results: "latin1",
    time_zone: "'+09:00'",
    group_concat_max_len: "4",
    max_sort_length: "8",
    div_precision_increment: "0",
    in_predicate_conversion_threshold: "2",
    optimizer_switch: "'mrr=on,join_cache_hashed=off,derived_merge=off'",
    default_week_format: "3",
    old_mode: "'NO_PROGRESS_INFO'",
    foreign_key_checks: "0",
    check_constraint_checks: "0",
  };
  for (const [name, value] of Object.entries(settings))
    own(`a server whose default is ${name} = ${value} publishes every event once and in order`, async ({ database, pool, store }) => {
      const [[{ before }]] = (await pool.query(`SELECT @@global.${name} AS \`before\``)) as unknown as [[{ before: unknown }]];
      await createOutbox({ store }).transaction(pool, (tx, events) => {
        for (let n = 0; n < 300; n++)
          events.add({ aggregateType: "Ord\u00e9r", aggregateId: `\u00e9-${n % 70}`, type: "E", payload: { n, text: "\u{1f9ed}" } });
      });
      await pool.query(`SET GLOBAL ${name} = ${value}`);
      try {
        await using fresh = mysql({ url: mariadb.server.url(database) });
        const relay = await relayOn(fresh);
        const seen: { n: number; text: string }[] = [];
        for (let window = await relay.claim(); window.id !== null || window.more; window = await relay.claim()) {
          for (const { envelope } of window.claims) {
            expect(envelope.aggregateType).toBe("Ord\u00e9r");
            seen.push(JSON.parse(Buffer.from(envelope.data).toString()) as { n: number; text: string });
          }
          await relay.settle(window, (claim) => ({ claim, as: "published" }));
        }
        expect(relay.holding.lanes.size).toBe(64);
        expect(seen).toEqual(Array.from({ length: 300 }, (_, n) => ({ n, text: "\u{1f9ed}" })));
        expect(await fresh.inbox.once({ consumer: "c", id: "1" }, 1, () => undefined)).toBe("done");
        expect(await fresh.inbox.once({ consumer: "c", id: "1" }, 1, () => undefined)).toBe("seen");
        expect((await fresh.operator.status()).states.PUBLISHED).toBe(300);
      } finally {
        await pool.query(`SET GLOBAL ${name} = ?`, [before]);
      }
    });

  for (const [name, value] of [
    ["sql_select_limit", "10"],
    ["completion_type", "1"],
  ] as const)
    own(`a pool of the application's whose sessions have ${name} = ${value} is refused`, async ({ database }) => {
      const given = mysql2.createPool({ uri: mariadb.server.url(database), connectionLimit: 2 });
      given.on("connection", (connection) => void connection.query(`SET SESSION ${name} = ${value}`));
      await expect(mysql({ pool: given }).leases.look()).rejects.toMatchObject({ code: "INVALID_OPTION" });
      await given.end();
    });

  own(
    "under sql_select_limit, events that are added again under their keys are known as duplicates, however many",
    async ({ store, pool }) => {
      const outbox = createOutbox({ store });
      const drafts = ["a", "b", "c"].map((idempotencyKey) => ({
        aggregateType: "Order",
        aggregateId: "o",
        type: "E",
        payload: 1,
        idempotencyKey,
      }));
      await outbox.transaction(pool, (tx) => outbox.add(tx, drafts));
      const connection = await pool.getConnection();
      await connection.query("SET SESSION sql_select_limit = 1");
      await connection.query("START TRANSACTION");
      const again = await outbox.add(connection, drafts);
      await connection.query("ROLLBACK");
      connection.destroy();
      expect(again.map(({ duplicate }) => duplicate)).toEqual([true, true, true]);
    },
  );
});
