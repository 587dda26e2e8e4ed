import { spawnSync } from "node:child_process";
import { cpSync, mkdtempSync, readdirSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";

export const root = fileURLToPath(new URL("../..", import.meta.url));
const folder = fileURLToPath(new URL(".", import.meta.url));
const linked = "node_modules";
const left = [".git", ".cache", "dist", "coverage"];

export const patchOf = (name: string): string => join(folder, `${name}.patch`);
export const patchNames = (): readonly string[] =>
  readdirSync(folder).flatMap((file) => (file.endsWith(".patch") ? [basename(file, ".patch")] : []));

/** What `git apply` says, or null when it is content. */
export function apply(tree: string, name: string, ...options: readonly string[]): string | null {
  const { status, stderr } = spawnSync("git", ["apply", ...options, patchOf(name)], { cwd: tree, encoding: "utf8" });
  return status === 0 ? null : stderr.trim();
}

/** The tree as it is now, to be broken. Its packages are the tree's own. */
export function copyTree(): Disposable & { readonly path: string } {
  const path = mkdtempSync(join(tmpdir(), "waybill-mutants-"));
  for (const name of readdirSync(root)) {
    if (name === linked) symlinkSync(join(root, name), join(path, name));
    else if (!left.includes(name)) cpSync(join(root, name), join(path, name), { recursive: true });
  }
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) };
}
