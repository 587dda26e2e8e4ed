import { afterEach, expect } from "vitest";
import type { Inbox } from "../../src/contracts/inbox.ts";
import { fromMysql2 } from "../../src/outbox/handles/index.ts";
import { mysql, type MysqlConnection, type MysqlStore } from "../../src/stores/mysql/index.ts";
import { describeWith } from "../servers/available.ts";
import { ownMariadb } from "./mariadb-own.ts";
import type { MysqlHarness } from "./mysql-harness.ts";

const key = { consumer: "billing", id: "e1" };

await describeWith("mariadb", "one effect on MariaDB, whatever a handler commits", () => {
  const mariadb = ownMariadb();
  const { own } = mariadb;
  const opened: MysqlStore[] = [];
  afterEach(async () => {
    for (const store of opened.splice(0)) await store[Symbol.asyncDispose]();
  });
  /** On one connection, which keeps what it was set to between two events. */
  const onUrl = ({ database }: MysqlHarness): MysqlStore => {
    const store = mysql({ url: mariadb.server.url(database), connections: 1 });
    opened.push(store);
    return store;
  };
  const ways: [string, (harness: MysqlHarness) => Inbox<MysqlConnection>][] = [
    ["the application's pool", ({ store }) => store.inbox],
    ["a pool of the store's own", (harness) => onUrl(harness).inbox],
    ["a library's handle", ({ pool }) => mysql({ pool, tx: fromMysql2, db: pool }).inbox],
  ];
  const ends: [string, readonly string[]][] = [
    ["TRUNCATE", ["TRUNCATE TABLE other"]],
    ["DDL", ["CREATE TABLE IF NOT EXISTS made (n INT)"]],
    ["LOCK TABLES", ["LOCK TABLES effects WRITE, other WRITE, inbox WRITE, waybill_attempts WRITE", "UNLOCK TABLES"]],
    ["START TRANSACTION", ["START TRANSACTION"]],
    ["COMMIT", ["COMMIT"]],
  ];
  /** Autocommit is off on our connections; a library leaves it on, and setting it changes nothing. */
  const endsOf = (way: string): typeof ends =>
    way === "a library's handle" ? ends : [...ends, ["SET autocommit", ["SET autocommit = 1"]]];
  for (const [way, inboxOf] of ways)
    for (const [what, statements] of endsOf(way))
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
    for (const [what, statements] of endsOf(way))
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

  own("statements of ours are committed on a connection that a handler had before", async (harness) => {
    const { inbox } = onUrl(harness);
    const seat = { consumer: "billing", topic: "order.events", owner: "one" };
    const done = async (id: string): Promise<void> => {
      expect(await inbox.once({ ...key, id }, 1, async (tx) => void (await tx.query("INSERT INTO effects VALUES ('x')")))).toBe("done");
    };
    await done("e1");
    expect(await inbox.failed({ ...key, id: "other" }, "no")).toBe(1);
    await done("e2");
    expect(await inbox.sit(seat, 60_000)).toBe(true);
    expect(await harness.rows("SELECT owner FROM waybill_seats")).toHaveLength(1);
    await done("e3");
    await inbox.leave(seat);
    expect(await harness.rows("SELECT owner FROM waybill_seats WHERE owner <> ''")).toEqual([]);
    expect(await harness.effects()).toHaveLength(3);
    expect(await harness.rows("SELECT attempts FROM waybill_attempts")).toHaveLength(1);
  });

  for (const [way, inboxOf] of ways.slice(0, 2))
    own(`what a handler keeps of its connection is of no use after its event (${way})`, async (harness) => {
      const inbox = inboxOf(harness);
      interface Core {
        query(sql: string, answered: (error: Error | null) => void): void;
      }
      const kept: Core[] = [];
      const insert = "INSERT INTO effects VALUES ('x')";
      await inbox.once(key, 1, async (tx) => {
        const { connection } = tx as unknown as { connection: Core };
        kept.push(connection);
        await new Promise<void>((resolve, reject) => connection.query(insert, (error) => (error === null ? resolve() : reject(error))));
      });
      expect(() => kept[0]!.query(insert, () => undefined)).toThrow(/transaction/);
      expect(await harness.effects()).toEqual(["x"]);
    });

  own("an event takes six statements of ours beside those of its handler", async (harness) => {
    const { inbox } = onUrl(harness);
    const told: number[] = [];
    for (const id of ["e1", "e2", "e3"])
      await inbox.once({ ...key, id }, 1, async (tx) => {
        const [[row]] = (await tx.query("SHOW SESSION STATUS LIKE 'Questions'")) as [[{ Value: string }]];
        told.push(Number(row.Value));
      });
    expect(told[2]! - told[1]! - 1).toBe(6);
  });

  own("marks of version 1 count as finished", async ({ pool, store }) => {
    await pool.query("INSERT INTO inbox (consumer, event_id, handler_version) VALUES ('billing', 'e1', 1)");
    expect(await store.inbox.once(key, 1, () => undefined)).toBe("seen");
  });
});
