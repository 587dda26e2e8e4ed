import { fork, type ChildProcess } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import { join } from "node:path";
import type { Clock } from "../../core/clock.ts";
import { asError, WaybillError } from "../../core/errors.ts";
import type { PathEvent } from "../../core/path-events.ts";
import { orAborted, shared, within } from "../../core/time.ts";
import { drainOrder, type ChildReport } from "./child.ts";
import type { Fail } from "./failpoints.ts";
import { most, type Uses } from "./measure.ts";
import { createWaker, stateOf } from "./waker.ts";

/** What a process does in all its lives. */
export interface Duty {
  readonly role: string;
  readonly failpoints?: readonly Fail[];
}

export interface CrewMember<Role> {
  readonly name: string;
  readonly role: Role;
  readonly pid: number | null;
  readonly state: "starting" | "running" | "down" | "draining" | "ended";
  readonly lives: number;
  /** The numbers of the lives that ended at a failpoint, as planned: 1, 2, 3 … */
  readonly fallen: readonly number[];
  /** Its last action, and the count over all its lives. */
  readonly did: string;
  readonly done: number;
}

/** Processes that are restarted when they die. */
export interface Crew<D extends Duty> extends AsyncDisposable {
  readonly all: readonly CrewMember<D["role"]>[];
  /**
   * Starts a process, and restarts it when it dies. Resolves when it is ready for the first time, with the port it listens on. Rejects when
   * it cannot begin, or when it has died or missed a server a few times before it was ready. It is then not restarted.
   */
  start(name: string, duty: D): Promise<number | null>;
  /** Sends SIGKILL; a new life begins by itself. Returns whether there was a process to kill. */
  kill(name: string): boolean;
  /** SIGSTOP and SIGCONT. */
  freeze(name: string): boolean;
  thaw(name: string): void;
  /** Lets it finish its work in hand, and exit; it is not restarted. False when it had to be killed. */
  drain(name: string, withinMs: number): Promise<boolean>;
  /** Sets the failpoints of its next lives. An empty list removes them. */
  arm(name: string, failpoints: readonly Fail[]): void;
  /** Waits until a failpoint has stopped it. False when that did not happen in time. */
  frozen(name: string, withinMs: number): Promise<boolean>;
  /** The unexpected deaths, with the last words of each. */
  readonly deaths: readonly { readonly worker: string; readonly words: string }[];
  /** The most of each resource that any process reported. Null before the first report. */
  readonly peaks: Uses | null;
  killAll(): void;
}

export interface CrewOptions<D extends Duty> {
  /** What every process runs; see child.ts. */
  readonly program: string;
  /** Every user of the machine can see them in the process list: no secrets. */
  readonly args?: readonly string[];
  /** The folder for the stderr of each life. Without it, the end of stderr becomes the last words of that life. */
  readonly errors?: string;
  readonly clock: Clock;
  /** Once it aborts, `start` no longer waits for a process to be ready. */
  readonly signal: AbortSignal;
  /** The task that is sent to a life. No two lives have the same name. `port`: where the previous life listened. */
  task(name: string, duty: D, port: number | null): object;
  onPath?(name: string, event: PathEvent): void;
  /** A process ended that was not told to drain. `unready`: why it had not begun its work. Null when it had, or was killed. */
  onDeath?(name: string, pid: number | null, how: string, unready: string | null): void;
}

interface Post<D> {
  readonly name: string;
  readonly duty: D;
  child: ChildProcess | null;
  failpoints: readonly Fail[];
  port: number | null;
  lives: number;
  readonly fallen: number[];
  did: string;
  done: number;
  /** `done` when this life began. */
  before: number;
  /** True when no other life begins. */
  over: boolean;
  life: Life;
  ready: { resolve(port: number | null): void; reject(error: Error): void } | null;
  gone: (() => void)[];
}

interface Life {
  begun: boolean;
  /** A failpoint is set that kills it. */
  readonly doomed: boolean;
  /** It could not begin because a server was unavailable. It is restarted, as a process manager would do. */
  early: boolean;
  /** `kill` ended it on purpose. */
  asked: boolean;
  words: string;
}

const restartMs = 300;
/** One death may be bad luck. So many are not. */
const deathsBeforeReady = 3;
const wordsKept = 2_000;

export function createCrew<D extends Duty>({ program, args = [], errors, clock, signal: calledOff, ...options }: CrewOptions<D>): Crew<D> {
  const posts = new Map<string, Post<D>>();
  const deaths: { worker: string; words: string }[] = [];
  let peaks: Uses | null = null;
  const closing = shared(new AbortController());
  const waker = createWaker();

  const errorsOf = ({ name, lives }: Post<D>): string => (errors === undefined ? "" : join(errors, `${name}.${lives}.err`));
  const forked = (post: Post<D>): ChildProcess => {
    const stderr = errors === undefined ? "pipe" : openSync(errorsOf(post), "a");
    try {
      return fork(program, args, { stdio: ["ignore", "ignore", stderr, "ipc"], execArgv: [], serialization: "json" });
    } finally {
      if (stderr !== "pipe") closeSync(stderr);
    }
  };
  const launch = (post: Post<D>): void => {
    const { failpoints } = post;
    const life: Life = { begun: false, doomed: failpoints.some((fail) => fail.do === "kill"), early: false, asked: false, words: "" };
    post.life = life;
    post.lives += 1;
    post.before = post.done;
    post.did = "starting";
    try {
      post.child = forked(post);
    } catch (error) {
      return unborn(post, asError(error));
    }
    const { child } = post;
    child.on("message", (report) => heard(post, report as ChildReport));
    child.on("error", (error) => {
      // A process that was never spawned has no exit event.
      if (child.pid === undefined) unborn(post, error);
      else life.words = error.message;
    });
    child.stderr?.setEncoding("utf8").on("data", (text: string) => (life.words = (life.words + text).slice(-wordsKept)));
    child.once("exit", (code, signal) => ended(post, signal ?? `exit ${code}`));
    const task = {
      ...options.task(`${post.name}.${post.lives}`, post.duty, post.port),
      ...(failpoints.length === 0 ? {} : { failpoints }),
    };
    if (child.pid !== undefined) child.send(task, () => undefined);
  };
  const unborn = (post: Post<D>, error: Error): void => {
    post.life.words = error.message;
    post.over ||= post.ready !== null;
    ended(post, "it could not be spawned");
  };
  const heard = (post: Post<D>, report: ChildReport): void => {
    const { life } = post;
    switch (report.type) {
      case "ready":
        life.begun = true;
        post.port = report.port ?? null;
        post.ready?.resolve(post.port);
        post.ready = null;
        return;
      case "did":
        post.did = report.what;
        post.done = post.before + report.done;
        peaks = most(peaks, report.uses);
        return;
      case "path":
        return options.onPath?.(post.name, report.event);
      case "failed":
        life.words = report.message;
        life.early = report.early;
        if (post.ready === null || (report.early && post.lives < deathsBeforeReady)) return;
        post.over = true;
        post.ready.reject(report.code === null ? new Error(report.message) : new WaybillError(report.code, report.message));
    }
  };
  const ended = (post: Post<D>, how: string): void => {
    const { life, name } = post;
    const pid = post.child?.pid ?? null;
    if (pid !== null) waker.forget(pid);
    post.child = null;
    post.did = post.over ? "ended" : `died (${how})`;
    for (const tell of post.gone.splice(0)) tell();
    const words = life.words.trim() || how;
    if (post.over) return post.ready?.reject(new Error(`${name} ended: ${words}`));
    options.onDeath?.(name, pid, how, life.begun || how === "SIGKILL" ? null : words);
    if (life.doomed && !life.asked && how === "SIGKILL") post.fallen.push(post.lives);
    else if (!life.asked && !life.early) {
      deaths.push({ worker: name, words });
      if (post.ready !== null && deaths.filter(({ worker }) => worker === name).length >= deathsBeforeReady) {
        post.over = true;
        const told = `${name} ended ${deathsBeforeReady} times before it was ready (${words})`;
        return post.ready.reject(new Error(errors === undefined ? told : `${told}: see ${errorsOf(post)}`));
      }
    }
    void clock.sleep(restartMs, closing.signal).then(() => {
      if (!post.over && !closing.signal.aborted) launch(post);
    });
  };

  const at = (name: string): Post<D> => {
    const post = posts.get(name);
    if (post === undefined) throw new Error(`there is no process ${name}`);
    return post;
  };

  const crew: Crew<D> = {
    get all() {
      return [...posts.values()].map((post) => {
        const { name, duty, lives, fallen, did, done, child } = post;
        return { name, role: duty.role, pid: child?.pid ?? null, state: stateIn(post), lives, fallen: [...fallen], did, done };
      });
    },
    deaths,
    get peaks() {
      return peaks;
    },
    start(name, duty) {
      if (calledOff.aborted) return Promise.reject(calledOff.reason as Error);
      const post: Post<D> = {
        ...{ name, duty, child: null, failpoints: duty.failpoints ?? [], port: null, lives: 0, fallen: [], did: "", done: 0, before: 0 },
        ...{ over: false, life: { begun: false, doomed: false, early: false, asked: false, words: "" }, ready: null, gone: [] },
      };
      posts.set(name, post);
      const ready = new Promise<number | null>((resolve, reject) => {
        post.ready = { resolve, reject };
        launch(post);
      });
      return orAborted(ready, calledOff, () => {
        throw calledOff.reason as Error;
      });
    },
    kill(name) {
      const { child, life } = at(name);
      life.asked = true;
      return child?.kill("SIGKILL") ?? false;
    },
    freeze(name) {
      const { child } = at(name);
      if (child?.pid === undefined) return false;
      waker.watch(child.pid);
      return child.kill("SIGSTOP");
    },
    thaw(name) {
      const { child } = at(name);
      if (child?.pid === undefined) return;
      child.kill("SIGCONT");
      waker.forget(child.pid);
    },
    async drain(name, withinMs) {
      const post = at(name);
      post.over = true;
      const { child } = post;
      if (child === null) return true;
      const gone = new Promise<void>((resolve) => post.gone.push(resolve));
      child.kill("SIGCONT");
      if (child.connected) child.send(drainOrder, () => undefined);
      await within(clock, withinMs, gone);
      if (post.child === null) return true;
      child.kill("SIGKILL");
      await gone;
      return false;
    },
    arm(name, failpoints) {
      at(name).failpoints = failpoints;
    },
    async frozen(name, withinMs) {
      for (const until = clock.monotonic() + withinMs; clock.monotonic() < until; await clock.sleep(20)) {
        const pid = at(name).child?.pid;
        if (pid === undefined || stateOf(pid) !== "T") continue;
        waker.watch(pid);
        return true;
      }
      return false;
    },
    killAll() {
      closing.abort();
      for (const post of posts.values()) {
        post.over = true;
        post.child?.kill("SIGKILL");
      }
    },
    async [Symbol.asyncDispose]() {
      const left = [...posts.values()].filter(({ child }) => child !== null);
      const gone = left.map((post) => new Promise<void>((resolve) => post.gone.push(resolve)));
      crew.killAll();
      await Promise.all(gone);
    },
  };
  return crew;
}

function stateIn({ child, over, life }: Post<unknown>): CrewMember<unknown>["state"] {
  if (child === null) return over ? "ended" : "down";
  if (over) return "draining";
  return life.begun ? "running" : "starting";
}
