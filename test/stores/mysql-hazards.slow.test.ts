import { setTimeout as sleep } from "node:timers/promises";
import mysql2 from "mysql2/promise";
import { expect } from "vitest";
import { mysql, type MysqlPool } from "../../src/stores/mysql/index.ts";
import { describeWith } from "../servers/available.ts";
import { cutBefore } from "./mysql-cut.ts";
import { ownMariadb } from "./mariadb-own.ts";
import type { MysqlHarness } from "./mysql-harness.ts";
import { add, addIn, all, relayOn } from "./mysql-relay.ts";

const by = { who: "test", dryRun: false };

await describeWith("mariadb", "hazards on MariaDB", () => {
  const mariadb = ownMariadb();
  const { own } = mariadb;

  own("somebody's backlog keeps no other lane waiting, however deep it is", async (harness) => {
    const relay = await relayOn(harness.store);
    await harness.pool.query(
      "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) SELECT 'Order', 'flood', 'E', '1' FROM seq_1_to_20000",
    );
    await add(harness, "quiet", 1);
    const { claims } = await harness.store.outbox.claim(relay.holding, { limit: 50, open: [], narrow: false });
    expect(claims.map(({ envelope }) => envelope.aggregateId)).toContain("quiet");
    expect(claims.length).toBe(50);
  });

  own("a settle that waited while its lane was taken changes nothing of the new owner's", async (harness) => {
    const { pool, store } = harness;
    await add(harness, "order-1", 1);
    const old = await relayOn(store, "old");
    const window = await old.claim();
    // The new owner is in the middle of its take: it has the lane rows.
    const taker = await pool.getConnection();
    await taker.query("BEGIN");
    await taker.query("UPDATE waybill_lanes SET owner = 'new', epoch = epoch + 1");
    await taker.query("UPDATE outbox SET status = 'PUBLISHED', published_at = UTC_TIMESTAMP(6)");
    const settled = old.settle(window, (claim) => ({ claim, as: "retry", afterMs: 0, error: "late" }));
    await Promise.race([settled, waitsForLock(harness)]);
    await taker.query("COMMIT");
    taker.release();
    expect(await settled).toEqual({ settled: 0, lost: [window.claims[0]!.lane] });
    expect(await harness.rows("SELECT status, last_error FROM outbox")).toEqual([["PUBLISHED", null]]);
  });

  own("a claim that waited for a settle finds the hold that it made", async (harness) => {
    const { pool, store } = harness;
    const [first] = await add(harness, "order-1", 1);
    const relay = await relayOn(store);
    const window = await relay.claim();
    // A settle in the middle: it has the lane rows, and nobody sees its hold yet.
    const settling = await pool.getConnection();
    await settling.query("SET TRANSACTION ISOLATION LEVEL READ COMMITTED");
    await settling.query("BEGIN");
    await settling.query("SELECT lane FROM waybill_lanes FOR UPDATE");
    await settling.query("UPDATE outbox SET status = 'FAILED', next_attempt_at = UTC_TIMESTAMP(6) + INTERVAL 1 HOUR");
    await settling.query(
      `INSERT INTO waybill_holds (aggregate_type, aggregate_id, lane, cause_seq, why) SELECT aggregate_type, aggregate_id, lane, seq, 'no' FROM outbox`,
    );
    await settling.query("DELETE FROM waybill_windows");
    const [follower] = await add(harness, "order-1", 1); // commits while its aggregate is being held
    const claimed = store.outbox.claim(relay.holding, { limit: 10, open: [window.id!], narrow: false });
    await Promise.race([claimed, waitsForLock(harness)]);
    await settling.query("COMMIT");
    settling.release();
    expect((await claimed).id).toBeNull();
    expect((await store.operator.show(follower!))!.state).toBe("BLOCKED");
    await harness.clock.advance(2 * 3_600_000);
    expect(await relay.drainIds()).toEqual([first, follower]);
  });

  own("a follower that commits while its aggregate is being held stays behind it", async (harness) => {
    const relay = await relayOn(harness.store);
    for (let round = 0; round < 20; round++) {
      const name = `order-${round}`;
      const [first] = await add(harness, name, 1);
      const window = await relay.claim();
      const follower = await harness.begin();
      await addIn(harness, follower.tx, name, 1);
      await Promise.all([relay.settle(window, (claim) => ({ claim, as: "retry", afterMs: 0, error: "no" })), follower.commit()]);
      const [cause, ...more] = (await relay.claim()).claims.map(({ envelope }) => envelope.id);
      expect([cause, more]).toEqual([first, []]);
      expect(await relay.drainIds()).toHaveLength(2);
    }
  });

  own("a redrive that races with a claim sends each event once, and before its followers", async (harness) => {
    const relay = await relayOn(harness.store);
    for (let round = 0; round < 20; round++) {
      const [dead] = await add(harness, `order-${round}`, 3);
      await relay.settle(await relay.claim(), (claim) =>
        claim.envelope.id === dead ? { claim, as: "parked", error: "no", release: false } : { claim, as: "returned" },
      );
      const [, ids] = await Promise.all([harness.store.operator.redrive({ ids: [dead!] }, by), relay.drainIds()]);
      const sent = [...ids, ...(await relay.drainIds())];
      expect(sent).toHaveLength(3);
      expect(sent[0]).toBe(dead);
    }
  });

  own("nothing of the relay's waits for an open transaction of a writer, nor the other way round", async (harness) => {
    const relay = await relayOn(harness.store);
    await add(harness, "order-1", 3);
    const open = await harness.begin(); // REPEATABLE READ, as users have it
    await addIn(harness, open.tx, "order-2", 3);
    const window = await relay.claim();
    await relay.settle(window, (claim) => ({ claim, as: "parked", error: "no", release: false }));
    await harness.store.operator.discard({}, by);
    await relay.drain();
    expect(await harness.store.operator.purge(new Date(Date.now() + 60_000), by)).toBeGreaterThan(0);
    await addIn(harness, open.tx, "order-1", 3);
    await open.commit();
    expect(await relay.drain()).toHaveLength(6);
  });

  own("numbers beyond 2^53 are told apart", async (harness) => {
    await harness.pool.query("ALTER TABLE outbox AUTO_INCREMENT = 9007199254740993");
    const relay = await relayOn(harness.store);
    const ids = await add(harness, "order-1", 4);
    const window = await relay.claim();
    expect(window.claims.map(({ envelope }) => envelope.seq)).toEqual([0n, 1n, 2n, 3n].map((n) => 9007199254740993n + n));
    await relay.settle(window, (claim) =>
      claim.envelope.id === ids[0] ? { claim, as: "published" } : { claim, as: "retry", afterMs: 0, error: claim.envelope.id },
    );
    expect(await harness.rows("SELECT status, last_error FROM outbox ORDER BY seq")).toEqual([
      ["PUBLISHED", null],
      ...ids.slice(1).map((id) => ["FAILED", id]),
    ]);
    await harness.pool.query("DELETE FROM outbox");
    await harness.pool.query("ALTER TABLE outbox AUTO_INCREMENT = 1");
  });

  const frozen: [string, (database: string, port: number) => Parameters<typeof mysql>[0]][] = [
    ["of its own", (database, port) => ({ url: `mysql://root@127.0.0.1:${port}/${database}` })],
    ["that was given", (database, port) => ({ pool: poolAt(database, port) })],
    ["on a server like MySQL", (database, port) => ({ pool: likeMysql(poolAt(database, port)) })],
  ];
  for (const [pool, options] of frozen)
    own(`a process that is frozen within a claim gives its lanes up soon (a pool ${pool})`, async (harness) => {
      await using silence = await cutBefore("INNODB_TRX", mariadb.server.port, "silence");
      const store = mysql(options(harness.database, silence.port));
      await store.leases.renew("frozen", 60_000);
      const lanes = await store.leases.take("frozen", all);
      await add(harness, "order-1", 5);
      const began = Date.now();
      const claim = store.outbox.claim({ relay: "frozen", lanes }, { limit: 10, open: [], narrow: false }).catch((error: unknown) => error);
      await expect.poll(() => silence.times(), { timeout: 15_000 }).toBe(1);
      await harness.pool.query(
        "UPDATE waybill_relays SET ttl_ms = 1000, renewals = renewals + 1, expires_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND WHERE relay = 'frozen'",
      );
      await harness.store.leases.renew("r1", 60_000);
      let taken = 0;
      for (const end = Date.now() + 25_000; taken < 64 && Date.now() < end;) {
        await sleep(250);
        taken += (await harness.store.leases.take("r1", all)).size;
      }
      expect([taken, silence.times()]).toEqual([64, 1]);
      expect(Date.now() - began).toBeGreaterThan(5_000); // the lanes were locked, and nobody is hurried
      expect(await claim).toMatchObject({ code: "STORE_UNAVAILABLE" });
    });

  for (const like of [(pool: MysqlPool) => pool, likeMysql])
    own(`a pool that was given has its own patience again after each transaction (${like.name || "MariaDB"})`, async (harness) => {
      const pool = mysql2.createPool({ uri: mariadb.server.url(harness.database), connectionLimit: 1 });
      const patience = async (): Promise<unknown> =>
        (
          await pool.query({
            sql: "SELECT @@wait_timeout, @@idle_transaction_timeout, @@idle_write_transaction_timeout, @@idle_readonly_transaction_timeout, @@tx_isolation",
            rowsAsArray: true,
          })
        )[0];
      await pool.query(
        "SET SESSION wait_timeout = 1234, idle_transaction_timeout = 77, idle_write_transaction_timeout = 66, tx_isolation = 'SERIALIZABLE'",
      );
      const before = await patience();
      const store = mysql({ pool: like(pool as unknown as MysqlPool) });
      const relay = await relayOn(store);
      await add(harness, "order-1", 1);
      expect(await relay.drain()).toEqual(["order-1"]);
      expect(await patience()).toEqual(before);
      await harness.pool.query("UPDATE waybill_lanes SET owner = NULL"); // and after one that fails
      await expect(store.inbox.failed({ consumer: "x".repeat(1_000), id: "1" }, "no")).rejects.toThrow();
      expect(await patience()).toEqual(before);
      await pool.end();
    });
});

const poolAt = (database: string, port: number): MysqlPool => mysql2.createPool({ host: "127.0.0.1", port, user: "root", database });

/** MySQL in MariaDB's clothes, as far as its name goes. */
function likeMysql(pool: MysqlPool): MysqlPool {
  const disguise = (of: object): object =>
    new Proxy(of, {
      get(inner, name) {
        const value: unknown = Reflect.get(inner, name, inner);
        if (name !== "query") return typeof value === "function" ? (value.bind(inner) as unknown) : value;
        return async (query: { readonly sql: string }): Promise<unknown> => {
          const answer = await (value as (of: unknown) => Promise<[{ version: Buffer }[]]>).call(inner, query);
          if (query.sql?.includes("VERSION()")) answer[0][0]!.version = Buffer.from("8.0.36");
          return answer;
        };
      },
    });
  return {
    end: () => pool.end(),
    getConnection: async () => disguise(await pool.getConnection()) as Awaited<ReturnType<MysqlPool["getConnection"]>>,
  };
}

async function waitsForLock({ rows }: MysqlHarness): Promise<void> {
  while ((await rows("SELECT 1 FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT'")).length === 0) await sleep(110);
}
