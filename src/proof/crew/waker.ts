import { spawn, type ChildProcess } from "node:child_process";
import { readFileSync } from "node:fs";
import type { Socket } from "node:net";

export interface Waker {
  /** Sends SIGCONT to it when this process is gone, unless `forget` is called before. */
  watch(pid: number): void;
  forget(pid: number): void;
}

/** If this process is killed, a stopped child would stay stopped for ever: it cannot notice that its parent is gone. A shell can. */
export function createWaker(): Waker {
  const shells = new Map<number, ChildProcess>();
  return {
    watch(pid) {
      if (shells.has(pid)) return;
      // Its standard input ends when this process does.
      const shell = spawn("/bin/sh", ["-c", `read -r _; kill -CONT ${pid}`], { detached: true, stdio: ["pipe", "ignore", "ignore"] });
      shell.on("error", () => undefined);
      shell.stdin.on("error", () => undefined);
      shell.unref();
      (shell.stdin as Socket).unref();
      shells.set(pid, shell);
    },
    forget(pid) {
      shells.get(pid)?.kill("SIGKILL");
      shells.delete(pid);
    },
  };
}

/** "T" means that it is stopped. */
export function stateOf(pid: number): string {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    return stat.slice(stat.lastIndexOf(")") + 2, stat.lastIndexOf(")") + 3);
  } catch {
    return "";
  }
}
