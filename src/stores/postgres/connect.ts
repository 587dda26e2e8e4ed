import { systemClock } from "../../core/clock.ts";
import { WaybillError } from "../../core/errors.ts";
import { explain, type PgPool, type PgPoolClient } from "./driver.ts";

/** What `work` gives, or null when it has not come in time. */
export async function within<T>(work: Promise<T>, ms: number): Promise<T | null> {
  const ended = new AbortController();
  try {
    return await Promise.race([work, systemClock.sleep(ms, ended.signal).then(() => null)]);
  } finally {
    ended.abort();
  }
}

/** A pool whose clients are all in use must not keep anybody waiting for ever; pg's own default is to wait. */
export async function connect(pool: PgPool, place: string, patienceMs: number): Promise<PgPoolClient> {
  const coming = pool.connect();
  try {
    const client = await within(coming, patienceMs);
    if (client !== null) return client;
  } catch (error) {
    throw explain(error, place);
  }
  coming.then(
    (client) => client.release(),
    () => undefined,
  );
  throw new WaybillError("STORE_UNAVAILABLE", `no connection to ${place} became free within ${patienceMs} ms: raise the pool's max`);
}
