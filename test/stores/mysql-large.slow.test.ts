import { expect } from "vitest";
import { mysql } from "../../src/stores/mysql/index.ts";
import { describeWith } from "../servers/available.ts";
import { flowOn } from "../support/flow.ts";
import { expectCalledOff } from "./called-off.ts";
import { ownMariadb } from "./mariadb-own.ts";
import { cutBefore } from "./mysql-cut.ts";
import { add, all } from "./mysql-relay.ts";

const mebibyte = 1024 * 1024;
const large = (aggregate: string, bytes: number): string =>
  `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', '${aggregate}', 'E', REPEAT('x', ${bytes}))`;

await describeWith("mariadb", "large rows by plain SQL on MariaDB", () => {
  const mariadb = ownMariadb();

  mariadb.own("a payload that never arrives ends its own event, and other events flow within the lease", async (harness) => {
    await harness.pool.query(large("stuck", 9 * mebibyte));
    await using silence = await cutBefore(
      "COALESCE(CAST(o.payload AS BINARY), o.payload_bytes) AS data FROM",
      mariadb.server.port,
      "silence",
    );
    const store = mysql({ url: `mysql://root@127.0.0.1:${silence.port}/${harness.database}` });
    const flow = await flowOn(store, 64 * mebibyte, (aggregate) => add(harness, aggregate, 1), {
      leaseMs: 2_000,
      retry: { delaysMs: [500], jitter: 0 },
    });
    const state = async (): Promise<string> =>
      String(
        (
          await harness.rows(
            "SELECT CONCAT_WS(' ', status, error_code, COALESCE(error_detail, last_error)) FROM outbox WHERE aggregate_id = 'stuck'",
          )
        )[0],
      );
    await flow.until(async () => (await state()).startsWith("DEAD"), 60_000);
    expect(await state()).toMatch(/^DEAD ROW_UNREADABLE its payload of 9437184 bytes could not be read: the store did not answer/);
    expect(silence.times()).toBe(2);
    await flow.stop();
  });

  mariadb.own("a claim does not read every pending payload to learn what fits", async (harness) => {
    const { store, pool, rows } = harness;
    for (let n = 0; n < 40; n++) await pool.query(large(`large-${n}`, 8 * mebibyte));
    await store.leases.renew("r1", 600_000);
    const holding = { relay: "r1", lanes: await store.leases.take("r1", all) };
    const open: string[] = [];
    const claim = async (): Promise<void> => {
      const { id, claims } = await store.outbox.claim(holding, { limit: 500, bytes: 8 * mebibyte, narrow: false, open });
      expect(claims.map(({ unread }) => unread)).toEqual([8 * mebibyte]);
      open.push(id!);
    };
    await claim();
    const pagesRead = async (): Promise<number> =>
      Number((await rows("SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_read_requests'"))[0]![1]);
    const before = await pagesRead();
    for (let n = 0; n < 5; n++) await claim();
    const pages = (await pagesRead()) - before;
    console.log(`${Math.round(pages / 5)} pages a claim`);
    // A payload takes 512 pages; of 34 that are pending, a claim may look at a few.
    expect(pages / 5).toBeLessThan(6 * 512);
  });

  mariadb.own("a payload read that is called off ends its connection, and the next one has its own", async (harness) => {
    await harness.pool.query(large("large", 9 * mebibyte));
    await expectCalledOff(harness.store, mariadb.server.port, (port) =>
      mysql({ url: `mysql://root@127.0.0.1:${port}/${harness.database}`, connections: 1 }),
    );
  });
});
