import { spawn, type ChildProcess } from "node:child_process";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";

/** What a child tells: one JSON object per line of its stdout. */
type Line = Readonly<Record<string, unknown>>;

interface Ending {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** A process of the test's own, ended by its pid. */
export interface Process {
  readonly name: string;
  readonly pid: number;
  readonly lines: readonly Line[];
  /** All of its stdout. */
  output(): string;
  readonly ended: Promise<Ending>;
  /** Null while it runs. */
  readonly ending: Ending | null;
  /** A word on its stdin. */
  say(word: string): void;
  signal(name: NodeJS.Signals): void;
  /** Resolves once it has said that it is ready: before that, a SIGTERM may just end it. */
  ready(): Promise<void>;
  /** Resolves when it is gone. */
  kill(): Promise<Ending>;
  /** The first line that fits, already told or to come; rejects when the process ends without it. */
  told(what: string, fits: (line: Line) => boolean, withinMs?: number): Promise<Line>;
}

interface Processes {
  /** A script of children/, given `config`. */
  start(script: string, name: string, config: object): Process;
  /** Any program of Node's. */
  run(name: string, args: readonly string[]): Process;
  /** All that were started, in order. */
  readonly all: readonly Process[];
  /** Kills what still runs; resolves when nothing does. */
  end(): Promise<void>;
  /** What each has said last, for the message of a test that fails. */
  story(): string;
}

const orphans = new Set<ChildProcess>();
process.once("exit", () => {
  for (const child of orphans) child.kill("SIGKILL");
});

export function createProcesses(cwd: string): Processes {
  const all: (Process & { readonly errors: () => string })[] = [];
  let over = false;
  const run = (name: string, args: readonly string[]): Process => {
    if (over) throw new Error(`${name} is not started: the test is over`); // by its time limit, which does not end its code
    const started = launch(name, args, cwd);
    all.push(started);
    return started;
  };
  return {
    all,
    run,
    start: (script, name, config) => run(name, [fileURLToPath(new URL(`children/${script}.mjs`, import.meta.url)), JSON.stringify(config)]),
    async end() {
      over = true;
      await Promise.all(all.map((one) => one.kill()));
    },
    story: () =>
      all
        .map(({ name, pid, ending, lines, errors }) => {
          const state = ending === null ? "running" : `ended with ${ending.signal ?? ending.code}`;
          const said = lines.slice(-8).map((line) => `    ${JSON.stringify(line).slice(0, 300)}\n`);
          return `  ${name} (${pid}) ${state}\n${said.join("")}${errors().slice(-2_000)}`;
        })
        .join(""),
  };
}

function launch(name: string, args: readonly string[], cwd: string): Process & { readonly errors: () => string } {
  const child = spawn(process.execPath, args, { cwd, stdio: ["pipe", "pipe", "pipe"], env: { PATH: process.env["PATH"] } });
  orphans.add(child);
  const lines: Line[] = [];
  const listeners = new Set<() => void>();
  let output = "";
  let errors = "";
  let ending: Ending | null = null;
  createInterface({ input: child.stdout }).on("line", (text) => {
    output += `${text}\n`;
    lines.push(parse(text));
    for (const listener of listeners) listener();
  });
  child.stderr.setEncoding("utf8").on("data", (text: string) => (errors += text));
  child.stdin.on("error", () => undefined); // it may have been killed
  const ended = new Promise<Ending>((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (code, signal) => {
      ending = { code, signal };
      orphans.delete(child);
      for (const listener of listeners) listener();
      resolve(ending);
    });
  });

  const self: Process & { readonly errors: () => string } = {
    name,
    pid: child.pid ?? -1,
    lines,
    output: () => output,
    ended,
    errors: () => errors,
    get ending() {
      return ending;
    },
    say: (word) => void child.stdin.write(`${word}\n`),
    signal(signal) {
      if (ending === null && !child.kill(signal)) throw new Error(`${name} could not be sent ${signal}`);
    },
    async ready() {
      await self.told("that it is ready", ({ type }) => type === "ready" || type === "relay.started");
    },
    kill() {
      if (ending === null) child.kill("SIGKILL");
      return ended;
    },
    told(what, fits, withinMs = 20_000) {
      return new Promise((resolve, reject) => {
        const done = (settle: () => void): void => {
          clearTimeout(late);
          listeners.delete(look);
          settle();
        };
        const late = setTimeout(() => done(() => reject(new Error(`${name} did not say ${what} within ${withinMs} ms`))), withinMs);
        const look = (): void => {
          const line = lines.find(fits);
          if (line !== undefined) done(() => resolve(line));
          else if (ending !== null) done(() => reject(new Error(`${name} ended without saying ${what}: ${errors}`)));
        };
        listeners.add(look);
        look();
      });
    },
  };
  return self;
}

function parse(text: string): Line {
  try {
    return JSON.parse(text) as Line;
  } catch {
    return { text };
  }
}

/** Waits for a condition, never for a time. `where` says how far it got when it does not come true. */
export async function until(what: string, holds: () => boolean, withinMs: number, where: () => unknown = () => ""): Promise<void> {
  for (const deadline = performance.now() + withinMs; !holds(); await sleep(20)) {
    if (performance.now() > deadline) throw new Error(`${what}: not within ${withinMs} ms; ${JSON.stringify(where())}`);
  }
}

/** A promise with a deadline. */
export async function within<T>(what: string, withinMs: number, promise: Promise<T>): Promise<T> {
  const ended = new AbortController();
  const late = sleep(withinMs, undefined, { signal: ended.signal }).then(() => {
    throw new Error(`${what}: not within ${withinMs} ms`);
  });
  late.catch(() => undefined); // called off
  try {
    return await Promise.race([promise, late]);
  } finally {
    ended.abort();
  }
}
