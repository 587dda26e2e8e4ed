import { acquired, type ServerPlace } from "../kit/pool.ts";
import { errnoOf, explain, isSilence, type MysqlConnection, type MysqlPool, type MysqlPoolConnection } from "./driver.ts";

/** Works on a pooled connection. If the work fails, closes one that is in doubt or in a transaction; with `closesFailed`, any. */
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

/**
 * On MySQL, in one statement that libraries may prepare, unlike SAVEPOINT: inside a transaction it is refused, and the transaction lives on.
 * Outside, it gives the next transaction what the session has anyway.
 */
export async function inMysqlTransaction(query: (sql: string) => Promise<unknown>): Promise<boolean> {
  return query("SET @@transaction_read_only = @@session.transaction_read_only").then(
    () => false,
    (error: unknown) => {
      if (errnoOf(error) === 1568) return true;
      throw error;
    },
  );
}

/** MySQL refuses some statements to a library that prepares everything. */
export const isUnprepared = (error: unknown): boolean => errnoOf(error) === 1295;

/** Outside a transaction, every server accepts a savepoint silently, and the savepoint does not exist afterwards. */
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
