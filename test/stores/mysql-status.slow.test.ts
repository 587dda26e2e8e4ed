import { expect } from "vitest";
import { describeWith } from "../servers/available.ts";
import { ownMariadb } from "./mariadb-own.ts";

await describeWith("mariadb", "the status of a large outbox on MariaDB", () => {
  const { own } = ownMariadb();

  own("counts are exact up to 100,000 of a state, and estimated above, in sight", async ({ pool, store }) => {
    const insert = (status: string, count: number): Promise<unknown> =>
      pool.query(
        `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, status, published_at, last_error)
         SELECT 'Order', seq, 'E', '1', '${status}', IF('${status}' = 'PUBLISHED', UTC_TIMESTAMP(6), NULL), IF('${status}' = 'DEAD', CONCAT('E', seq), NULL)
         FROM seq_1_to_${count}`,
      );
    await insert("PUBLISHED", 101_000);
    await insert("PENDING", 2_000);
    await insert("DEAD", 300);
    await pool.query("ANALYZE TABLE outbox");
    const status = await store.operator.status();
    expect(status.estimated).toEqual(["PUBLISHED"]);
    expect(status.states).toMatchObject({ PENDING: 2_000, DEAD: 300, FAILED: 0, BLOCKED: 0 });
    expect(status.states.PUBLISHED).toBeGreaterThan(100_000);
    expect(status.states.PUBLISHED).toBeLessThan(300_000);
    expect(status.oldestUnpublishedMs).toBeGreaterThanOrEqual(0);
    expect(status.dead).toHaveLength(100);
  });

  own("delayed events do not hide how long the others have waited", async ({ pool, store }) => {
    const insert = (count: number, createdAt: string, availableAt: string): Promise<unknown> =>
      pool.query(
        `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, created_at, available_at)
         SELECT 'Order', seq, 'E', '1', ${createdAt}, ${availableAt} FROM seq_1_to_${count}`,
      );
    await insert(1_500, "UTC_TIMESTAMP(6)", "UTC_TIMESTAMP(6) + INTERVAL 1 DAY");
    expect((await store.operator.status()).oldestUnpublishedMs).toBe(0);
    await insert(1, "UTC_TIMESTAMP(6) - INTERVAL 2 HOUR", "UTC_TIMESTAMP(6) - INTERVAL 1 HOUR");
    expect((await store.operator.status()).oldestUnpublishedMs).toBeGreaterThanOrEqual(3_600_000);
    await insert(1, "UTC_TIMESTAMP(6) - INTERVAL 2 HOUR", "NULL");
    expect((await store.operator.status()).oldestUnpublishedMs).toBeGreaterThanOrEqual(7_200_000);
  });
});
