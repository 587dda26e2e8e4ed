import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { pgbouncerBinary } from "../../scripts/servers.mjs";
import { accountFor } from "./place.ts";
import type { Postgres } from "./postgres.ts";
import { bareEnv, superviseServer, type Server, type Settings } from "./server.ts";

const run = promisify(execFile);

/** PgBouncer before a PostgreSQL, in transaction mode: two transactions of one client may meet two different sessions. */
export async function startPgBouncer(postgres: Postgres, { settings = {} }: { settings?: Settings } = {}): Promise<Server> {
  const { command, env } = await pgbouncerBinary();
  const { stdout } = await run(command, ["--version"], { env: { ...bareEnv, ...env } });
  const version = /PgBouncer (\d+(\.\d+)*)/i.exec(stdout)?.[1] ?? "unknown";
  return superviseServer({
    name: `PgBouncer ${version}`,
    version,
    command,
    account: accountFor("postgres"),
    env,
    prepare: () => undefined,
    args: (folder, port) => {
      const all = {
        pool_mode: "transaction",
        default_pool_size: 20,
        max_client_conn: 500,
        ...settings,
        listen_addr: "127.0.0.1",
        listen_port: port,
        unix_socket_dir: "",
        auth_type: "any",
      };
      const database = `* = host=127.0.0.1 port=${postgres.port} user=postgres`;
      const lines = Object.entries(all).map(([name, value]) => `${name} = ${value}`);
      const ini = join(folder, "pgbouncer.ini");
      writeFileSync(ini, ["[databases]", database, "[pgbouncer]", ...lines, ""].join("\n"), { mode: 0o644 });
      return [ini];
    },
    url: (port, database = "postgres") => `postgres://postgres@127.0.0.1:${port}/${encodeURIComponent(database)}`,
    ready: /process up/,
    signals: { fast: "SIGTERM", immediate: "SIGKILL" },
  });
}
