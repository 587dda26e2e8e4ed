import { setTimeout as sleep } from "node:timers/promises";
import mysql2 from "mysql2/promise";
import { expect } from "vitest";
import { sampleEvent } from "../../src/conformance/corpus.ts";
import type { Inbox } from "../../src/contracts/inbox.ts";
import { MarkHeld } from "../../src/core/blameless.ts";
import { fromMysql2 } from "../../src/outbox/handles/index.ts";
import { mysql, type MysqlConnection } from "../../src/stores/mysql/index.ts";
import { describeWith } from "../servers/available.ts";
import { ownMariadb } from "./mariadb-own.ts";
import type { MysqlHarness } from "./mysql-harness.ts";

const key = (id: string) => ({ consumer: "billing", id });
const mebibyte = 1024 * 1024;

await describeWith("mariadb", "a handler's session on MariaDB", () => {
  const mariadb = ownMariadb();
  const { own } = mariadb;
  const letter = (bytes: Uint8Array, raw: boolean) => ({
    envelope: sampleEvent(raw ? {} : { data: bytes }),
    topic: "order.events",
    consumer: "billing",
    error: "HANDLER_FAILED: no",
    attempts: 5,
    ...(raw ? { raw: bytes } : {}),
  });

  own("a letter that the server cannot put together is refused, also where its sessions are not strict", async (harness) => {
    const pool = mysql2.createPool({ uri: mariadb.server.url(harness.database), connectionLimit: 2 });
    pool.on("connection", (connection) => void connection.query("SET SESSION sql_mode = ''"));
    const { inbox } = mysql({ pool: pool });
    for (const raw of [false, true]) {
      const large = new Uint8Array(17 * mebibyte).fill(97);
      await expect(inbox.park(letter(large, raw))).rejects.toMatchObject({ code: "PAYLOAD_TOO_LARGE" });
      expect(await harness.letters()).toEqual([]);
      await inbox.park(letter(large.subarray(0, 5 * mebibyte), raw));
      const [kept] = await harness.letters();
      expect((raw ? kept!.raw : kept!.data)?.byteLength).toBe(5 * mebibyte);
      await harness.pool.query("DELETE FROM waybill_letters");
    }
    await pool.end();
  });

  const ways: Readonly<
    Record<string, (pool: mysql2.Pool, url: string) => Inbox<MysqlConnection> & { readonly end?: () => Promise<void> }>
  > = {
    "the application's pool": (pool) => mysql({ pool }).inbox,
    "a pool of the store's own": (_, url) => {
      const store = mysql({ url, connections: 1 });
      return { ...store.inbox, end: () => Promise.resolve(store[Symbol.asyncDispose]()) };
    },
    "a library's handle": (pool) => mysql({ pool, tx: fromMysql2, db: pool }).inbox,
  };
  for (const [way, open] of Object.entries(ways))
    for (const migrated of [false, true])
      own(
        `USE in a handler changes the database of no other event, nor where its mark goes (${way}, tables there: ${migrated})`,
        async (harness) => {
          const other = `other_${process.pid}_${Object.keys(ways).indexOf(way)}_${Number(migrated)}`;
          await harness.pool.query(`CREATE DATABASE ${other}`);
          await harness.pool.query(`CREATE TABLE ${other}.effects (name VARCHAR(255))`);
          const there = mysql({ url: mariadb.server.url(other) });
          if (migrated) await there.schema.migrate();
          await there[Symbol.asyncDispose]();
          const url = mariadb.server.url(harness.database);
          const pool = mysql2.createPool({ uri: url, connectionLimit: 1 });
          const inbox = open(pool, url);
          const effect = async (tx: MysqlConnection): Promise<void> => void (await tx.query("INSERT INTO effects VALUES ('x')"));
          const uses = async (tx: MysqlConnection): Promise<void> => {
            await tx.query(`USE ${other}`);
            await effect(tx);
          };
          const fails = inbox.once(key("failing"), 1, async (tx) => {
            await uses(tx);
            throw new Error("no");
          });
          await expect(fails).rejects.toThrow("no");
          expect(await inbox.once(key("after"), 1, effect)).toBe("done");
          expect(await inbox.once(key("uses"), 1, uses)).toBe("done");
          for (let n = 0; n < 3; n++) expect(await inbox.once(key(`e${n}`), 1, effect)).toBe("done");
          for (let n = 0; n < 3; n++) expect(await inbox.once(key(`e${n}`), 1, effect)).toBe("seen");
          expect(await harness.effects()).toHaveLength(4);
          expect(await harness.rows(`SELECT * FROM ${other}.effects`)).toHaveLength(1);
          expect(await harness.rows("SELECT 1 FROM inbox WHERE finished = 1")).toHaveLength(5);
          if (migrated) expect(await harness.rows(`SELECT 1 FROM ${other}.inbox`)).toEqual([]);
          await inbox.end?.();
          await pool.end();
          await harness.pool.query(`DROP DATABASE ${other}`);
        },
      );

  own("an event whose mark is gone when its handler has finished is not applied", async (harness) => {
    const deletes = harness.store.inbox.once(key("e"), 1, async (tx) => {
      await tx.query("INSERT INTO effects VALUES ('x')");
      await tx.query("DELETE FROM inbox");
    });
    await expect(deletes).rejects.toMatchObject({ code: "TRANSACTION_LOST" });
    expect(await harness.effects()).toEqual([]);
  });

  const limits = async (tx: Pick<MysqlConnection, "query">): Promise<unknown> =>
    ((await tx.query("SELECT @@idle_transaction_timeout AS idle")) as unknown as [[{ idle: unknown }]])[0][0].idle;
  own("a subscriber that is frozen inside a handler loses its session, and another goes on with the event", async (harness) => {
    const pool = mysql2.createPool({ uri: mariadb.server.url(harness.database), connectionLimit: 3 });
    const { inbox } = mysql({ pool: pool, statementTimeoutMs: 200 });
    let thaw = (): void => undefined;
    const frozen = new Promise<void>((resolve) => (thaw = resolve));
    let limit: unknown;
    const first = inbox.once(key("e"), 1, async (tx) => {
      limit = await limits(tx);
      await frozen;
      await tx.query("INSERT INTO effects VALUES ('frozen')");
    });
    first.catch(() => undefined);
    await until(() => limit !== undefined);
    expect(Number(limit)).toBe(3);
    await untilDone(harness, inbox);
    thaw();
    await expect(first).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    expect(await harness.effects()).toEqual(["other"]);
    for (let n = 0; n < 3; n++) expect(Number(await limits(pool as unknown as MysqlConnection))).toBe(0);
    await pool.end();
  });

  own("who waits for a mark that another holds is told so, and it is nobody's failure", async (harness) => {
    const held = await harness.begin();
    await held.tx.query("INSERT INTO inbox (consumer, event_id, handler_version, finished) VALUES ('billing', 'e', 1, 0)");
    const store = mysql({ url: mariadb.server.url(harness.database), statementTimeoutMs: 1_000 });
    const waiting = store.inbox.once(key("e"), 1, () => undefined);
    await expect(waiting).rejects.toBeInstanceOf(MarkHeld);
    await held.rollback();
    expect(await store.inbox.once(key("e"), 1, () => undefined)).toBe("done");
    await store[Symbol.asyncDispose]();
  });
});

/** What waits for the mark may be told that it is held, and asks again. */
async function untilDone(harness: MysqlHarness, inbox: Inbox<MysqlConnection>): Promise<void> {
  for (const deadline = Date.now() + 20_000; ;) {
    try {
      return void expect(await inbox.once(key("e"), 1, (tx) => harness.effect(tx, "other"))).toBe("done");
    } catch (error) {
      if (Date.now() > deadline) throw error;
    }
  }
}

async function until(condition: () => boolean): Promise<void> {
  for (const deadline = Date.now() + 10_000; !condition();) {
    if (Date.now() > deadline) throw new Error("it did not come true");
    await sleep(5);
  }
}
