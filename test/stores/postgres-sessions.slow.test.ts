import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Inbox } from "../../src/contracts/inbox.ts";
import { MarkHeld } from "../../src/core/blameless.ts";
import { fromPg } from "../../src/outbox/handles/index.ts";
import { postgres, type PgClient } from "../../src/stores/postgres/index.ts";
import { describeWith } from "../servers/available.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";
import { harnessOn, type PostgresHarness } from "./postgres-harness.ts";

const key = { consumer: "c", id: "e1" };
const dead = { name: "WaybillError", code: "STORE_UNAVAILABLE", message: expect.stringContaining("ended the session") as string };

await describeWith("postgres", "a handler's session on PostgreSQL", () => {
  let server: Postgres;
  let harness: PostgresHarness;
  beforeAll(async () => {
    server = await startPostgres({ version: 15 });
    harness = await harnessOn(() => server.url())();
  });
  afterAll(async () => {
    await harness.close();
    await server[Symbol.asyncDispose]();
  });

  const ways: Readonly<Record<string, () => Inbox<PgClient>>> = {
    "the store's own client": () => harness.store.inbox,
    "a handle": () => postgres({ pool: harness.pool, schema: harness.schema, tx: fromPg, db: harness.pool }).inbox,
  };
  const effects = async (): Promise<unknown[]> =>
    (await harness.pool.query<{ name: string }>(`SELECT name FROM ${harness.schema}.effects`)).rows;
  const kill = async (tx: PgClient): Promise<void> => {
    const { rows } = await tx.query("SELECT pg_backend_pid() AS pid");
    await harness.pool.query("SELECT pg_terminate_backend($1, 10000)", [rows[0]!["pid"]]);
  };

  for (const [name, inbox] of Object.entries(ways)) {
    const write = (tx: PgClient) => tx.query(`INSERT INTO ${harness.schema}.effects VALUES ('alone')`);
    test(`after a ROLLBACK of the handler's own, its handle takes no statement: ${name}`, async () => {
      const going = inbox().once(key, 1, async (tx) => {
        await tx.query("ROLLBACK");
        await write(tx);
      });
      await expect(going).rejects.toMatchObject({ code: "NO_TRANSACTION" });
      const swallowing = inbox().once(key, 1, async (tx) => {
        await tx.query("ROLLBACK");
        await Promise.resolve()
          .then(() => write(tx))
          .catch(() => undefined);
      });
      await expect(swallowing).rejects.toMatchObject({ code: "TRANSACTION_LOST" });
      expect(await effects()).toEqual([]);
    });

    test(`a transaction that the handler began in place of its own is not committed: ${name}`, async () => {
      const lost = { ...key, id: `lost ${name.length}` };
      const replacing = inbox().once(lost, 1, async (tx) => {
        await tx.query("ROLLBACK; BEGIN");
        await write(tx);
      });
      await expect(replacing).rejects.toMatchObject({ code: "TRANSACTION_LOST" });
      expect(await effects()).toEqual([]);
      const again = inbox().once(lost, 1, () => undefined);
      // Through a handle, a statement between the two would have been kept.
      if (name === "a handle") await expect(again).rejects.toMatchObject({ code: "EFFECT_UNFINISHED" });
      else expect(await again).toBe("done");
    });

    test(`who waits for a mark that another transaction holds is told so: ${name}`, async () => {
      const held = await harness.begin();
      await held.tx.query(
        `INSERT INTO ${harness.schema}.inbox (consumer, event_id, processed_at, handler_version, finished) VALUES ('c', 'held ${name.length}', now(), 1, false)`,
      );
      const pool = new pg.Pool({ connectionString: server.url(), max: 2, options: "-c lock_timeout=300" });
      const options = { pool, schema: harness.schema, statementTimeoutMs: 300 };
      const other = name === "a handle" ? postgres({ ...options, tx: fromPg, db: pool }) : postgres(options);
      await expect(other.inbox.once({ consumer: "c", id: `held ${name.length}` }, 1, () => undefined)).rejects.toBeInstanceOf(MarkHeld);
      await held.rollback();
      expect(await other.inbox.once({ consumer: "c", id: `held ${name.length}` }, 1, () => undefined)).toBe("done");
      await pool.end();
    });

    test(`the database's end of the session is told as that, whatever the handler threw: ${name}`, async () => {
      const ended = { ...key, id: `ended ${name.length}` };
      const raw = inbox().once(ended, 1, async (tx) => {
        await kill(tx);
        await write(tx);
      });
      await expect(raw).rejects.toMatchObject(dead);
      const wrapped = inbox().once(ended, 1, async (tx) => {
        await kill(tx);
        throw new Error("it did not work");
      });
      await expect(wrapped).rejects.toMatchObject(dead);
      await expect(inbox().once(ended, 1, kill)).rejects.toMatchObject(dead); // it did not notice
      const refused = Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED" });
      await expect(inbox().once(ended, 1, () => Promise.reject(refused))).rejects.toBe(refused); // somebody else's link
      const failing = inbox().once(ended, 1, async (tx) => void (await tx.query("SELECT 1/0")));
      await expect(failing).rejects.toMatchObject({ code: "22012" });
      expect(await effects()).toEqual([]);
    });
  }
});
