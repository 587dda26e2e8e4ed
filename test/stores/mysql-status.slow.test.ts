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
});
