import { sql } from "drizzle-orm";
import { mysqlTable, text as mysqlText } from "drizzle-orm/mysql-core";
import { drizzle as onMysql2 } from "drizzle-orm/mysql2";
import { drizzle as onNodePostgres, type NodePgDatabase } from "drizzle-orm/node-postgres";
import { pgSchema, text } from "drizzle-orm/pg-core";
import { drizzle as onPostgresJs } from "drizzle-orm/postgres-js";
import type { Connection as Mysql2Connection } from "mysql2/promise";
import postgresJs from "postgres";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Inbox } from "../../src/contracts/inbox.ts";
import { fromDrizzle, fromMysql2, fromPg, fromPostgresJs } from "../../src/outbox/handles/index.ts";
import { mysql } from "../../src/stores/mysql/index.ts";
import { postgres, type PgClient } from "../../src/stores/postgres/index.ts";
import { describeWith } from "../servers/available.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";
import { ownMariadb } from "../stores/mariadb-own.ts";
import { harnessOn, type PostgresHarness } from "../stores/postgres-harness.ts";

/** What a handler that nobody waits for any more goes on with, once it is let go. */
type Late<Tx> = (tx: Tx, gate: Promise<void>) => Promise<unknown>;

/** A handler that times out, a second attempt that works, and only then the rest of the first. */
async function overtaken<Tx>(inbox: Inbox<Tx>, id: string, late: Late<Tx>, works: (tx: Tx) => Promise<unknown>): Promise<void> {
  const key = { consumer: "c", id };
  let open = (): void => undefined;
  const gate = new Promise<void>((resolve) => (open = resolve));
  let rest: Promise<unknown> = Promise.resolve();
  const first = inbox.once(key, 1, async (tx) => {
    rest = late(tx, gate);
    rest.catch(() => undefined);
    for (let turns = 0; turns < 3; turns++) await works(tx); // what `late` prepares is sent by then
    throw new Error("timed out");
  });
  await expect(first).rejects.toThrow("timed out");
  expect(await inbox.once(key, 1, async (tx) => void (await works(tx)))).toBe("done");
  open();
  await expect(rest, "a late statement is refused").rejects.toThrow();
}

await describeWith("postgres", "statements of a handler that comes late, on PostgreSQL", () => {
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

  const effectsOf = async (name: string): Promise<number> => (await harness.effects()).filter((each) => each === name).length;
  const tableOf = () => pgSchema(harness.schema).table("effects", { name: text("name") });

  type DrizzleTx = Parameters<Parameters<NodePgDatabase["transaction"]>[0]>[0];
  const built =
    (id: string): Late<DrizzleTx> =>
    async (tx, gate) => {
      const insert = tx.insert(tableOf()).values({ name: id });
      await gate;
      await insert;
    };
  const nested =
    (id: string): Late<DrizzleTx> =>
    (tx, gate) =>
      tx.transaction(async (inner) => {
        await gate;
        await inner.insert(tableOf()).values({ name: id });
      });

  const drizzles = {
    "node-postgres": () => {
      const db = onNodePostgres(harness.pool);
      return { inbox: postgres({ pool: harness.pool, schema: harness.schema, tx: fromDrizzle, db }).inbox, end: async () => undefined };
    },
    "postgres.js": () => {
      const client = postgresJs(server.url(), { max: 3 });
      const { inbox } = postgres({ pool: harness.pool, schema: harness.schema, tx: fromDrizzle, db: onPostgresJs(client) });
      return { inbox: inbox as unknown as Inbox<DrizzleTx>, end: () => client.end({ timeout: 1 }) };
    },
  };
  for (const [driver, openOn] of Object.entries(drizzles))
    for (const [how, late] of Object.entries({ built, nested }))
      test(`have no effect: Drizzle on ${driver}, ${how}`, async () => {
        const { inbox, end } = openOn();
        const id = `${driver} ${how}`;
        await overtaken(inbox, id, late(id), (tx) => tx.insert(tableOf()).values({ name: id }));
        expect(await effectsOf(id)).toBe(1);
        await end();
      });

  test("that were built before a ROLLBACK of the handler's own have none: Drizzle on node-postgres", async () => {
    const db = onNodePostgres(harness.pool);
    const { inbox } = postgres({ pool: harness.pool, schema: harness.schema, tx: fromDrizzle, db });
    const rolledBack = inbox.once({ consumer: "c", id: "rolled" }, 1, async (tx) => {
      const insert = tx.insert(tableOf()).values({ name: "rolled" });
      await tx.execute(sql`ROLLBACK`);
      await insert;
    });
    await expect(rolledBack).rejects.toThrow();
    expect(await effectsOf("rolled")).toBe(0);
  });

  test("have no effect: postgres.js, built and in a savepoint", async () => {
    const db = postgresJs(server.url(), { max: 3 });
    const { inbox } = postgres({ pool: harness.pool, schema: harness.schema, tx: fromPostgresJs, db });
    const insert = (tx: postgresJs.TransactionSql, id: string) => tx`INSERT INTO ${tx(`${harness.schema}.effects`)} VALUES (${id})`;
    await overtaken(
      inbox,
      "js built",
      async (tx, gate) => {
        const query = insert(tx, "js built");
        await gate;
        await query;
      },
      (tx) => insert(tx, "js built"),
    );
    await overtaken(
      inbox,
      "js nested",
      (tx, gate) => tx.savepoint((inner) => gate.then(() => insert(inner, "js nested"))),
      (tx) => insert(tx, "js nested"),
    );
    expect([await effectsOf("js built"), await effectsOf("js nested")]).toEqual([1, 1]);
    await db.end({ timeout: 1 });
  });

  const clients: Readonly<Record<string, () => Inbox<PgClient>>> = {
    "the application's pool": () => harness.store.inbox,
    "a pool of the store's own": () => postgres({ url: server.url(), schema: harness.schema, connections: 2 }).inbox,
    fromPg: () => postgres({ pool: harness.pool, schema: harness.schema, tx: fromPg, db: harness.pool }).inbox,
  };
  for (const [name, open] of Object.entries(clients))
    test(`a client whose handler failed is used by no other event: ${name}`, async () => {
      const inbox = open();
      const pids: unknown[] = [];
      const look = async (tx: PgClient): Promise<void> =>
        void pids.push((await tx.query("SELECT pg_backend_pid() AS pid")).rows[0]!["pid"]);
      const failing = inbox.once({ consumer: "c", id: name }, 1, async (tx) => {
        await look(tx);
        throw new Error("timed out");
      });
      await expect(failing).rejects.toThrow("timed out");
      for (let n = 0; n < 14; n++) await inbox.once({ consumer: "c", id: `${name} ${n}` }, 1, look);
      expect(pids.slice(1)).not.toContain(pids[0]);
      expect(new Set(pids.slice(1)).size, "a client whose handler succeeded is used again").toBe(1);
    });
});

await describeWith("mariadb", "statements of a handler that comes late, on MariaDB", () => {
  const { own } = ownMariadb();
  const insert = "INSERT INTO effects VALUES ('late')";

  own("have no effect: a prepared one of mysql2, and its connection is used by no other event", async (harness) => {
    const late: Late<Mysql2Connection> = async (tx, gate) => {
      const statement = await tx.prepare(insert);
      await gate;
      await statement.execute([]);
    };
    const inboxes = [harness.store.inbox, mysql({ pool: harness.pool, tx: fromMysql2, db: harness.pool }).inbox];
    for (const [n, inbox] of inboxes.entries()) {
      const numbers: unknown[] = [];
      const works = async (tx: Mysql2Connection): Promise<void> => {
        await tx.query(insert);
        numbers.push(((await tx.query("SELECT CONNECTION_ID() AS id")) as unknown as [[{ id: number }]])[0][0].id);
      };
      await overtaken(inbox as unknown as Inbox<Mysql2Connection>, `e${n}`, late, works);
      expect(numbers.at(-1)).not.toBe(numbers[0]);
      expect(await harness.effects()).toHaveLength(n + 1);
    }
  });

  own("have no effect: Drizzle on mysql2", async (harness) => {
    const effects = mysqlTable("effects", { name: mysqlText("name") });
    const { inbox } = mysql({ pool: harness.pool, tx: fromDrizzle, db: onMysql2(harness.pool) });
    await overtaken(
      inbox,
      "e",
      async (tx, gate) => {
        const built = tx.insert(effects).values({ name: "late" });
        await gate;
        await built;
      },
      (tx) => tx.insert(effects).values({ name: "late" }),
    );
    expect(await harness.effects()).toEqual(["late"]);
  });
});
