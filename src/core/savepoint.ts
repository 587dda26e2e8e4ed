import { sqlStateOf } from "./causes.ts";
import { asError } from "./errors.ts";

interface Asked {
  query(text: string): Promise<unknown>;
}

/** A client of pg before 8.21, which does not say whether its transaction is open. */
export function isSilent<T extends object>(client: T): client is T & Asked {
  const { connectionParameters, getTransactionStatus } = client as Readonly<Record<string, unknown>>;
  return typeof connectionParameters === "object" && connectionParameters !== null && getTransactionStatus === undefined;
}

/** Asks the server: it refuses a savepoint outside a transaction, and in one that has failed. */
export async function takesSavepoint(client: Asked): Promise<boolean> {
  try {
    await client.query("SAVEPOINT waybill_inside");
    await client.query("RELEASE SAVEPOINT waybill_inside"); // a COMMIT may have come between
    return true;
  } catch (error) {
    const code = sqlStateOf(asError(error));
    if (code === "25P01") return false;
    if (code === "25P02") return true;
    throw error;
  }
}
