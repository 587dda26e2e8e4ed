import type { Action } from "../../contracts/operator.ts";
import type { Statements } from "../../drivers/sqlite/connection.ts";
import { iso } from "./rows.ts";

export function audit(statements: Statements, action: string, by: Action, events: number, detail: object, nowMs: number): void {
  statements.run("INSERT INTO waybill_audit (at, who, action, events, detail) VALUES (?, ?, ?, ?, ?)", [
    iso(nowMs),
    by.who,
    action,
    events,
    JSON.stringify(detail),
  ]);
}
