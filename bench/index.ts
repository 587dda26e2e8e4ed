import { writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { asked } from "./asked.ts";
import { openGround } from "./measure/ground.ts";
import { holds, type Finding } from "./report/finding.ts";
import { html } from "./report/html.ts";
import { text } from "./report/text.ts";
import { scenarios } from "./scenarios/index.ts";

const order = (() => {
  try {
    return asked(process.argv.slice(2), Object.keys(scenarios));
  } catch (error) {
    console.error((error as Error).message);
    process.exit(2);
  }
})();
const standard = Object.keys(scenarios).filter((name) => order.long || scenarios[name]!.long !== true);

await using ground = await openGround(order);
const setting = {
  node: process.version,
  postgres: ground.postgres.version,
  cpu: `${cpus().length} × ${cpus()[0]?.model.trim() ?? "unknown"}`,
  quick: order.quick,
  at: new Date().toISOString(),
};
const title = `PostgreSQL ${setting.postgres} without full-page images, Node ${setting.node}, ${setting.cpu}, events of 300 bytes`;
console.log(`${title}\n`);
const findings: (Finding & { readonly scenario: string })[] = [];
const minutesSince = (began: number): string => `${((performance.now() - began) / 60_000).toFixed(1)} minutes`;
const took: string[] = [];
const start = performance.now();
for (const scenario of order.scenarios.length === 0 ? standard : order.scenarios) {
  const began = performance.now();
  const run = scenarios[scenario]!.run(ground);
  for await (const finding of Symbol.asyncIterator in run ? run : await run) {
    console.log(`${text(finding)}\n`);
    findings.push({ scenario, ...finding });
  }
  took.push(`${scenario} ${minutesSince(began)}`);
}
console.log(`${took.join(", ")}; together ${minutesSince(start)}`);
if (order.json !== null) writeFileSync(order.json, `${JSON.stringify({ ...setting, findings }, null, 2)}\n`);
if (order.html !== null) writeFileSync(order.html, html({ title: `${title}, ${setting.at}`, findings }));
process.exitCode = findings.every(holds) ? 0 : 1;
