import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { counters, gauges, publishLatency } from "../../src/observe/metrics.ts";
import { evaluate, samplesOf } from "./promql.ts";
import { exprOf, rules, rulesText } from "./rules.ts";

const read = (path: string): string => readFileSync(new URL(`../../${path}`, import.meta.url), "utf8");

/** Every series of /metrics, with its labels. */
const series = new Map<string, readonly string[]>([
  ...[...counters, ...gauges].map(({ name, labels }) => [name, labels] as const),
  [`${publishLatency.name}_bucket`, ["le"]],
  [`${publishLatency.name}_sum`, []],
  [`${publishLatency.name}_count`, []],
]);

/** Prometheus adds these to every series. */
const targetLabels = ["job", "instance"];

/** What an expression names that /metrics does not have. */
function unknownIn(expr: string): readonly string[] {
  const named = [...expr.matchAll(/\bwaybill_\w+/g)].map(([name]) => name);
  const labels = [
    ...[...expr.matchAll(/\{([^}]*)\}/g)].flatMap(([, inside]) =>
      [...inside!.matchAll(/(\w+)\s*(?:=~|!~|!=|=)/g)].map(([, label]) => label!),
    ),
    ...[...expr.matchAll(/\b(?:by|without|on|ignoring) \(([^)]*)\)/g)].flatMap(([, list]) => list!.split(",").map((label) => label.trim())),
  ];
  const known = new Set([...targetLabels, ...named.flatMap((name) => series.get(name) ?? [])]);
  return [
    ...(named.length === 0 ? ["no metric"] : []),
    ...named.filter((name) => !series.has(name)),
    ...labels.filter((label) => !known.has(label)),
  ];
}

test("a name or a label that /metrics does not have is found", () => {
  expect(unknownIn('max by (job, topik) (waybill_eventz{stat="DEAD"})')).toEqual(["waybill_eventz", "stat", "topik"]);
  expect(unknownIn('max by (job) (waybill_events{state="DEAD", job=~"a"}) > 0')).toEqual([]);
});

describe("the rules for Prometheus", () => {
  test.each(rules)("$alert names only what /metrics has, and its section of the runbook", ({ alert, expr, severity, runbook, shown }) => {
    expect(unknownIn(expr)).toEqual([]);
    expect(["critical", "warning"]).toContain(severity);
    expect(runbook).toBe(`docs/runbook.md#${alert.toLowerCase()}`);
    for (const label of shown) expect(expr).toMatch(new RegExp(`by \\([^)]*\\b${label}\\b`));
  });

  test("have one section each in the runbook, in the same order, that says what it means, what to look at and what to do", () => {
    const sections = read("docs/runbook.md").split(/^### /m).slice(1);
    expect(sections.map((section) => section.split("\n")[0])).toEqual(rules.map(({ alert }) => alert));
    for (const section of sections) for (const part of ["It means", "Look at", "Do"]) expect(section).toContain(`- *${part}:* `);
  });

  test("are all of them", () => {
    expect(rules).toHaveLength([...rulesText.matchAll(/alert:/g)].length);
    expect(rules.length).toBeGreaterThan(10);
  });
});

describe("the dashboard for Grafana", () => {
  interface Panel {
    readonly id: number;
    readonly title: string;
    readonly targets: readonly { readonly expr: string; readonly legendFormat: string }[];
  }
  const { panels, templating } = JSON.parse(read("deploy/grafana-dashboard.json")) as {
    readonly panels: readonly Panel[];
    readonly templating: { readonly list: readonly { readonly name: string; readonly query: string }[] };
  };

  test.each(panels)("$title shows only what /metrics has", ({ targets }) => {
    for (const { expr, legendFormat } of targets) {
      expect(unknownIn(expr)).toEqual([]);
      for (const [, label] of legendFormat.matchAll(/\{\{(\w+)\}\}/g)) expect(expr).toMatch(new RegExp(`by \\([^)]*\\b${label}\\b`));
    }
  });

  test("has an id for each panel, and asks for jobs by a metric that there is", () => {
    expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length);
    const job = templating.list.find(({ name }) => name === "job");
    expect(series.has(/label_values\((\w+), job\)/.exec(job?.query ?? "")?.[1] ?? "")).toBe(true);
  });
});

test("what a person must act on has an alert", () => {
  const needed = [
    ...["waybill_oldest_claimable_seconds", "waybill_oldest_blocked_seconds", "waybill_events", "waybill_letters_total"],
    ...["waybill_lag_messages", "waybill_source_up", "waybill_outbox_bytes", "waybill_warnings_total"],
  ];
  for (const name of needed) expect(rulesText).toContain(name);
});

describe("the rule about a consumer that is gone", () => {
  const lag = 'waybill_lag_messages{consumer="shipping",topic="order.events"}';
  const running = 'waybill_consumer_running{consumer="shipping",topic="order.events"}';
  const firing = (...lines: readonly string[]): readonly unknown[] => evaluate(exprOf("WaybillConsumerGone"), samplesOf(lines.join("\n")));
  const found = [{ labels: { consumer: "shipping", topic: "order.events" }, value: 6 }];

  test("fires while messages wait and nothing says that it runs", () => {
    expect(firing(`${lag} 6`, `${running} 0`)).toEqual(found);
    expect(firing(`${lag} 6`)).toEqual(found);
    expect(firing(`${lag} 6`, 'waybill_source_up{consumer="shipping"} 0')).toEqual(found);
    expect(firing(`${lag} 6`, 'waybill_source_up{consumer="billing"} 1', running.replace("order", "parcel") + " 1")).toEqual(found);
  });

  test("does not fire while it runs, by the inbox's database or by its own page, or when nothing waits", () => {
    expect(firing(`${lag} 6`, `${running} 1`)).toEqual([]);
    expect(firing(`${lag} 6`, 'waybill_source_up{consumer="shipping"} 1')).toEqual([]);
    expect(firing(`${lag} 0`, `${running} 0`)).toEqual([]);
  });

  test("has one beside it for pages that report no consumer at all", () => {
    expect(evaluate(exprOf("WaybillConsumersAbsent"), samplesOf("waybill_store_up 1"))).toHaveLength(1);
    expect(evaluate(exprOf("WaybillConsumersAbsent"), samplesOf(`${lag} 0`))).toEqual([]);
    expect(evaluate(exprOf("WaybillSourceDown"), samplesOf('waybill_source_up{consumer="shipping"} 0'))).toHaveLength(1);
  });
});
