import { acquired, type ServerPlace } from "../kit/pool.ts";
import { errnoOf, explain, isSilence, type MysqlConnection, type MysqlPool, type MysqlPoolConnection } from "./driver.ts";

/** Works with a connection of the pool. One that is left in doubt, or inside a transaction, is not given back; with `closesFailed`, none on which the work failed. */
export async function onPool<T>(
  pool: MysqlPool,
  at: ServerPlace,
  work: (connection: MysqlPoolConnection) => Promise<T>,
  closesFailed = false,
): Promise<T> {
  const connection = await acquired(pool.getConnection(), at, "connectionLimit", explain, (late) => late.release());
  let sound = false;
  try {
    const result = await work(connection);
    sound = true;
    return result;
  } catch (error) {
    sound = !closesFailed && !isSilence(error) && (await isIdle(connection, at.patienceMs));
    throw error;
  } finally {
    if (sound) connection.release();
    else connection.destroy();
  }
}

function isIdle(connection: MysqlConnection, patienceMs: number): Promise<boolean> {
  return inTransaction((sql) => connection.query({ sql, timeout: patienceMs })).then(
    (open) => !open,
    () => false,
  );
}

/** Outside a transaction a savepoint is made without a word, and is not there afterwards; so on every server. */
export async function inTransaction(query: (sql: string) => Promise<unknown>): Promise<boolean> {
  await query("SAVEPOINT waybill_probe");
  return query("RELEASE SAVEPOINT waybill_probe").then(
    () => true,
    (error: unknown) => {
      if (errnoOf(error) === 1305) return false;
      throw error;
    },
  );
}
