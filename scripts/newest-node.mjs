import { execFile } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { argv, env, execPath, platform, arch, release, version } from "node:process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const run = promisify(execFile);

/** The newest line of Node that has long-term support. */
export const newestLts = 24;

/** The path of a Node of a line with long-term support: this one, one that was fetched before, or one from npm, kept in the user's cache (190 MB). */
export async function nodeOf(line) {
  if (version.startsWith(`v${line}.`) && release.lts) return execPath;
  const system = platform === "win32" ? "win" : platform;
  const name = `node-${system}-${arch}`;
  const cache = join(env.XDG_CACHE_HOME || join(homedir(), ".cache"), "waybill");
  const folder = join(cache, `node-${line}`);
  const binary = join(folder, "node_modules", name, "bin", system === "win" ? "node.exe" : "node");
  if (!existsSync(binary)) {
    mkdirSync(cache, { recursive: true });
    // Renamed only when complete, so that an interrupted install is never used.
    const fresh = mkdtempSync(join(cache, "fetching-"));
    try {
      const options = ["--prefix", fresh, "--no-save", "--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund"];
      await run("npm", ["install", ...options, `${name}@${line}`], { cwd: fresh, shell: system === "win", timeout: 120_000 });
      rmSync(folder, { recursive: true, force: true });
      renameSync(fresh, folder);
    } finally {
      rmSync(fresh, { recursive: true, force: true });
    }
  }
  const { stdout } = await run(binary, ["--print", "[process.version, process.release.lts].join(' ')"]);
  if (!new RegExp(`^v${line}\\.\\S+ \\w+`).test(stdout)) throw new Error(`${binary} is ${stdout.trim()}, which has no long-term support`);
  return binary;
}

export const newestNode = () => nodeOf(newestLts);

if (argv[1] === fileURLToPath(import.meta.url)) console.log(await newestNode());
