import { createPool, type PoolConnection, type RowDataPacket } from "mysql2/promise";
import { mysql, type MysqlStore } from "../../src/stores/mysql/index.ts";
import type { Adapter } from "../handles/adapter.ts";
import type { AnyHandle } from "../handles/body.ts";
import { counted, texts, type Ground, type Keeping } from "./ground.ts";

let made = 0;

/** On MariaDB or MySQL. `{ url }` and `{ pool }` use mysql2 itself; any other way is a library. */
export async function mariadbGround(
  url: (database?: string) => string,
  way: "url" | "pool" | Adapter,
  { onPublish, partitions }: Keeping = {},
): Promise<Ground> {
  const database = `composed_${process.pid}_${++made}`;
  const root = createPool({ uri: url("mysql"), connectionLimit: 4 });
  await root.query(`CREATE DATABASE ${database}`);
  const pool = createPool({ uri: url(database), connectionLimit: 12 });
  const placed = { ...(onPublish && { onPublish }), ...(partitions && { partitions }) };
  const store: MysqlStore = way === "url" ? mysql({ url: url(database), ...placed }) : mysql({ pool, ...placed });
  await store.schema.migrate();
  await root.query(`CREATE TABLE ${database}.effects (pos bigint AUTO_INCREMENT PRIMARY KEY, name varchar(255) NOT NULL)`);
  await root.query(`CREATE TABLE ${database}.scratch (name varchar(255) NOT NULL)`);
  const library = typeof way === "string" ? null : await way.open(url(database));
  const handle = typeof way === "string" ? undefined : (way.handle as AnyHandle);
  const through = library === null ? store : mysql({ url: url(database), ...placed, tx: handle!, db: library.db });
  const { outbox, hints } = counted(store, handle);
  const plain = async (work: (connection: PoolConnection) => Promise<void>): Promise<void> => {
    const connection = await pool.getConnection();
    try {
      await connection.beginTransaction();
      await work(connection);
      await connection.commit();
    } catch (error) {
      await connection.rollback();
      throw error;
    } finally {
      connection.release();
    }
  };
  const end = async (): Promise<void> => {
    if (through !== store) await through[Symbol.asyncDispose]();
    await library?.close();
    await store[Symbol.asyncDispose]();
    await pool.end();
  };
  let ended: Promise<void> | null = null;
  return {
    store: through,
    relayed: store,
    outbox,
    hints,
    transaction: (work) => (library === null ? plain((own) => work(own, outbox)) : library.transaction((tx) => work(tx, outbox))),
    run: (tx, sql) => (library === null ? (tx as typeof pool).query(sql) : library.run(tx, sql)),
    async read(sql) {
      const connection = await root.getConnection();
      try {
        await connection.query(`USE ${database}`);
        return texts([(await connection.query<RowDataPacket[]>(sql))[0]].flat().filter((row) => "fieldCount" in row === false));
      } finally {
        await connection.query("USE mysql");
        connection.release();
      }
    },
    async connections() {
      const [[row]] = await root.query<RowDataPacket[]>("SELECT count(*) AS n FROM information_schema.processlist WHERE db = ?", [
        database,
      ]);
      return Number(row!["n"]);
    },
    end: () => (ended ??= end()),
    async close() {
      await (ended ??= end());
      await root.query(`DROP DATABASE ${database}`);
      await root.end();
    },
  };
}
