import { fork, spawn, type ChildProcess } from "node:child_process";
import { closeSync, openSync, readFileSync } from "node:fs";
import type { Socket } from "node:net";
import { join } from "node:path";
import type { Clock } from "../../core/clock.ts";
import { asError, WaybillError } from "../../core/errors.ts";
import { orAborted } from "../../core/signal.ts";
import { most, type Uses } from "./measure.ts";
import { drainOrder } from "../child.ts";
import type { Fail, RelayTask, Report, SubscriberTask, Task, WriterTask } from "./task.ts";

type Without<T> = T extends unknown ? Omit<T, "name" | "history" | "log"> : never;
/** What a worker does in all its lives. */
export type Duty = Without<WriterTask> | Without<RelayTask> | Without<SubscriberTask>;

export interface Worker {
  readonly name: string;
  readonly role: Task["role"];
  /** How many it has done, over all its lives. */
  readonly done: number;
  readonly lives: number;
  /** Which of them have ended at a failpoint, as they were told: 1, 2, 3 … */
  readonly fallen: readonly number[];
  readonly pid: number | null;
}

export interface Workers {
  readonly all: readonly Worker[];
  /**
   * Keeps a worker going: one that dies is started again. Resolves when it is ready for the first time; rejects when it cannot begin, or
   * has died or missed a server a few times before that, and is not started again then.
   */
  start(name: string, duty: Duty): Promise<void>;
  /** SIGKILL; a new life begins by itself. Says whether there was one to kill. */
  kill(name: string): boolean;
  /** SIGSTOP and SIGCONT. */
  freeze(name: string): boolean;
  thaw(name: string): void;
  /** Lets it finish what it holds, and end; it is not started again. False when it had to be killed. */
  drain(name: string, withinMs: number): Promise<boolean>;
  /** Its next lives fail where they are told to; none when empty. */
  arm(name: string, failpoints: readonly Fail[]): void;
  /** Until it stands still, as it was told to by a failpoint. */
  frozen(name: string, withinMs: number): Promise<boolean>;
  /** How many deaths nobody had asked for, with the last words of each. */
  readonly deaths: readonly { readonly worker: string; readonly words: string }[];
  /** The most of each that any worker told of; null before the first did. */
  readonly peaks: Uses | null;
  killAll(): void;
  [Symbol.asyncDispose](): Promise<void>;
}

interface Post {
  readonly name: string;
  readonly duty: Duty;
  child: ChildProcess | null;
  failpoints: readonly Fail[];
  /** This life is to end at a failpoint. */
  doomed: boolean;
  /** It could not begin for want of a server: whoever manages processes starts it again. */
  early: boolean;
  lives: number;
  readonly fallen: number[];
  done: number;
  before: number;
  over: boolean;
  /** Somebody killed it on purpose. */
  asked: boolean;
  words: string;
  ready: { resolve(): void; reject(error: Error): void } | null;
  gone: (() => void)[];
}

const restartMs = 300;
/** A life may be unlucky; so many are not. */
const deathsBeforeReady = 3;

export interface WorkersOptions {
  readonly program: string;
  /** Where histories and logs go. */
  readonly folder: string;
  readonly clock: Clock;
  /** Once it aborts, nobody waits for a worker to be ready. */
  readonly signal: AbortSignal;
}

export function createWorkers({ program, folder, clock, signal: calledOff }: WorkersOptions): Workers {
  const posts = new Map<string, Post>();
  const deaths: { worker: string; words: string }[] = [];
  let peaks: Uses | null = null;
  const closing = new AbortController();
  const waker = createWaker();

  const launch = (post: Post): void => {
    post.lives += 1;
    post.asked = false;
    post.early = false;
    post.doomed = post.failpoints.some((fail) => fail.do === "kill");
    post.words = "";
    post.before = post.done;
    const name = `${post.name}.${post.lives}`;
    const failpoints = post.failpoints.length === 0 ? {} : { failpoints: post.failpoints };
    const task = { ...post.duty, ...failpoints, name, history: join(folder, `${name}.jsonl`), log: join(folder, `${name}.log`) } as Task;
    try {
      const stderr = openSync(errorsOf(post), "a");
      try {
        post.child = fork(program, [], { stdio: ["ignore", "ignore", stderr, "ipc"], execArgv: [], serialization: "json" });
      } finally {
        closeSync(stderr);
      }
    } catch (error) {
      return unborn(post, asError(error));
    }
    const { child } = post;
    child.on("message", (report) => heard(post, report as Report));
    child.on("error", (error) => {
      // There is no exit of what has never been a process.
      if (child.pid === undefined) unborn(post, error);
      else post.words = error.message;
    });
    child.once("exit", (code, signal) => ended(post, signal ?? `exit ${code}`));
    if (child.pid !== undefined) child.send(task, () => undefined);
  };
  const errorsOf = ({ name, lives }: Post): string => join(folder, `${name}.${lives}.err`);
  const unborn = (post: Post, error: Error): void => {
    post.words = error.message;
    post.over ||= post.ready !== null;
    ended(post, "it could not be spawned");
  };
  const heard = (post: Post, report: Report): void => {
    if (report.type === "ready") {
      post.ready?.resolve();
      post.ready = null;
    } else if (report.type === "did") {
      post.done = post.before + report.done;
      peaks = most(peaks, report.uses);
    } else {
      post.words = report.message;
      post.early = report.early;
      if (post.ready === null || (report.early && post.lives < deathsBeforeReady)) return;
      post.over = true;
      post.ready.reject(report.code === null ? new Error(report.message) : new WaybillError(report.code, report.message));
    }
  };
  const ended = (post: Post, how: string): void => {
    if (post.child?.pid !== undefined) waker.forget(post.child.pid);
    post.child = null;
    for (const tell of post.gone.splice(0)) tell();
    if (post.over) return post.ready?.reject(new Error(`${post.name} ended: ${post.words || how}`));
    if (post.doomed && !post.asked && how === "SIGKILL") post.fallen.push(post.lives);
    else if (!post.asked && !post.early) {
      deaths.push({ worker: post.name, words: post.words || how });
      if (post.ready !== null && deaths.filter(({ worker }) => worker === post.name).length >= deathsBeforeReady) {
        post.over = true;
        const words = `${post.name} ended ${deathsBeforeReady} times before it was ready (${post.words || how})`;
        return post.ready.reject(new Error(`${words}: see ${errorsOf(post)}`));
      }
    }
    void clock.sleep(restartMs, closing.signal).then(() => {
      if (!post.over && !closing.signal.aborted) launch(post);
    });
  };

  const at = (name: string): Post => {
    const post = posts.get(name);
    if (post === undefined) throw new Error(`there is no worker ${name}`);
    return post;
  };
  const signal = (name: string, what: NodeJS.Signals): boolean => at(name).child?.kill(what) ?? false;

  const workers: Workers = {
    get all() {
      return [...posts.values()].map(({ name, duty, done, lives, fallen, child }) => ({
        name,
        role: duty.role,
        done,
        lives,
        fallen: [...fallen],
        pid: child?.pid ?? null,
      }));
    },
    deaths,
    get peaks() {
      return peaks;
    },
    start(name, duty) {
      if (calledOff.aborted) return Promise.reject(calledOff.reason as Error);
      const post: Post = {
        ...{
          name,
          duty,
          child: null,
          failpoints: duty.failpoints ?? [],
          doomed: false,
          early: false,
          lives: 0,
          fallen: [],
          done: 0,
          before: 0,
          over: false,
          asked: false,
        },
        ...{ words: "", ready: null, gone: [] },
      };
      posts.set(name, post);
      const ready = new Promise<void>((resolve, reject) => {
        post.ready = { resolve, reject };
        launch(post);
      });
      return orAborted(ready, calledOff, () => calledOff.throwIfAborted());
    },
    kill(name) {
      at(name).asked = true;
      return signal(name, "SIGKILL");
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
      const timely = new AbortController();
      const gone = new Promise<void>((resolve) => post.gone.push(resolve)).finally(() => timely.abort());
      child.kill("SIGCONT");
      if (child.connected) child.send(drainOrder, () => undefined);
      await clock.sleep(withinMs, timely.signal);
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
      workers.killAll();
      await Promise.all(gone);
    },
  };
  return workers;
}

interface Waker {
  /** Continues it when we are gone, unless it is forgotten before. */
  watch(pid: number): void;
  forget(pid: number): void;
}

/** Should this process be killed, a worker that stands still would do so for ever: it cannot see that we are gone. A shell can. */
function createWaker(): Waker {
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

function stateOf(pid: number): string {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    return stat.slice(stat.lastIndexOf(")") + 2, stat.lastIndexOf(")") + 3);
  } catch {
    return "";
  }
}
