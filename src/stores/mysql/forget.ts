import type { Connection } from "./connection.ts";

/** However many the caller asks for, a step stays small: neither another session nor a replica waits long for it. */
const forgottenAtOnce = 1_000;

export function forgetSome(
  connection: Connection,
  table: string,
  column: string,
  before: Date,
  limit: number,
  consumer?: string,
): Promise<number> {
  const whose = consumer === undefined ? "" : "consumer = ? AND ";
  return connection.transaction(({ change }) =>
    change(
      `DELETE FROM ${table} WHERE ${whose}${column} < ? ORDER BY ${column} LIMIT ${Math.min(limit, forgottenAtOnce)}`,
      consumer === undefined ? [before] : [consumer, before],
    ),
  );
}
