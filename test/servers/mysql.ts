import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { mysqlBinaries } from "../../scripts/servers.mjs";
import { accountFor } from "./place.ts";
import { bareEnv, superviseServer, type Server, type Settings } from "./server.ts";

const run = promisify(execFile);

/** As durable as it is by itself; without the binary log and the second protocol, which no test reads. */
const defaults: Settings = {
  "innodb-flush-log-at-trx-commit": 1,
  "innodb-buffer-pool-size": "256M",
  mysqlx: 0,
  "disable-log-bin": 1,
  "secure-file-priv": "NULL",
};

interface MysqlRecipe {
  readonly settings?: Settings;
  /** Debian's newest where it is left out. */
  readonly version?: "8.0";
}

export async function startMysql({ settings = {}, version: wanted }: MysqlRecipe = {}): Promise<Server> {
  const { server: command, base } = await mysqlBinaries(wanted);
  const { stdout } = await run(command, ["--no-defaults", "--version"], { env: bareEnv });
  const version = /Ver (\d+(\.\d+)*)/.exec(stdout)?.[1] ?? "unknown";
  const places = (folder: string): string[] => [
    "--no-defaults",
    `--basedir=${base}`,
    `--datadir=${join(folder, "data")}`,
    `--lc-messages-dir=${join(base, wanted === undefined ? "share/mysql" : "share")}`,
    `--plugin-dir=${join(base, wanted === undefined ? "lib/mysql/plugin" : "lib/plugin")}`,
  ];
  return superviseServer({
    name: `MySQL ${version}`,
    version,
    command,
    account: accountFor("mysql"),
    prepare: (folder, run) => run(command, [...places(folder), "--initialize-insecure"]),
    args: (folder, port) => {
      const own = { port, "bind-address": "127.0.0.1", socket: join(folder, "socket"), "pid-file": join(folder, "pid"), tmpdir: folder };
      return [...places(folder), ...Object.entries({ ...defaults, ...settings, ...own }).map(([name, value]) => `--${name}=${value}`)];
    },
    url: (port, database = "mysql") => `mysql://root@127.0.0.1:${port}/${encodeURIComponent(database)}`,
    ready: /ready for connections/,
    signals: { fast: "SIGTERM", immediate: "SIGKILL" },
  });
}
