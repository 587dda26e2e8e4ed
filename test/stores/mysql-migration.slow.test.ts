import type mysql2 from "mysql2/promise";
import { afterAll, beforeAll, expect, test } from "vitest";
import { mysql, type MysqlPool } from "../../src/stores/mysql/index.ts";
import { describeWith } from "../servers/available.ts";
import { startMariadb } from "../servers/mariadb.ts";
import type { Server } from "../servers/server.ts";
import { relayOn } from "./mysql-relay.ts";
import { tablesOf, version1 } from "./mysql-v1.ts";

await describeWith("mariadb", "from earlier versions on MariaDB", () => {
  let server: Server;
  const open: mysql2.Pool[] = [];
  const old = async (): Promise<mysql2.Pool> => {
    open.push(await version1((database) => server.url(database)));
    return open.at(-1)!;
  };
  beforeAll(async () => {
    server = await startMariadb();
  });
  afterAll(async () => {
    for (const pool of open) await pool.end();
    await server[Symbol.asyncDispose]();
  });

  test("tables of version 2 become those of version 1 that was migrated, and their errors are told and found", async () => {
    const whole = await old();
    await mysql({ pool: whole }).schema.migrate();
    const pool = await tablesOf(2, (database) => server.url(database));
    open.push(pool);
    await pool.query(
      "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, status, last_error) VALUES ('Order', '1', 'E', '1', 'DEAD', 'MESSAGE_TOO_LARGE: no')",
    );
    const store = mysql({ pool });
    expect(await store.schema.migrate()).toEqual([3]);
    expect(await schemaOf(pool)).toEqual(await schemaOf(whole));
    expect((await store.operator.status()).dead).toMatchObject([{ error: "MESSAGE_TOO_LARGE: no", events: 1 }]);
    expect((await store.operator.redrive({ error: "MESSAGE_TOO" }, { who: "ann", dryRun: true })).events).toBe(1);
  });

  test("a migration that is cut off before any of its steps goes on from there", async () => {
    const whole = await old();
    expect(await mysql({ pool: whole }).schema.migrate()).toEqual([2, 3]);
    const wanted = await schemaOf(whole);
    let cuts = 0;
    for (let step = 1; ; step++) {
      const pool = await old();
      const cut = cutAt(pool, step);
      const applied = await mysql({ pool: cut })
        .schema.migrate()
        .catch(() => "cut off");
      if (applied !== "cut off") break;
      cuts++;
      await expect(mysql({ pool }).schema.check()).rejects.toMatchObject({ code: "NOT_MIGRATED" });
      expect([[2, 3], [3]]).toContainEqual(await mysql({ pool }).schema.migrate());
      expect(await schemaOf(pool)).toEqual(wanted);
    }
    expect(cuts).toBeGreaterThan(5);
  });

  test("writers of version 1 go on while it migrates, and nothing of theirs is lost or refused", async () => {
    const pool = await old();
    await pool.query(
      "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) SELECT 'Order', CONCAT('old-', seq), 'E', '1' FROM seq_1_to_20000",
    );
    await pool.query("INSERT INTO inbox (consumer, event_id, handler_version) SELECT 'c', seq, 1 FROM seq_1_to_20000");
    let busy = true;
    let written = 0;
    const writing = Array.from({ length: 6 }, async (_, writer) => {
      for (let n = 0; busy; n++) {
        const connection = await pool.getConnection();
        await connection.query("START TRANSACTION");
        await connection.query(
          "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, idempotency_key) VALUES ('Order', ?, 'E', '1', ?)",
          [`new-${writer}`, `${writer}-${n}`],
        );
        await connection.query("INSERT INTO inbox (consumer, event_id, handler_version) VALUES ('c', ?, 1)", [`${writer}-${n}`]);
        await connection.query("COMMIT");
        connection.release();
        written++;
      }
    });
    while (written < 50) await Promise.race([...writing, new Promise((resolve) => setImmediate(resolve))]);
    const before = written;
    const store = mysql({ pool });
    const applied = await store.schema.migrate();
    while (written < before + 100) await Promise.race([...writing, new Promise((resolve) => setImmediate(resolve))]);
    busy = false;
    await Promise.all(writing);
    expect(applied).toEqual([2, 3]);
    const relay = await relayOn(store);
    expect(await relay.drain()).toHaveLength(20_000 + written);
    expect(await store.inbox.once({ consumer: "c", id: "1" }, 1, () => undefined)).toBe("seen");
    expect(await store.inbox.once({ consumer: "c", id: "0-0" }, 1, () => undefined)).toBe("seen");
  });
});

/** Fails instead of the nth statement that changes the tables or their version. */
function cutAt(pool: mysql2.Pool, nth: number): MysqlPool {
  let seen = 0;
  const guarded = (connection: mysql2.PoolConnection): mysql2.PoolConnection =>
    new Proxy(connection, {
      get(of, name) {
        const value: unknown = Reflect.get(of, name, of);
        if (name !== "query") return typeof value === "function" ? (value.bind(of) as unknown) : value;
        return async (query: { readonly sql: string }): Promise<unknown> => {
          if (/^\s*(CREATE|ALTER|INSERT)/.test(query.sql) && ++seen === nth) throw new Error("cut off");
          return of.query(query as mysql2.QueryOptions);
        };
      },
    });
  return { end: () => pool.end(), getConnection: async () => guarded(await pool.getConnection()) };
}

async function schemaOf(pool: mysql2.Pool): Promise<unknown> {
  const [columns] = await pool.query(
    `SELECT TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, COLUMN_DEFAULT, IS_NULLABLE FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE()
     ORDER BY TABLE_NAME, ORDINAL_POSITION`,
  );
  const [triggers] = await pool.query(
    "SELECT TRIGGER_NAME, ACTION_STATEMENT FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = DATABASE() ORDER BY TRIGGER_NAME",
  );
  const [checks] = await pool.query(
    "SELECT TABLE_NAME, CONSTRAINT_NAME FROM information_schema.CHECK_CONSTRAINTS WHERE CONSTRAINT_SCHEMA = DATABASE() ORDER BY CONSTRAINT_NAME",
  );
  return { columns, triggers, checks };
}
