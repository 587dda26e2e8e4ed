import { accessSync, constants, existsSync, rmSync, statSync } from "node:fs";
import { dirname, join, parse, resolve } from "node:path";
import { WaybillError } from "../../core/errors.ts";
import { refuseUrl, type Url } from "../../core/url.ts";

/** The path of `scheme:PATH` and `scheme:///PATH`, taken as it is written. */
export function pathOf(url: Url): string {
  const { scheme, rest, example } = url;
  const path = rest.startsWith("//") ? rest.slice(2) : rest;
  if (rest.startsWith("//") && !path.startsWith("/"))
    return refuseUrl(url, `names a host: write ${scheme}:PATH, or ${scheme}:///PATH for an absolute one`);
  if (path === "" || path.endsWith("/")) return refuseUrl(url, `names no file: write it as ${example}`);
  if (path === ":memory:") return refuseUrl(url, "is a database in memory, which cannot be shared with another process; name a file");
  if (/[?\0\r\n]/.test(path)) return refuseUrl(url, 'names a path that holds "?" or line ends, and takes no parameters');
  return path;
}

/** Whether the file exists. Refuses a file that could never be opened: client libraries do not explain why. */
export function checkFile(path: string): boolean {
  const folder = dirname(resolve(path));
  const can = (where: string, what: number): boolean => {
    try {
      accessSync(where, what);
      return true;
    } catch {
      return false;
    }
  };
  if (existsSync(path)) {
    if (!statSync(path).isFile())
      throw new WaybillError("STORE_UNAVAILABLE", `${path} cannot be used: it is not a file`, { retryable: false });
    if (!can(path, constants.R_OK))
      throw new WaybillError("STORE_UNAVAILABLE", `${path} cannot be used: this user may not read it`, { retryable: false });
    return true;
  }
  if (!existsSync(folder))
    throw new WaybillError("STORE_UNAVAILABLE", `the folder of ${path} does not exist: create it first`, { retryable: false });
  if (!can(folder, constants.W_OK))
    throw new WaybillError("STORE_READ_ONLY", `${path} cannot be created: this user may not write to its folder`);
  return false;
}

/** A file of the run's own, next to the one that was named. */
export function fileBeside(path: string, run: string): string {
  const { name, ext } = parse(path);
  return join(dirname(path), `${name}-${run}${ext}`);
}

export function removeFile(path: string): void {
  for (const end of ["", "-journal", "-wal", "-shm"]) rmSync(`${path}${end}`, { force: true });
}
