import { spawn } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import type { Account } from "./place.ts";

/** `lastSignal` ends a server whose user is gone. */
interface Charge {
  readonly folder: string;
  readonly log: string;
  readonly env: Readonly<Record<string, string>>;
  readonly account: Account;
  readonly lastSignal: NodeJS.Signals;
}

type Order = { readonly run: readonly string[] } | { readonly start: readonly string[] } | { readonly end: NodeJS.Signals };

interface Supervisor {
  order(order: Order): void;
  pid(): number | null;
  /** How what the last order was about has ended, when it has. */
  ended(): string | null;
  /** Ends what runs, removes the folder. */
  close(): Promise<void>;
}

const gone = "its supervisor is gone";

export function openSupervisor(charge: Charge): Supervisor {
  const script = fileURLToPath(new URL("./supervisor.mjs", import.meta.url));
  const errors = openSync(charge.log, "a");
  // Detached: a signal to our group, such as Ctrl-C, is ours; it hears of our end by its input.
  const child = spawn(process.execPath, [script, JSON.stringify(charge)], { detached: true, stdio: ["pipe", "pipe", errors] });
  closeSync(errors);
  const { stdin, stdout } = child;
  if (stdin === null || stdout === null) throw new Error("the supervisor has no pipes");
  const exited = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  let pid: number | null = null;
  let ended: string | null = null;
  createInterface({ input: stdout }).on("line", (line) => {
    const said = JSON.parse(line) as { started: number } | { ended: string | number };
    if ("started" in said) pid = said.started;
    else [pid, ended] = [null, String(said.ended)];
  });
  void exited.then(() => ([pid, ended] = [null, ended ?? gone]));
  stdin.on("error", () => undefined);
  // A server that nobody disposed of must not keep its user from ending.
  child.unref();
  for (const pipe of [stdin, stdout]) (pipe as typeof pipe & { unref(): void }).unref();
  return {
    pid: () => pid,
    ended: () => ended,
    order: (order) => {
      ended = child.exitCode === null && child.signalCode === null ? null : gone;
      stdin.write(`${JSON.stringify(order)}\n`);
    },
    close: async () => {
      child.ref();
      stdin.end();
      await exited;
    },
  };
}
