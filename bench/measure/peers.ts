import { execFile } from "node:child_process";
import { existsSync, mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { arch, platform } from "node:process";
import { promisify } from "node:util";
import { here } from "./compare.ts";

const run = promisify(execFile);
const cache = join(here, ".cache/bench/peers");

/** No dependencies of the project: they are installed when a scenario asks for them. Some need a newer Node, which comes the same way. */
const pins = {
  "graphile-worker": "0.18.0",
  "pg-boss": "12.35.0",
  "pg-transactional-outbox": "0.5.7",
  [`node-${platform}-${arch}`]: "24.21.0",
} as const;

export type PeerName = "graphile-worker" | "pg-boss" | "pg-transactional-outbox";

/** The folder that has the package, or why it cannot be had. Each has a folder of its own, so that one that fails stops no other. */
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
    // Renamed when it is whole: an install that was cut short must not be taken for one.
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
