import type mysql2 from "mysql2/promise";
import { expect } from "vitest";
import { mysql, type MysqlPool } from "../../src/stores/mysql/index.ts";
import { describeWith } from "../servers/available.ts";
import { ownMariadb } from "./mariadb-own.ts";
import type { MysqlHarness } from "./mysql-harness.ts";
import { relayOn } from "./mysql-relay.ts";

/** Runs something before the nth statement of a claim that scans what is pending. */
function between(
  pool: mysql2.Pool,
  acts: ReadonlyMap<number, (connection: mysql2.PoolConnection) => Promise<unknown>>,
): { readonly pool: MysqlPool; arm(): void } {
  let scans: number | null = null;
  const watched = (connection: mysql2.PoolConnection): mysql2.PoolConnection =>
    new Proxy(connection, {
      get(of, name) {
        const value: unknown = Reflect.get(of, name, of);
        if (name !== "query") return typeof value === "function" ? (value.bind(of) as unknown) : value;
        return async (query: { readonly sql: string }): Promise<unknown> => {
          if (scans !== null && query.sql.startsWith("(SELECT o.lane, o.seq")) await acts.get(++scans)?.(of);
          return of.query(query as mysql2.QueryOptions);
        };
      },
    });
  return {
    pool: { end: () => pool.end(), getConnection: async () => watched(await pool.getConnection()) },
    arm: () => void (scans = 0),
  };
}

/** Two aggregates of one lane. */
async function neighbours({ rows }: MysqlHarness): Promise<readonly [string, string]> {
  const lanes = (await rows(
    "SELECT CONCAT('a-', seq), CRC32(CONCAT('Order', CHAR(31 USING utf8mb4), CONCAT('a-', seq))) & 63 FROM seq_1_to_500",
  )) as [string, number][];
  const [first, lane] = lanes[0]!;
  return [first, lanes.slice(1).find(([, other]) => other === lane)![0]];
}

const insert = (id: string, count = 1, availableAt = "NULL"): string =>
  `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, available_at) SELECT 'Order', '${id}', 'E', '1', ${availableAt} FROM seq_1_to_${count}`;
const kinds = { "first event": "NULL", "first event, available for a minute,": "UTC_TIMESTAMP(6) - INTERVAL 1 MINUTE" };

/** Rolled back at the end, unless it was committed. */
async function transactionOn(
  pool: mysql2.Pool,
): Promise<AsyncDisposable & { query(sql: string): Promise<unknown>; commit(): Promise<unknown> }> {
  const connection = await pool.getConnection();
  await connection.query("START TRANSACTION");
  return {
    query: (sql) => connection.query(sql),
    commit: () => connection.query("COMMIT"),
    async [Symbol.asyncDispose]() {
      await connection.query("ROLLBACK");
      connection.release();
    },
  };
}

await describeWith("mariadb", "the looks of one claim on MariaDB", () => {
  const { own } = ownMariadb();

  // A claim scans what is pending, then lanes that did not show, then further since the first rows were held, and once more at its end.
  for (const [kind, availableAt] of Object.entries(kinds))
    for (const first of [1, 2, 3, 4])
      for (const second of [2, 3, 4].filter((at) => at >= first))
        own(`order holds when the ${kind} commits before look ${first}, and the second before look ${second}`, async (harness) => {
          const { pool } = harness;
          const [held, hot] = await neighbours(harness);
          await using late = await transactionOn(pool);
          const acts = new Map<number, () => Promise<unknown>>();
          const watched = between(pool, acts);
          const store = mysql({ pool: watched.pool });
          const relay = await relayOn(store);

          await pool.query(insert(held));
          const [cause] = (await relay.claim()).claims;
          // Its followers fill the first looks, and leave room in the window.
          await relay.settle(await relay.claim(), (claim) => ({ claim, as: "parked", error: "no", release: false }));
          expect(cause!.envelope.aggregateId).toBe(held);
          await late.query(insert(hot, 1, availableAt)); // draws its number first, and commits later
          await pool.query(insert(held, 1_500));
          const act = (at: number, what: () => Promise<unknown>): void => {
            const before = acts.get(at);
            acts.set(at, async () => (await before?.(), what()));
          };
          act(first, () => late.commit());
          act(second, () => pool.query(insert(hot)));
          watched.arm();
          const claimed: bigint[] = [];
          for (let tries = 0; claimed.length < 2 && tries < 20; tries++) {
            const window = await store.outbox.claim(relay.holding, { limit: 500, open: [], narrow: false });
            claimed.push(...window.claims.map(({ envelope }) => envelope.seq));
            await relay.settle(window, (claim) => ({ claim, as: "published" }));
          }
          expect(claimed).toHaveLength(2);
          expect(claimed).toEqual([...claimed].sort((a, b) => (a < b ? -1 : 1)));
        });

  own("a claim whose server goes away between two looks has claimed nothing, and the next one takes both in order", async (harness) => {
    const { pool, rows } = harness;
    const acts = new Map<number, (connection: mysql2.PoolConnection) => Promise<unknown>>();
    const watched = between(pool, acts);
    const relay = await relayOn(mysql({ pool: watched.pool }));
    await using late = await transactionOn(pool);
    await late.query(insert("hot"));
    await pool.query(insert("cold"));
    acts.set(2, async (claiming) => {
      await late.commit();
      await pool.query(insert("hot"));
      await pool.query(`KILL ${claiming.threadId}`);
    });
    watched.arm();
    await expect(relay.claim()).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    expect(await rows("SELECT COUNT(*) FROM waybill_windows")).toEqual([[0]]);
    const { claims } = await relay.claim();
    const seqs = claims.map(({ envelope }) => envelope.seq);
    expect(seqs).toEqual([...seqs].sort((a, b) => (a < b ? -1 : 1)));
    expect(claims.filter(({ envelope }) => envelope.aggregateId === "hot")).toHaveLength(2);
  });
});
