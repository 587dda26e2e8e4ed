import { readFileSync } from "node:fs";

export interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly severity: string;
  readonly runbook: string;
  readonly shown: readonly string[];
}

export const rulesText = readFileSync(new URL("../../deploy/waybill.rules.yml", import.meta.url), "utf8");

export const rules: readonly Rule[] = rulesText
  .split(/^ +- (?=alert: )/m)
  .slice(1)
  .map((rule) => ({
    alert: /^alert: (\w+)$/m.exec(rule)?.[1] ?? "",
    expr: /^ +expr: (.+)$/m.exec(rule)?.[1] ?? "",
    severity: /severity: (\w+)/.exec(rule)?.[1] ?? "",
    runbook: /runbook: "([^"]+)"/.exec(rule)?.[1] ?? "",
    shown: [...rule.matchAll(/\$labels\.(\w+)/g)].map(([, label]) => label!),
  }));

export function exprOf(alert: string): string {
  const rule = rules.find((each) => each.alert === alert);
  if (rule === undefined) throw new Error(`there is no alert ${alert}`);
  return rule.expr;
}
