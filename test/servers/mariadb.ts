import { execFile } from "node:child_process";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { mariadbBinaries } from "../../scripts/servers.mjs";
import { accountFor } from "./place.ts";
import { bareEnv, superviseServer, type Server, type Settings } from "./server.ts";

const run = promisify(execFile);

/** As durable as it is by itself, and the character set that distributions configure: the one compiled in is latin1. */
const defaults: Settings = {
  "innodb-flush-log-at-trx-commit": 1,
  "innodb-buffer-pool-size": "256M",
  "character-set-server": "utf8mb4",
  "collation-server": "utf8mb4_general_ci",
};

interface MariadbRecipe {
  readonly settings?: Settings;
  /** The machine's own where it is left out. */
  readonly version?: "11.8";
}

export async function startMariadb({ settings = {}, version: wanted }: MariadbRecipe = {}): Promise<Server> {
  const { server: command, install, base, env } = await mariadbBinaries(wanted);
  const { stdout } = await run(command, ["--no-defaults", "--version"], { env: { ...bareEnv, ...env } });
  const version = /Ver (\d+(\.\d+)*)/.exec(stdout)?.[1] ?? "unknown";
  const places = (folder: string): string[] => ["--no-defaults", `--basedir=${base}`, `--datadir=${join(folder, "data")}`];
  return superviseServer({
    name: `MariaDB ${version}`,
    version,
    command,
    account: accountFor("mysql"),
    env,
    async prepare(folder, run) {
      const make = (): unknown => run(install, [...places(folder), "--auth-root-authentication-method=normal"]);
      try {
        await make();
      } catch {
        rmSync(join(folder, "data"), { recursive: true, force: true }); // it has failed on a busy machine, and not again
        await make();
      }
    },
    args: (folder, port) => {
      const own = {
        port,
        "bind-address": "127.0.0.1",
        "skip-networking": 0,
        socket: join(folder, "socket"),
        "pid-file": join(folder, "pid"),
        tmpdir: folder,
      };
      return [...places(folder), ...Object.entries({ ...defaults, ...settings, ...own }).map(([name, value]) => `--${name}=${value}`)];
    },
    url: (port, database = "test") => `mysql://root@127.0.0.1:${port}/${encodeURIComponent(database)}`,
    ready: /ready for connections/,
    // It has no way of its own to stop at once.
    signals: { fast: "SIGTERM", immediate: "SIGKILL" },
  });
}
