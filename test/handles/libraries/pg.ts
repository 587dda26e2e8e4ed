import pg from "pg";
import { fromPg } from "../../../src/outbox/handles/index.ts";
import { adapter } from "../adapter.ts";

export const onPg = adapter({
  library: "pg",
  database: "PostgreSQL",
  handle: fromPg,
  refuses: { none: true, ended: true },
  async open(url) {
    const pool = new pg.Pool({ connectionString: url, max: 5 });
    pool.on("error", () => undefined);
    pool.on("connect", (client) => client.on("error", () => undefined));
    const idle = new pg.Client({ connectionString: url });
    await idle.connect();
    return {
      db: pool,
      none: { "a pool": pool, "a client without BEGIN": idle },
      async transaction(work) {
        const client = await pool.connect();
        try {
          await client.query("BEGIN");
          const result = await work(client);
          await client.query("COMMIT");
          return result;
        } catch (error) {
          await client.query("ROLLBACK");
          throw error;
        } finally {
          client.release();
        }
      },
      async savepoint(client: pg.PoolClient, work) {
        await client.query("SAVEPOINT inner_one");
        try {
          await work(client);
        } catch (error) {
          await client.query("ROLLBACK TO SAVEPOINT inner_one");
          throw error;
        }
      },
      run: (client: pg.PoolClient, sql) => client.query(sql),
      close: () => Promise.all([pool.end(), idle.end()]),
    };
  },
});
