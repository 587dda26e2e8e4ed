import { writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { resolve } from "node:path";
import { openGround } from "./measure/ground.ts";
import { holds, type Finding } from "./report/finding.ts";
import { html } from "./report/html.ts";
import { text } from "./report/text.ts";
import { scenarios } from "./scenarios/index.ts";

const flags = { quick: process.argv.includes("--quick"), long: process.argv.includes("--long") };
const valueOf = (flag: string): string | null => process.argv.find((word) => word.startsWith(`${flag}=`))?.slice(flag.length + 1) ?? null;
const [beside, json, page] = [valueOf("--beside"), valueOf("--json"), valueOf("--html")];
const [only, rounds] = [valueOf("--only"), valueOf("--rounds")];

const asked = process.argv.slice(2).filter((word) => !word.startsWith("--"));
const unknown = asked.find((name) => !Object.hasOwn(scenarios, name));
if (unknown !== undefined) {
  console.error(`there is no bench ${JSON.stringify(unknown)}: there are ${Object.keys(scenarios).join(", ")}`);
  process.exit(2);
}
const standard = Object.keys(scenarios).filter((name) => flags.long || scenarios[name]!.long !== true);

await using ground = await openGround({
  quick: flags.quick,
  beside: beside === null ? null : resolve(beside),
  only: only?.split(",") ?? [],
  rounds: rounds === null ? null : Number(rounds),
});
const setting = {
  node: process.version,
  postgres: ground.postgres.version,
  cpu: `${cpus().length} × ${cpus()[0]?.model.trim() ?? "unknown"}`,
  quick: flags.quick,
  at: new Date().toISOString(),
};
const title = `PostgreSQL ${setting.postgres} without full-page images, Node ${setting.node}, ${setting.cpu}, events of 300 bytes`;
console.log(`${title}\n`);
const findings: (Finding & { readonly scenario: string })[] = [];
const minutesSince = (began: number): string => `${((performance.now() - began) / 60_000).toFixed(1)} minutes`;
const took: string[] = [];
const start = performance.now();
for (const scenario of asked.length === 0 ? standard : asked) {
  const began = performance.now();
  const run = scenarios[scenario]!.run(ground);
  for await (const finding of Symbol.asyncIterator in run ? run : await run) {
    console.log(`${text(finding)}\n`);
    findings.push({ scenario, ...finding });
  }
  took.push(`${scenario} ${minutesSince(began)}`);
}
console.log(`${took.join(", ")}; together ${minutesSince(start)}`);
if (json !== null) writeFileSync(json, `${JSON.stringify({ ...setting, findings }, null, 2)}\n`);
if (page !== null) writeFileSync(page, html({ title: `${title}, ${setting.at}`, findings }));
process.exitCode = findings.every(holds) ? 0 : 1;
