import type { Run } from "./connection.ts";
import type { Names } from "./names.ts";
import { storable } from "./rows.ts";

/** Who did what, when, and to how many events. */
export async function audit(run: Run, n: Names, action: string, who: string, events: number, detail: object): Promise<void> {
  await run(`INSERT INTO ${n.audit} (who, action, events, detail) VALUES ($1, $2, $3, $4::json)`, [
    storable(who),
    action,
    events,
    JSON.stringify(detail),
  ]);
}
