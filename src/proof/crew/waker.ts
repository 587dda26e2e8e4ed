import { spawn, type ChildProcess } from "node:child_process";
import { readFileSync } from "node:fs";
import type { Socket } from "node:net";

export interface Waker {
  /** Continues it when we are gone, unless it is forgotten before. */
  watch(pid: number): void;
  forget(pid: number): void;
}

/** Should this process be killed, a child that stands still would do so for ever: it cannot see that we are gone. A shell can. */
export function createWaker(): Waker {
  const shells = new Map<number, ChildProcess>();
  return {
    watch(pid) {
      if (shells.has(pid)) return;
      // What it reads ends when we do.
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

/** "T": it stands still. */
export function stateOf(pid: number): string {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    return stat.slice(stat.lastIndexOf(")") + 2, stat.lastIndexOf(")") + 3);
  } catch {
    return "";
  }
}
