import { startPostgres } from "../test/servers/postgres.ts";
import { blocked } from "./blocked.ts";
import { horizon } from "./horizon.ts";
import { purge } from "./purge.ts";
import { holds, text, type Finding } from "./report.ts";

/** What is judged, each as a ratio to a baseline of the same run. Smaller with --quick, to see that it runs. */
const quick = process.argv.includes("--quick");
const scenarios: Readonly<Record<string, (url: string) => Promise<readonly Finding[]>>> = {
  horizon: (url) => horizon(url, quick ? 60_000 : 600_000),
  blocked: (url) => blocked(url, quick ? 10_000 : 100_000),
  purge: (url) => purge(url, quick ? 3 : 15),
};

const asked = process.argv.slice(2).filter((word) => !word.startsWith("--"));
const unknown = asked.find((name) => !Object.hasOwn(scenarios, name));
if (unknown !== undefined) {
  console.error(`there is no bench ${JSON.stringify(unknown)}: there are ${Object.keys(scenarios).join(", ")}`);
  process.exit(2);
}

await using server = await startPostgres({ version: 15, settings: { shared_buffers: "512MB", max_wal_size: "4GB" } });
console.log(`PostgreSQL ${server.version}, Node ${process.version}, events of 300 bytes\n`);
let broken = 0;
for (const name of asked.length === 0 ? Object.keys(scenarios) : asked) {
  for (const finding of await scenarios[name]!(server.url())) {
    console.log(`${text(finding)}\n`);
    if (!holds(finding)) broken += 1;
  }
}
process.exitCode = broken === 0 ? 0 : 1;
