import { closeSync, mkdirSync, openSync, readFileSync, rmSync } from "node:fs";
import { spawn, type ChildProcess } from "node:child_process";
import { performance } from "node:perf_hooks";
import { createInterface } from "node:readline";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "vite";
import { createWaker } from "../../src/proof/crew/waker.ts";
import type { RelayTask } from "./relay-child.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));

/** What a relay said, and when it was heard. */
export interface Said {
  readonly at: number;
  readonly relay: string;
  readonly line: Readonly<Record<string, unknown>>;
}

export interface Relay {
  readonly name: string;
  readonly mode: string;
  readonly pid: number;
  readonly isReady: boolean;
  readonly isFrozen: boolean;
  /** Null while it runs. */
  readonly ending: string | null;
  /** Whether it was told to end. */
  readonly told: boolean;
  /** The end of what it wrote to stderr. */
  errors(): string;
  /** Resolves with 0, another exit code, or a signal. */
  readonly ended: Promise<string>;
  drain(): Promise<string>;
  kill(): Promise<string>;
  freeze(): void;
  thaw(): void;
}

export interface Crew extends AsyncDisposable {
  start(mode: string, more?: Partial<Pick<RelayTask, "bug">>): Relay;
  /** Those that have not ended, frozen or not. */
  readonly relays: readonly Relay[];
}

export interface CrewParts {
  readonly folder: string;
  readonly url: string;
  readonly port: number;
  readonly options: RelayTask["options"];
  /** Hears what relays say. */
  heard(said: Said): void;
  /** A relay has ended. */
  gone(relay: Relay): void;
}

/** The last line of a process that was killed may be cut short. */
function parsed(text: string): Said["line"] {
  try {
    return JSON.parse(text) as Said["line"];
  } catch {
    return { type: "text", text };
  }
}

const orphans = new Set<ChildProcess>();
process.once("exit", () => {
  for (const child of orphans) child.kill("SIGKILL");
});

/** Relays in processes of their own, which run this repository's sources as they are now. */
export async function createCrew(parts: CrewParts): Promise<Crew> {
  const outDir = join(root, ".cache/tailing", `${process.pid}-${Date.now()}`);
  await build({
    ...{ root, configFile: false, logLevel: "error" },
    build: { ssr: "test/tailing/relay-child.ts", outDir, target: "node20", rollupOptions: { output: { entryFileNames: "relay.mjs" } } },
  });
  mkdirSync(parts.folder, { recursive: true });
  const waker = createWaker();
  const relays = new Set<Relay>();
  let started = 0;

  const start: Crew["start"] = (mode, more = {}) => {
    const name = `r${++started}-${mode}`;
    const task: RelayTask = { name, mode, url: parts.url, port: parts.port, options: parts.options, ...more };
    const file = join(parts.folder, `${name}.stderr`);
    const errors = openSync(file, "a");
    const child = spawn(process.execPath, ["--enable-source-maps", join(outDir, "relay.mjs"), JSON.stringify(task)], {
      stdio: ["pipe", "pipe", errors],
      detached: true, // a signal to the play is not one to its relays
      env: { PATH: process.env["PATH"] },
    });
    closeSync(errors);
    orphans.add(child);
    child.stdin!.on("error", () => undefined);
    const state = { isReady: false, isFrozen: false, ending: null as string | null, told: false };
    createInterface({ input: child.stdout! }).on("line", (text) => {
      const line = parsed(text);
      if (line["type"] === "ready") state.isReady = true;
      parts.heard({ at: performance.now(), relay: name, line });
    });
    const pid = child.pid ?? -1;
    const ended = new Promise<string>((resolve) => {
      child.on("error", (error) => parts.heard({ at: performance.now(), relay: name, line: { type: "failed", error: String(error) } }));
      child.on("close", (code, signal) => {
        state.ending = String(signal ?? code);
        orphans.delete(child);
        waker.forget(pid);
        relays.delete(relay);
        parts.gone(relay);
        resolve(state.ending);
      });
    });
    const signal = (which: NodeJS.Signals): void => void (state.ending === null && child.kill(which));
    const relay: Relay = {
      ...{ name, mode, pid, ended },
      errors: () => readFileSync(file, "utf8").trim().slice(-1_000),
      get isReady() {
        return state.isReady;
      },
      get isFrozen() {
        return state.isFrozen;
      },
      get ending() {
        return state.ending;
      },
      get told() {
        return state.told;
      },
      drain() {
        state.told = true;
        signal("SIGTERM");
        return ended;
      },
      kill() {
        state.told = true;
        signal("SIGKILL");
        return ended;
      },
      freeze() {
        waker.watch(pid);
        signal("SIGSTOP");
        state.isFrozen = true;
      },
      thaw() {
        signal("SIGCONT");
        waker.forget(pid);
        state.isFrozen = false;
      },
    };
    relays.add(relay);
    return relay;
  };
  return {
    start,
    get relays() {
      return [...relays];
    },
    async [Symbol.asyncDispose]() {
      await Promise.all([...relays].map((relay) => relay.kill()));
      rmSync(outDir, { recursive: true, force: true });
    },
  };
}
