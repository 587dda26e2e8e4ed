import type { MysqlSession } from "./connection.ts";
import type { Names } from "./names.ts";

/** Who did what, when, and to how many events. */
export async function audit(
  change: MysqlSession["change"],
  n: Names,
  action: string,
  who: string,
  events: number,
  detail: object,
): Promise<void> {
  await change(`INSERT INTO ${n.audit} (who, action, events, detail) VALUES (?, ?, ?, ?)`, [who, action, events, JSON.stringify(detail)]);
}
