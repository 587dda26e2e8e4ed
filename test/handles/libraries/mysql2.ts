import { createConnection, createPool, type PoolConnection } from "mysql2/promise";
import { fromMysql2 } from "../../../src/outbox/handles/index.ts";
import { adapter } from "../adapter.ts";

export const onMysql2 = adapter({
  library: "mysql2",
  database: "MariaDB",
  handle: fromMysql2,
  refuses: { none: true, ended: true },
  async open(uri) {
    const pool = createPool({ uri, connectionLimit: 5 });
    const idle = await createConnection({ uri });
    return {
      db: pool,
      none: { "a pool": pool, "a connection without START TRANSACTION": idle },
      async transaction(work) {
        const connection = await pool.getConnection();
        try {
          await connection.beginTransaction();
          const result = await work(connection);
          await connection.commit();
          return result;
        } catch (error) {
          await connection.rollback();
          throw error;
        } finally {
          connection.release();
        }
      },
      async savepoint(connection: PoolConnection, work) {
        await connection.query("SAVEPOINT inner_one");
        try {
          await work(connection);
        } catch (error) {
          await connection.query("ROLLBACK TO SAVEPOINT inner_one");
          throw error;
        }
      },
      run: (connection: PoolConnection, sql) => connection.query(sql),
      close: () => Promise.all([pool.end(), idle.end()]),
    };
  },
});
