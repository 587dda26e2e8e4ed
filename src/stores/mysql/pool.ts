import { systemClock } from "../../core/clock.ts";
import { WaybillError } from "../../core/errors.ts";
import { errnoOf, explain, isSilence, type MysqlConnection, type MysqlPool, type MysqlPoolConnection } from "./driver.ts";

/** Works with a connection of the pool. One that is left in doubt, or inside a transaction, is not given back; with `closesFailed`, none on which the work failed. */
export async function onPool<T>(
  pool: MysqlPool,
  place: string,
  patienceMs: number,
  work: (connection: MysqlPoolConnection) => Promise<T>,
  closesFailed = false,
): Promise<T> {
  const connection = await acquire(pool, place, patienceMs);
  let sound = false;
  try {
    const result = await work(connection);
    sound = true;
    return result;
  } catch (error) {
    sound = !closesFailed && !isSilence(error) && (await isIdle(connection, patienceMs));
    throw error;
  } finally {
    if (sound) connection.release();
    else connection.destroy();
  }
}

/** A pool whose connections are all in use must not keep anybody waiting for ever. */
async function acquire(pool: MysqlPool, place: string, patienceMs: number): Promise<MysqlPoolConnection> {
  const ended = new AbortController();
  const coming = pool.getConnection();
  const late = systemClock.sleep(patienceMs, ended.signal).then(() => null);
  try {
    const connection = await Promise.race([coming, late]);
    if (connection !== null) return connection;
  } catch (error) {
    throw explain(error, place);
  } finally {
    ended.abort();
  }
  coming.then(
    (connection) => connection.release(),
    () => undefined,
  );
  throw new WaybillError(
    "STORE_UNAVAILABLE",
    `no connection to ${place} became free within ${patienceMs} ms: raise the pool's connectionLimit`,
  );
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
