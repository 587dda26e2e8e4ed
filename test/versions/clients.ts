import { execFile } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const root = fileURLToPath(new URL("../../", import.meta.url));

/** A copy of this checkout in which clients of other versions stand in for its own. */
export interface Tree extends Disposable {
  readonly folder: string;
  /** Of a package that stands in. */
  version(name: string): string;
}

/**
 * Installs these packages, such as `pg@8.11.6`, in a folder of their own. `beside` are packages that they find there too, in the checkout's
 * versions: a library and a test must have the same copy of a driver.
 */
export async function treeWith(packages: readonly string[], beside: readonly string[]): Promise<Tree> {
  const folder = mkdtempSync(join(tmpdir(), "waybill-clients-"));
  const tree = join(folder, "tree");
  const installed = join(folder, "installed");
  try {
    mkdirSync(installed);
    writeFileSync(join(installed, "package.json"), '{ "private": true }');
    const wanted = [...packages, ...beside.map((name) => `${name}@${versionIn(root, name)}`)];
    const quietly = ["--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", "--legacy-peer-deps"];
    await promisify(execFile)("npm", ["install", ...quietly, ...wanted], { cwd: installed, timeout: 240_000 });
    for (const name of readdirSync(root)) {
      if (![".git", ".cache", "node_modules"].includes(name)) cpSync(join(root, name), join(tree, name), { recursive: true });
    }
    // What is built here is what a user installs: in the tree, the compiler would refuse it beside the types of other versions.
    utimesSync(join(tree, "dist/cli/main.js"), new Date(), new Date());
    const modules = join(tree, "node_modules");
    const own = wanted.map(nameOf);
    for (const name of namesIn(join(root, "node_modules")))
      if (!own.includes(name)) link(join(root, "node_modules", name), join(modules, name));
    for (const name of own) link(join(installed, "node_modules", name), join(modules, name));
  } catch (error) {
    rmSync(folder, { recursive: true });
    throw error;
  }
  return {
    folder: tree,
    version: (name) => versionIn(installed, name),
    [Symbol.dispose]: () => rmSync(folder, { recursive: true }),
  };
}

export const inOneVersion = (names: readonly string[], version: string): readonly string[] => names.map((name) => `${name}@${version}`);

/** Of a package with its version. */
export const nameOf = (wanted: string): string => wanted.slice(0, wanted.lastIndexOf("@"));

function versionIn(folder: string, name: string): string {
  const { version } = JSON.parse(readFileSync(join(folder, "node_modules", name, "package.json"), "utf8")) as { version: string };
  return version;
}

/** The packages of a node_modules, those of a scope by their full names. */
function namesIn(modules: string): readonly string[] {
  return readdirSync(modules).flatMap((name) => {
    if (name.startsWith("@")) return readdirSync(join(modules, name)).map((inner) => `${name}/${inner}`);
    return name === ".cache" || name === ".package-lock.json" ? [] : [name];
  });
}

function link(from: string, to: string): void {
  mkdirSync(dirname(to), { recursive: true });
  symlinkSync(from, to);
}
