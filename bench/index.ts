import pg from "pg";
import { startPostgres } from "../test/servers/postgres.ts";
import { backlog } from "./backlog.ts";
import { blocked } from "./blocked.ts";
import { horizon } from "./horizon.ts";
import { hot } from "./hot.ts";
import { purge } from "./purge.ts";
import { holds, text, type Finding } from "./report.ts";
import { status } from "./status.ts";

/** What is judged, each as a ratio to a baseline of the same run. Smaller with --quick, to see that it runs. */
const quick = process.argv.includes("--quick");
const scenarios: Readonly<Record<string, (database: (name: string) => Promise<string>) => Promise<readonly Finding[]>>> = {
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
await admin.connect();
const database = async (name: string): Promise<string> => {
  await admin.query(`CREATE DATABASE bench_${name}`);
  return server.url(`bench_${name}`);
};
console.log(`PostgreSQL ${server.version}, Node ${process.version}, events of 300 bytes\n`);
let broken = 0;
for (const name of asked.length === 0 ? Object.keys(scenarios) : asked) {
  for (const finding of await scenarios[name]!(database)) {
    console.log(`${text(finding)}\n`);
    if (!holds(finding)) broken += 1;
  }
}
await admin.end();
process.exitCode = broken === 0 ? 0 : 1;
