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
    expect(await store.schema.migrate()).toEqual([1, 2]);
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
});
