import type { Holder, Watch } from "../../contracts/housekeeping.ts";
import type { MysqlRow, Run } from "./connection.ts";
import { errnoOf } from "./driver.ts";
import type { Names } from "./names.ts";
import { isSet, numberOf, textOf, textOrNull } from "./rows.ts";

/** Reads statistics only: no event, and no text of a statement. */
export async function readWatch(run: Run, n: Names): Promise<Watch> {
  const [facts] = await run(
    `SELECT DATA_LENGTH + INDEX_LENGTH AS bytes, CURRENT_USER() AS me FROM information_schema.TABLES
     WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME = ?`,
    [n.schema, n.plain("outbox")],
  );
  const bytes = facts === undefined || facts["bytes"] === null ? ("unknown" as const) : numberOf(facts, "bytes");
  const holders = await transactions(run);
  // InnoDB counts what it has not cleaned up in transactions, and not in rows.
  const known = { bytes, deadRows: "unknown" } as const;
  if (holders === null) {
    const me = facts === undefined ? "this user" : textOf(facts, "me");
    return {
      ...known,
      horizon: "unknown",
      writer: "unknown",
      unseen: `other users' transactions, so that each claim begins its scan at the first row: an administrator can GRANT PROCESS ON *.* TO ${me}`,
    };
  }
  const writer = holders.find((row) => isSet(row, "wrote"));
  return {
    ...known,
    horizon: holders[0] === undefined ? null : holderOf(holders[0]),
    writer: writer === undefined ? null : holderOf(writer),
    unseen: null,
  };
}

/** Oldest first; null without the right to see other users' transactions. One that has not written has the number 0, or one above 2^48. */
async function transactions(run: Run): Promise<readonly MysqlRow[] | null> {
  try {
    return await run(
      `SELECT t.trx_id, t.trx_id > 0 AND t.trx_id < 281474976710656 AS wrote, t.trx_mysql_thread_id AS thread, CAST(p.USER AS BINARY) AS user,
         CAST(p.HOST AS BINARY) AS host, CASE WHEN p.COMMAND = 'Sleep' THEN 'idle in transaction' ELSE LOWER(t.trx_state) END AS state,
         UNIX_TIMESTAMP() - UNIX_TIMESTAMP(CONVERT_TZ(t.trx_started, 'SYSTEM', @@session.time_zone)) AS age
       FROM information_schema.INNODB_TRX t LEFT JOIN information_schema.PROCESSLIST p ON p.ID = t.trx_mysql_thread_id
       WHERE t.trx_mysql_thread_id <> CONNECTION_ID() ORDER BY t.trx_started`,
    );
  } catch (error) {
    if (errnoOf(error) === 1227) return null;
    throw error;
  }
}

function holderOf(row: MysqlRow): Holder {
  const prepared = numberOf(row, "thread") === 0;
  return {
    kind: prepared ? "prepared" : "session",
    name: prepared ? `of transaction ${textOf(row, "trx_id")}` : textOf(row, "thread"),
    user: textOrNull(row, "user") ?? (prepared ? "" : "unknown"),
    application: "",
    state: prepared ? "prepared" : (textOrNull(row, "state") ?? "unknown"),
    ageMs: row["age"] === null ? "unknown" : Math.max(0, numberOf(row, "age") * 1000),
    transactions: "unknown",
  };
}
