import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { redisBinary } from "../../scripts/servers.mjs";
import { accountFor } from "./place.ts";
import { bareEnv, superviseServer, type Server, type Settings } from "./server.ts";

const run = promisify(execFile);

export interface RedisServer extends Server {
  /** It stands still, and its connections with it, until `thaw`. */
  freeze(): void;
  thaw(): void;
}

/** As durable as Redis can be: every write is on disk before it is answered. No snapshots beside the log. */
const defaults: Settings = { appendonly: "yes", appendfsync: "always", save: "", "protected-mode": "no" };

interface RedisRecipe {
  readonly settings?: Settings;
  /** Its only port speaks TLS, with these files. */
  readonly secure?: { readonly ca: string; readonly cert: string; readonly key: string };
  /** The machine's own where it is left out. */
  readonly version?: "redis-8" | "valkey-newest";
}

export async function startRedis({ settings = {}, secure, version: wanted }: RedisRecipe = {}): Promise<RedisServer> {
  const { command, env } = await redisBinary(wanted);
  const { stdout } = await run(command, ["--version"], { env: { ...bareEnv, ...env } });
  const version = /v=(\d+(\.\d+)*)/.exec(stdout)?.[1] ?? "unknown";
  const server = await superviseServer({
    name: `${wanted?.startsWith("valkey") === true ? "Valkey" : "Redis"} ${version}`,
    version,
    command,
    account: accountFor("redis"),
    env,
    prepare: () => undefined,
    args: (folder, port) => {
      const files = secure && { "tls-ca-cert-file": secure.ca, "tls-cert-file": secure.cert, "tls-key-file": secure.key };
      const listen = files === undefined ? { port } : { "tls-auth-clients": "no", ...files, port: 0, "tls-port": port };
      const all = { ...defaults, ...listen, ...settings, bind: "127.0.0.1", dir: folder, daemonize: "no", logfile: "" };
      return Object.entries(all).flatMap(([name, value]) => [`--${name}`, String(value)]);
    },
    url: (port, database = "0") => `redis${secure === undefined ? "" : "s"}://127.0.0.1:${port}/${database}`,
    ready: /Ready to accept connections/,
    signals: { fast: "SIGTERM", immediate: "SIGKILL" },
  });
  const signal = (name: NodeJS.Signals): void => {
    if (server.pid !== null) process.kill(server.pid, name);
  };
  return Object.defineProperties(
    { freeze: () => signal("SIGSTOP"), thaw: () => signal("SIGCONT") } as RedisServer,
    Object.getOwnPropertyDescriptors(server),
  );
}
