import { expect } from "vitest";
import type { Inbox } from "../../src/contracts/inbox.ts";
import { fromMysql2 } from "../../src/outbox/handles/index.ts";
import { mysql, type MysqlConnection } from "../../src/stores/mysql/index.ts";
import { describeWith } from "../servers/available.ts";
import { ownMariadb } from "./mariadb-own.ts";
import type { MysqlHarness } from "./mysql-harness.ts";

const key = { consumer: "billing", id: "e1" };

await describeWith("mariadb", "one effect on MariaDB, whatever a handler commits", () => {
  const { own } = ownMariadb();
  const ways: [string, (harness: MysqlHarness) => Inbox<MysqlConnection>][] = [
    ["the store's own client", ({ store }) => store.inbox],
    ["a library's handle", ({ pool }) => mysql({ pool, tx: fromMysql2, db: pool }).inbox],
  ];
  const ends: [string, readonly string[]][] = [
    ["TRUNCATE", ["TRUNCATE TABLE other"]],
    ["DDL", ["CREATE TABLE IF NOT EXISTS made (n INT)"]],
    ["LOCK TABLES", ["LOCK TABLES effects WRITE, other WRITE, inbox WRITE, waybill_attempts WRITE", "UNLOCK TABLES"]],
    ["START TRANSACTION", ["START TRANSACTION"]],
    ["COMMIT", ["COMMIT"]],
  ];
  for (const [way, inboxOf] of ways)
    for (const [what, statements] of ends)
      own(`a handler that commits by ${what} and fails is an unfinished effect, never a done one (${way})`, async (harness) => {
        const inbox = inboxOf(harness);
        await harness.pool.query("CREATE TABLE IF NOT EXISTS other (n INT)");
        const half = async (tx: MysqlConnection): Promise<void> => {
          await tx.query("INSERT INTO effects VALUES ('half')");
          for (const sql of statements) await tx.query(sql);
          throw new Error("no");
        };
        await expect(inbox.once(key, 1, half)).rejects.toThrow("no");
        expect(await harness.effects()).toEqual(["half"]);
        for (let again = 0; again < 2; again++)
          await expect(inbox.once(key, 1, () => undefined)).rejects.toMatchObject({ code: "EFFECT_UNFINISHED", retryable: false });
        expect(await inbox.failed(key, "half an effect")).toBe(1);
      });

  for (const [way, inboxOf] of ways)
    for (const [what, statements] of ends)
      own(`a handler that commits by ${what} and goes on to its end is told apart (${way})`, async (harness) => {
        const inbox = inboxOf(harness);
        await harness.pool.query("CREATE TABLE IF NOT EXISTS other (n INT)");
        const work = async (tx: MysqlConnection): Promise<void> => {
          for (const sql of statements) await tx.query(sql);
          await tx.query("INSERT INTO effects VALUES ('after')");
        };
        await expect(inbox.once(key, 1, work)).rejects.toMatchObject({ code: "TRANSACTION_LOST" });
        await expect(inbox.once(key, 1, work)).rejects.toMatchObject({ code: "EFFECT_UNFINISHED" });
      });

  for (const [way, inboxOf] of ways)
    own(`the database's end of a handler's session is told as that, whatever the handler threw (${way})`, async (harness) => {
      const inbox = inboxOf(harness);
      const kill = async (tx: MysqlConnection): Promise<void> => {
        await tx.query("KILL CONNECTION_ID()").catch(() => undefined);
      };
      const dead = { code: "STORE_UNAVAILABLE", message: expect.stringContaining("ended the session") as string };
      const raw = inbox.once(key, 1, async (tx) => {
        await kill(tx);
        await tx.query("INSERT INTO effects VALUES ('late')");
      });
      await expect(raw).rejects.toMatchObject(dead);
      const wrapped = inbox.once(key, 1, async (tx) => {
        await kill(tx);
        throw new Error("it did not work");
      });
      await expect(wrapped).rejects.toMatchObject(dead);
      await expect(inbox.once(key, 1, kill)).rejects.toMatchObject(dead); // it did not notice
      const refused = Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED" });
      await expect(inbox.once(key, 1, () => Promise.reject(refused))).rejects.toBe(refused); // somebody else's link
      expect(await harness.effects()).toEqual([]);
    });

  own("marks of version 1 count as finished", async ({ pool, store }) => {
    await pool.query("INSERT INTO inbox (consumer, event_id, handler_version) VALUES ('billing', 'e1', 1)");
    expect(await store.inbox.once(key, 1, () => undefined)).toBe("seen");
  });
});
