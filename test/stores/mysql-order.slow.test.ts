import { setTimeout as sleep } from "node:timers/promises";
import { test } from "vitest";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { mysql } from "../../src/stores/mysql/index.ts";
import { describeWith } from "../servers/available.ts";
import { startMariadb } from "../servers/mariadb.ts";
import type { Server } from "../servers/server.ts";
import { ownMariadb } from "./mariadb-own.ts";
import { casesOn, type MysqlHarness } from "./mysql-harness.ts";
import { aggregates, arrive, inOrder, relaysAtADistance, relaysComeAndGo, restartedUnderLoad, writers, type Bank } from "./order.ts";

async function bankOn(server: Server, { pool, database, rows, store }: MysqlHarness): Promise<Bank> {
  await pool.query("CREATE TABLE IF NOT EXISTS accounts (id VARCHAR(20) PRIMARY KEY, n INT NOT NULL DEFAULT 0)");
  await pool.query("CREATE TABLE IF NOT EXISTS elsewhere (at DATETIME)");
  await pool.query("DELETE FROM accounts");
  await pool.query(`INSERT INTO accounts (id) SELECT CONCAT('a-', seq) FROM seq_1_to_${aggregates}`);
  const outbox = createOutbox({ store });
  return {
    async raise(id, { elsewhere, waitMs, keep }) {
      const connection = await pool.getConnection();
      try {
        await connection.query("START TRANSACTION");
        if (elsewhere) await connection.query("INSERT INTO elsewhere VALUES (NOW())");
        await connection.query("UPDATE accounts SET n = n + 1 WHERE id = ?", [id]);
        const [[{ n }]] = (await connection.query("SELECT n FROM accounts WHERE id = ?", [id])) as unknown as [[{ n: number }]];
        await outbox.add(connection, { aggregateType: "Account", aggregateId: id, type: "Raised", payload: { n } });
        await sleep(waitMs);
        await connection.query(keep ? "COMMIT" : "ROLLBACK");
        connection.release();
      } catch (error) {
        connection.destroy();
        throw error;
      }
    },
    async look() {
      const [[open]] = (await rows("SELECT COUNT(*) FROM outbox WHERE status <> 'PUBLISHED'")) as [[number]];
      return { open, counters: new Map((await rows("SELECT id, n FROM accounts")) as [string, number][]) };
    },
    async crowd(accounts, lanes) {
      const id = "CONCAT('c-', seq)";
      await pool.query(
        `INSERT INTO accounts (id) SELECT ${id} FROM seq_1_to_10000
         WHERE CRC32(CONCAT('Account', CHAR(31 USING utf8mb4), ${id})) % 64 < ${lanes} LIMIT ${accounts}`,
      );
      await pool.query("DROP PROCEDURE IF EXISTS raise_crowd");
      await pool.query(`CREATE PROCEDURE raise_crowd(IN seconds INT) BEGIN
        DECLARE account VARCHAR(20); DECLARE raised INT; DECLARE ends DATETIME(6) DEFAULT SYSDATE(6) + INTERVAL seconds SECOND;
        WHILE SYSDATE(6) < ends DO
          SET account = (SELECT id FROM accounts WHERE id LIKE 'c-%' ORDER BY RAND() LIMIT 1);
          START TRANSACTION;
          UPDATE accounts SET n = n + 1 WHERE id = account;
          SELECT n INTO raised FROM accounts WHERE id = account;
          INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Account', account, 'Raised', CONCAT('{"n":', raised, '}'));
          IF RAND() < 0.25 THEN
            DO SLEEP(0.01 + RAND() * 0.02);
            -- Its second event has a number behind those that others have drawn meanwhile.
            UPDATE accounts SET n = n + 1 WHERE id = account;
            INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Account', account, 'Raised', CONCAT('{"n":', raised + 1, '}'));
            DO SLEEP(RAND() * 0.01);
          END IF;
          COMMIT;
          DO SLEEP(0.005);
        END WHILE;
      END`);
    },
    raiseCrowd: (seconds) => pool.query(`CALL raise_crowd(${seconds})`),
    port: server.port,
    store: (port = server.port) =>
      mysql({
        url: server.url(database).replace(`:${server.port}/`, `:${port}/`),
        connections: 4,
        connectTimeoutMs: 2_000,
        statementTimeoutMs: 5_000,
      }),
  };
}

await describeWith("mariadb", "order and no loss on MariaDB", () => {
  const mariadb = ownMariadb();
  const { cases } = mariadb;

  test("ten writers on hot aggregates and four relays that come and go: every aggregate arrives as 1, 2, 3 …", async () => {
    const harness = await cases.create();
    await relaysComeAndGo(await bankOn(mariadb.server, harness));
    await harness.close();
  });

  test("relays at a distance, lanes with a backlog and transactions that stay open: every aggregate arrives as 1, 2, 3 …", async () => {
    const harness = await cases.create();
    await relaysAtADistance(await bankOn(mariadb.server, harness));
    await harness.close();
  });

  test("of one aggregate, no event is claimed while an earlier one that was committed before it is not seen", async () => {
    // Writers inside the server, as fast as it goes: a snapshot that is made meanwhile may show a commit and not the one before it.
    const harness = await cases.create();
    const { pool, store } = harness;
    const bank = await bankOn(mariadb.server, harness);
    await pool.query("DROP PROCEDURE IF EXISTS raise_often");
    await pool.query(`CREATE PROCEDURE raise_often(IN times INT) BEGIN
      DECLARE i INT DEFAULT 0; DECLARE account VARCHAR(20); DECLARE raised INT;
      WHILE i < times DO
        SET account = CONCAT('a-', 1 + FLOOR(RAND() * 2));
        START TRANSACTION;
        UPDATE accounts SET n = n + 1 WHERE id = account;
        SELECT n INTO raised FROM accounts WHERE id = account;
        INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Account', account, 'Raised', CONCAT('{"n":', raised, '}'));
        COMMIT;
        SET i = i + 1;
      END WHILE;
    END`);
    const writing = Array.from({ length: writers }, () => pool.query("CALL raise_often(1500)"));
    let busy = true;
    const ended = Promise.all(writing).finally(() => (busy = false));
    await store.leases.renew("r1", 600_000);
    const holding = { relay: "r1", lanes: await store.leases.take("r1", [...Array(64).keys()]) };
    const arrived = new Map<string, number[]>();
    for (let more = true; busy || more;) {
      const window = await store.outbox.claim(holding, { limit: 2_000, open: [], narrow: false });
      for (const { envelope } of window.claims) arrive(arrived, envelope);
      if (window.id !== null)
        await store.outbox.settle(
          "r1",
          window.id,
          window.claims.map((claim) => ({ claim, as: "published" })),
        );
      more = window.id !== null || window.more;
    }
    await ended;
    inOrder(arrived, (await bank.look()).counters);
    await harness.close();
  });

  test("the server is killed and restarted twenty times under load: the relay lives, nothing is lost or out of order", async () => {
    const own = await startMariadb();
    const harness = await casesOn((database) => own.url(database)).create();
    await restartedUnderLoad(await bankOn(own, harness), () => own.restart("immediate"));
    await harness.pool.end();
    await own[Symbol.asyncDispose]();
  });
});
