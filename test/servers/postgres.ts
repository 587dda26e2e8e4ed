import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { postgresBinaries } from "../../scripts/servers.mjs";
import { accountFor } from "./place.ts";
import { bareEnv, superviseServer, type Recipe, type Server, type Settings } from "./server.ts";

const run = promisify(execFile);

export type PostgresVersion = 14 | 15 | 16 | 17 | 18;

export interface Postgres extends Server {
  /** The folder of its programs. */
  readonly bin: string;
  readonly settings: Settings;
}

/** As durable as PostgreSQL is by itself. What a kill leaves of shared memory lies in the data folder, and goes with it. */
const defaults: Settings = {
  fsync: "on",
  synchronous_commit: "on",
  full_page_writes: "on",
  max_connections: 200,
  dynamic_shared_memory_type: "mmap",
};

export async function startPostgres({ version, settings = {} }: { version: PostgresVersion; settings?: Settings }): Promise<Postgres> {
  const bin = await postgresBinaries(version);
  const options = ["-U", "postgres", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync"];
  return runPostgres({ bin, settings, prepare: (folder, run) => run(join(bin, "initdb"), ["-D", dataOf(folder), ...options]) });
}

export const dataOf = (folder: string): string => join(folder, "data");

/** Runs what `prepare` puts into the folder's data. */
export async function runPostgres({
  bin,
  settings,
  prepare,
}: Pick<Postgres, "bin" | "settings"> & Pick<Recipe, "prepare">): Promise<Postgres> {
  const command = join(bin, "postgres");
  const { stdout } = await run(command, ["--version"], { env: bareEnv });
  const version = /\d+(\.\d+)*/.exec(stdout)?.[0] ?? "unknown";
  const server = await superviseServer({
    name: `PostgreSQL ${version}`,
    version,
    command,
    account: accountFor("postgres"),
    prepare,
    args: (folder, port) => {
      const own = { port, listen_addresses: "127.0.0.1", unix_socket_directories: "" };
      const all = Object.entries({ ...defaults, ...settings, ...own });
      return ["-D", dataOf(folder), ...all.flatMap(([name, value]) => ["-c", `${name}=${value}`])];
    },
    url: (port, database = "postgres") => `postgres://postgres@127.0.0.1:${port}/${encodeURIComponent(database)}`,
    ready: /database system is ready to accept (read-only )?connections/,
    signals: { fast: "SIGINT", immediate: "SIGQUIT" },
  });
  return Object.assign(server, { bin, settings });
}
