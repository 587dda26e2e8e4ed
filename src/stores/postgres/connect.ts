import { systemClock } from "../../core/clock.ts";
import { checkOut } from "../../core/check-out.ts";
import { WaybillError } from "../../core/errors.ts";
import { explain, type PgPool, type PgPoolClient } from "./driver.ts";

/** Which server, for messages, and how long its answer may take. */
export interface Server {
  readonly place: string;
  readonly patienceMs: number;
}

/** What `work` gives, or null when it has not come in time. */
export async function within<T>(work: Promise<T>, ms: number): Promise<T | null> {
  const ended = new AbortController();
  try {
    return await Promise.race([work, systemClock.sleep(ms, ended.signal).then(() => null)]);
  } finally {
    ended.abort();
  }
}

/**
 * With `listen` on the client's errors: take it off before the client is released. A pool whose clients are all in use must not keep
 * anybody waiting for ever; pg's own default is to wait.
 */
export async function connect(pool: PgPool, listen: (error: Error) => void, { place, patienceMs }: Server): Promise<PgPoolClient> {
  const coming = checkOut(pool, listen);
  try {
    const client = await within(coming, patienceMs);
    if (client !== null) return client;
  } catch (error) {
    throw explain(error, place);
  }
  coming.then(
    (client) => {
      client.off("error", listen);
      client.release();
    },
    () => undefined,
  );
  throw new WaybillError("STORE_UNAVAILABLE", `no connection to ${place} became free within ${patienceMs} ms: raise the pool's max`);
}
