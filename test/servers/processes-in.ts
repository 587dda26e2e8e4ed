import { readdirSync, readFileSync, readlinkSync } from "node:fs";

/** The processes that work in a folder or below, by pid: a server's all do, and its supervisor does not. */
export function processesIn(folder: string): number[] {
  return pids().filter((pid) => `${said(() => readlinkSync(`/proc/${pid}/cwd`))}/`.startsWith(`${folder}/`));
}

/** The folders of the servers that a process has started, or is starting. */
export function foldersOf(parent: number): string[] {
  const children = pids().filter((pid) => said(() => readFileSync(`/proc/${pid}/status`, "utf8")).includes(`\nPPid:\t${parent}\n`));
  return children.flatMap((pid) => /"folder":"([^"]+)"/.exec(said(() => readFileSync(`/proc/${pid}/cmdline`, "utf8")))?.[1] ?? []);
}

const pids = (): number[] => readdirSync("/proc").flatMap((name) => (/^\d+$/.test(name) ? Number(name) : []));

/** Empty for a process that ended while we looked. */
function said(read: () => string): string {
  try {
    return read();
  } catch {
    return "";
  }
}
