import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished, test } from "vitest";
import { describeWith } from "./available.ts";
import { startMariadb } from "./mariadb.ts";
import { startPostgres } from "./postgres.ts";
import { foldersOf, processesIn } from "./processes-in.ts";

/** A process that starts a PostgreSQL and a MariaDB as a test file does. Resolves when it has said so many lines. */
async function user(lines: number): Promise<{ pid: number; kill(signal: NodeJS.Signals): boolean }> {
  const child = spawn(process.execPath, [fileURLToPath(new URL("./child.mjs", import.meta.url))], { stdio: ["ignore", "pipe", "inherit"] });
  onTestFinished(() => void child.kill("SIGKILL"));
  let said = 0;
  createInterface({ input: child.stdout }).on("line", () => (said += 1));
  await expect.poll(() => said, { timeout: 60_000 }).toBeGreaterThanOrEqual(lines);
  return { pid: child.pid ?? 0, kill: (signal) => child.kill(signal) };
}

const leftIn = (folders: readonly string[]): unknown[] =>
  folders.flatMap((folder) => [...processesIn(folder), ...(existsSync(folder) ? [folder] : [])]);

const expectNothingIn = (folders: readonly string[]): Promise<void> => expect.poll(() => leftIn(folders), { timeout: 40_000 }).toEqual([]);

await describeWith(["postgres", "mariadb"], "nothing is left behind", () => {
  test.for(["SIGKILL", "SIGTERM", "SIGINT"] as const)("when the process that uses the servers dies by %s", async (signal) => {
    const { pid, kill } = await user(2);
    const folders = foldersOf(pid);
    expect(folders).toHaveLength(2);
    for (const folder of folders) expect(processesIn(folder)).not.toEqual([]);
    kill(signal);
    await expectNothingIn(folders);
  });

  test.for([20, 150, 350])("when it is killed while they start (%s ms)", async (ms) => {
    const { pid, kill } = await user(1);
    await expect.poll(() => foldersOf(pid), { timeout: 10_000, interval: 5 }).toHaveLength(2);
    const folders = foldersOf(pid);
    await sleep(ms);
    kill("SIGKILL");
    await expectNothingIn(folders);
  });

  test("when they are disposed of: running, stopped, or killed", async () => {
    for (const before of ["run", "stop", "kill9"] as const) {
      const servers = await Promise.all([startPostgres({ version: 15 }), startMariadb()]);
      for (const server of servers) {
        if (before === "stop") await server.stop("fast");
        if (before === "kill9") await server.kill9();
        await server[Symbol.asyncDispose]();
      }
      expect(leftIn(servers.map(({ folder }) => folder)), before).toEqual([]);
    }
  });
});
