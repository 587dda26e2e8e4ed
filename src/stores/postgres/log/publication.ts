import type { Connection } from "../connection.ts";

import { LogUnreadable } from "../../../core/log-unreadable.ts";
import { causesOf, sqlStateOf } from "../../../core/causes.ts";
import type { LogNames } from "./names.ts";
import { columnsRead } from "./relation.ts";

/** Before this version, a publication has all columns. */
const columnLists = 150_000;

/** Without our columns alone, whatever columns a user adds would travel too. */
export const createPublication = (names: LogNames, version: number): string =>
  `CREATE PUBLICATION ${names.name} FOR TABLE ${names.outbox}${version < columnLists ? "" : ` (${columnsRead.join(", ")})`}
   WITH (publish = 'insert', publish_via_partition_root = true)`;

/**
 * In a transaction of its own, which has committed before any slot is made: a slot that is older than its publication can never be read
 * before PostgreSQL 18, and silently skips events from there on.
 */
export async function makePublication({ transaction, place }: Connection, names: LogNames): Promise<void> {
  const isState = (error: unknown, state: string): boolean => causesOf(error).some((cause) => sqlStateOf(cause) === state);
  try {
    await transaction(async (run) => {
      const [row] = await run("SELECT current_setting('server_version_num') AS version");
      await run(createPublication(names, Number(row!["version"])));
    });
  } catch (error) {
    if (isState(error, "42710")) return; // another process has made it meanwhile
    if (isState(error, "42501"))
      throw new LogUnreadable(
        "rights",
        `${place}: there is no publication ${names.name}, and this role may not create it: it needs CREATE on the database and must own the outbox`,
        { cause: error },
      );
    throw error;
  }
}
