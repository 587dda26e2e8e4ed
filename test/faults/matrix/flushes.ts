import { spawn } from "node:child_process";
import { once } from "node:events";
import { straceBinary } from "../../../scripts/servers.mjs";
import { processesIn } from "../../servers/processes-in.ts";
import type { Server } from "../../servers/server.ts";

/** While it is there, no flush of the server's files to its disk succeeds, as when the disk is dying. `end` says how many have failed. */
export async function failFlushes({ folder }: Server): Promise<{ end(): Promise<number> }> {
  const calls = "fsync,fdatasync,msync,sync_file_range";
  const pids = processesIn(folder).flatMap((pid) => ["-p", String(pid)]);
  const { command, env } = await straceBinary();
  const args = ["-f", "-e", `trace=${calls}`, "-e", `inject=${calls}:error=EIO`, ...pids];
  const strace = spawn(command, args, { env: { ...process.env, ...env }, stdio: ["ignore", "ignore", "pipe"] });
  // It ends by itself when all that it is attached to has ended.
  const ended = once(strace, "close");
  let said = "";
  strace.stderr.setEncoding("utf8");
  await new Promise<void>((resolve, reject) => {
    strace.stderr.on("data", (text: string) => {
      said += text;
      if (/ attached/.test(said)) resolve();
    });
    ended.then(() => reject(new Error(`strace could not attach: ${said}`)), reject);
  });
  return {
    async end() {
      strace.kill("SIGTERM");
      await ended;
      return said.split("(INJECTED)").length - 1;
    },
  };
}
