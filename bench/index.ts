import { writeFileSync } from "node:fs";
import { resolve } from "node:path";
import pg from "pg";
import { startPostgres } from "../test/servers/postgres.ts";
import { backlog } from "./backlog.ts";
import { blocked } from "./blocked.ts";
import { horizon } from "./horizon.ts";
import { hot } from "./hot.ts";
import { add, drain, subscriber, type Ground } from "./legs/legs.ts";
import { purge } from "./purge.ts";
import { holds, text, type Finding } from "./report.ts";
import { status } from "./status.ts";

/** What is judged, each as a ratio to a baseline of the same run. Smaller with --quick, to see that it runs. */
const quick = process.argv.includes("--quick");
const valueOf = (flag: string): string | null => process.argv.find((word) => word.startsWith(`${flag}=`))?.slice(flag.length + 1) ?? null;
/** Another checkout, built, to compare with by turns. */
const beside = valueOf("--beside");
/** A file for the findings. */
const json = valueOf("--json");
const leg = async (
  database: (name: string) => Promise<string>,
  name: string,
  of: (ground: Ground, events: number) => Promise<readonly Finding[]>,
  events: number,
): Promise<readonly Finding[]> =>
  of(
    { store: await database(name), server: server.pid!, rounds: quick ? 1 : 5, beside: beside === null ? null : resolve(beside) },
    quick ? Math.ceil(events / 10) : events,
  );
const scenarios: Readonly<Record<string, (database: (name: string) => Promise<string>) => Promise<readonly Finding[]>>> = {
  add: (database) => leg(database, "add", add, 10_000),
  drain: (database) => leg(database, "drain", drain, 30_000),
  subscriber: (database) => leg(database, "subscriber", subscriber, 5_000),
  horizon: (database) => horizon(database, quick ? 60_000 : 600_000),
  blocked: async (database) => blocked(await database("blocked"), quick ? 10_000 : 100_000),
  backlog: async (database) => backlog(await database("backlog"), quick ? 50_000 : 1_000_000),
  hot: async (database) => hot(await database("hot"), quick ? 300 : 1_500),
  purge: async (database) => purge(await database("purge"), quick ? 5 : 40),
  status: async (database) => status(await database("status"), quick ? 300_000 : 20_000_000),
};

const asked = process.argv.slice(2).filter((word) => !word.startsWith("--"));
const unknown = asked.find((name) => !Object.hasOwn(scenarios, name));
if (unknown !== undefined) {
  console.error(`there is no bench ${JSON.stringify(unknown)}: there are ${Object.keys(scenarios).join(", ")}`);
  process.exit(2);
}

await using server = await startPostgres({ version: 15, settings: { shared_buffers: "512MB", max_wal_size: "4GB" } });
const admin = new pg.Client({ connectionString: server.url() });
admin.on("error", () => undefined); // of a run that fails, its own error is shown
await admin.connect();
const database = async (name: string): Promise<string> => {
  await admin.query(`CREATE DATABASE bench_${name}`);
  return server.url(`bench_${name}`);
};
console.log(`PostgreSQL ${server.version}, Node ${process.version}, events of 300 bytes\n`);
const findings: Finding[] = [];
for (const name of asked.length === 0 ? Object.keys(scenarios) : asked) {
  for (const finding of await scenarios[name]!(database)) {
    console.log(`${text(finding)}\n`);
    findings.push(finding);
  }
}
await admin.end();
if (json !== null) writeFileSync(json, `${JSON.stringify({ node: process.version, postgres: server.version, findings }, null, 2)}\n`);
process.exitCode = findings.every(holds) ? 0 : 1;
