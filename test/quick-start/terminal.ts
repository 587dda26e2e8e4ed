import { spawn } from "node:child_process";
import { dirname, delimiter } from "node:path";

interface End {
  readonly code: number | null;
  readonly signal: string | null;
}

/** A terminal in which one command runs. */
export interface Terminal {
  /** What it shows. */
  shown(): string;
  /** As Ctrl-C does: it reaches every process of the command. */
  send(signal: "SIGINT" | "SIGTERM" | "SIGKILL"): void;
  readonly ended: Promise<End>;
}

/** As a user's shell has it: this Node first, and nothing of this run's npm and vitest. */
const userEnv = {
  ...Object.fromEntries(
    Object.entries(process.env).filter(
      ([name]) => !/^(npm_|NODE_|VITEST|INIT_CWD|TMPDIR$)/.test(name) || /^npm_config_(registry|cache|userconfig)$/.test(name),
    ),
  ),
  PATH: [dirname(process.execPath), process.env["PATH"]].join(delimiter),
  npm_config_audit: "false",
  npm_config_fund: "false",
  npm_config_update_notifier: "false",
  npm_config_prefer_offline: "true",
};

export function openTerminal(line: string, cwd: string, env: Readonly<Record<string, string>>): Terminal {
  // In place of the shell: Ctrl-C does not end an interactive one.
  const child = spawn("sh", ["-c", `exec ${line}`], {
    cwd,
    env: { ...userEnv, ...env },
    detached: true,
    stdio: ["ignore", "pipe", "pipe"],
  });
  let shown = "";
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", (text: string) => (shown += text));
  const ended = new Promise<End>((resolve) => child.on("close", (code, signal) => resolve({ code, signal })));
  return {
    shown: () => shown,
    send(signal) {
      try {
        process.kill(-child.pid!, signal);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error; // all of them have ended
      }
    },
    ended,
  };
}
