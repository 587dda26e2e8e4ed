import { closeSync, openSync, readFileSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { freePort, ownFolder, type Account } from "./place.ts";
import { openSupervisor } from "./supervisor.ts";

type StopMode = "fast" | "immediate";
export type Settings = Readonly<Record<string, string | number>>;

export interface Server extends AsyncDisposable {
  readonly version: string;
  readonly port: number;
  /** Its own, and removed with it. */
  readonly folder: string;
  /** The server's first process, while it runs. */
  readonly pid: number | null;
  url(database?: string): string;
  log(): string;
  /** On the same port as before. */
  start(): Promise<void>;
  stop(mode: StopMode): Promise<void>;
  restart(mode: StopMode): Promise<void>;
  /** All its processes at one blow, as when its machine is lost. */
  kill9(): Promise<void>;
}

export interface Recipe {
  readonly name: string;
  readonly version: string;
  readonly command: string;
  readonly account: Account;
  readonly env?: Readonly<Record<string, string>>;
  /** Fills the new folder. Programs go through `run`, so that they end with us. */
  prepare(folder: string, run: (command: string, args: readonly string[]) => Promise<void>): Promise<void> | void;
  args(folder: string, port: number): readonly string[];
  url(port: number, database?: string): string;
  /** What the log says when it takes connections. */
  readonly ready: RegExp;
  /** How each way of stopping is asked for; SIGKILL goes to all its processes. */
  readonly signals: Readonly<Record<StopMode, NodeJS.Signals>>;
}

/** What a server's programs find in their environment: nothing of ours that could change them. */
export const bareEnv = { PATH: process.env["PATH"] ?? "/usr/bin:/bin", LC_ALL: "C" } as const;

const startMs = 150_000;
const stopMs = 30_000;

/** Starts a server under a supervisor, which outlives us only to end it and to remove its folder. */
export async function superviseServer(recipe: Recipe): Promise<Server> {
  const { name, account } = recipe;
  const folder = ownFolder(name.replace(/\W+/g, "-").toLowerCase(), account);
  const logFile = join(folder, "log");
  closeSync(openSync(logFile, "a", 0o644));
  const supervisor = openSupervisor({
    folder,
    log: logFile,
    env: { ...bareEnv, ...recipe.env },
    account,
    lastSignal: recipe.signals.immediate,
  });
  const log = (): string => readFileSync(logFile, "utf8");
  const tail = (): string => log().split("\n").slice(-20).join("\n");

  const ended = async (what: string, withinMs: number): Promise<string> => {
    const until = performance.now() + withinMs;
    for (;;) {
      const how = supervisor.ended();
      if (how !== null) return how;
      if (performance.now() > until) throw new Error(`${what} did not end within ${withinMs / 1000} s:\n${tail()}`);
      await sleep(5);
    }
  };
  const run = async (command: string, args: readonly string[]): Promise<void> => {
    supervisor.order({ run: [command, ...args] });
    const how = await ended(command, startMs);
    if (how !== "0") throw new Error(`${command} ended (${how}):\n${tail()}`);
  };
  let port = await freePort();
  const start = async (): Promise<void> => {
    if (supervisor.pid() !== null) throw new Error(`${name} runs already`);
    const from = statSync(logFile).size;
    supervisor.order({ start: [recipe.command, ...recipe.args(folder, port)] });
    const until = performance.now() + startMs;
    while (!recipe.ready.test(readFileSync(logFile).subarray(from).toString())) {
      const how = supervisor.ended();
      if (how !== null) throw new Error(`${name} ended (${how}) before it took connections:\n${tail()}`);
      if (performance.now() > until) throw new Error(`${name} took no connections within ${startMs / 1000} s:\n${tail()}`);
      await sleep(10);
    }
  };
  const end = async (signal: NodeJS.Signals): Promise<void> => {
    supervisor.order({ end: signal });
    await ended(name, stopMs);
  };
  const stop = (mode: StopMode): Promise<void> => end(recipe.signals[mode]);
  const dispose = async (): Promise<void> => {
    await supervisor.close();
    // Only for a supervisor that was killed: it removes the folder itself.
    rmSync(folder, { recursive: true, force: true });
  };

  try {
    await recipe.prepare(folder, run);
    await start().catch(async (error: unknown) => {
      if (!/address already in use/i.test(log())) throw error;
      // Another server took the port between our look and its start.
      port = await freePort();
      await start();
    });
  } catch (error) {
    await dispose();
    throw error;
  }
  return {
    version: recipe.version,
    port,
    folder,
    get pid() {
      return supervisor.pid();
    },
    url: (database) => recipe.url(port, database),
    log,
    start,
    stop,
    restart: async (mode) => {
      await stop(mode);
      await start();
    },
    kill9: () => end("SIGKILL"),
    [Symbol.asyncDispose]: dispose,
  };
}
