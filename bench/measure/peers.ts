import { execFile } from "node:child_process";
import { existsSync, mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { arch, platform } from "node:process";
import { promisify } from "node:util";
import { here } from "./compare.ts";

const run = promisify(execFile);
const cache = join(here, ".cache/bench/peers");

/** Not dependencies of the project: a scenario installs those that it needs. Some need a newer Node, which is installed the same way. */
const pins = {
  "graphile-worker": "0.18.0",
  "pg-boss": "12.35.0",
  "pg-transactional-outbox": "0.5.7",
  [`node-${platform}-${arch}`]: "24.21.0",
} as const;

export type PeerName = "graphile-worker" | "pg-boss" | "pg-transactional-outbox";

/** The folder of the installed package, or the error. Each package has its own folder, so that a failed install stops no other. */
async function installed(name: string): Promise<string | Error> {
  const version = pins[name]!;
  const folder = join(cache, `${name}-${version}`);
  if (existsSync(folder)) return folder;
  const fresh = `${folder}.fetching`;
  try {
    rmSync(fresh, { recursive: true, force: true });
    mkdirSync(fresh, { recursive: true });
    writeFileSync(join(fresh, "package.json"), '{ "private": true }\n');
    const options = ["--ignore-scripts", "--no-audit", "--no-fund", "--save-exact"];
    await run("npm", ["install", ...options, `${name}@${version}`], { cwd: fresh, timeout: 180_000 });
    // Renamed only when complete, so that an interrupted install is never used.
    renameSync(fresh, folder);
    return folder;
  } catch (error) {
    return new Error(`${name} ${version} cannot be had: ${(error as Error).message.split("\n").slice(0, 3).join(" ")}`);
  }
}

export const peer = (name: PeerName): Promise<string | Error> => installed(name);
export const versionOf = (name: PeerName): string => pins[name];

/** The Node that all sides of the comparison run on. */
export async function peersNode(): Promise<string | Error> {
  const name = `node-${platform}-${arch}`;
  const folder = await installed(name);
  return folder instanceof Error ? folder : join(folder, "node_modules", name, "bin/node");
}
