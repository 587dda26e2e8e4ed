import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { natsBinary } from "../../scripts/servers.mjs";
import { accountFor } from "./place.ts";
import { bareEnv, superviseServer, type Server } from "./server.ts";

const run = promisify(execFile);

export interface NatsServer extends Server {
  /** Every process of it stands still, and its connections with it, until `thaw`. */
  freeze(): void;
  thaw(): void;
}

export interface NatsRecipe {
  readonly settings?: string;
  /** The machine's own where it is left out. */
  readonly version?: "2.10" | "newest" | undefined;
}

/**
 * JetStream on files. From 2.10 on it flushes each message to disk before it acknowledges it; earlier servers cannot, and keep what a
 * killed process has written, but not what a lost machine has.
 */
export async function startNats({ settings = "", version: wanted }: NatsRecipe = {}): Promise<NatsServer> {
  const { command, env } = await natsBinary(wanted);
  const { stdout } = await run(command, ["--version"], { env: { ...bareEnv, ...env } });
  const version = /v(\d+(\.\d+)*)/.exec(stdout)?.[1] ?? "unknown";
  const [major = 0, minor = 0] = version.split(".").map(Number);
  const flush = major > 2 || minor >= 10 ? ", sync_interval: always" : "";
  const server = await superviseServer({
    name: `NATS ${version}`,
    version,
    command,
    env,
    account: accountFor("nats"),
    prepare: () => undefined,
    args: (folder, port) => {
      const config = join(folder, "nats.conf");
      const store = `jetstream { store_dir: "${join(folder, "data")}"${flush} }`;
      writeFileSync(config, `listen: "127.0.0.1:${port}"\n${store}\n${settings}\n`, { mode: 0o644 });
      return ["--config", config];
    },
    url: (port) => `nats://127.0.0.1:${port}`,
    ready: /Server is ready/,
    signals: { fast: "SIGTERM", immediate: "SIGKILL" },
  });
  const signal = (name: NodeJS.Signals): void => {
    if (server.pid !== null) process.kill(server.pid, name);
  };
  return Object.defineProperties(
    { freeze: () => signal("SIGSTOP"), thaw: () => signal("SIGCONT") } as NatsServer,
    Object.getOwnPropertyDescriptors(server),
  );
}
