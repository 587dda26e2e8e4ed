import { checkOut } from "../../core/check-out.ts";
import { asError } from "../../core/errors.ts";
import { acquired, type ServerPlace } from "../kit/pool.ts";
import { explain, type PgPool, type PgPoolClient } from "./driver.ts";

/**
 * Runs the work with a client of the pool. If the connection broke, the work failed in a way that `closes` it, or the transaction did not
 * end, its state is unknown: the connection is closed, and the server rolls back.
 */
export async function onClient<T>(
  pool: PgPool,
  at: ServerPlace,
  work: (client: PgPoolClient) => Promise<T>,
  closes: (error: unknown) => boolean = () => false,
): Promise<T> {
  let broken: Error | undefined;
  const listen = (error: Error): void => void (broken = error); // a connection that breaks between two statements says so here
  const release = (client: PgPoolClient, destroy?: boolean | Error): void => {
    client.off("error", listen);
    client.release(destroy);
  };
  const client = await acquired(checkOut(pool, listen), at, "max", explain, release);
  try {
    return await work(client);
  } catch (error) {
    if (closes(error)) broken ??= asError(error);
    throw error;
  } finally {
    release(client, broken ?? (client.getTransactionStatus?.() ?? "I") !== "I");
  }
}
