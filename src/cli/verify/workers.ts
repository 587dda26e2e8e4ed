import { fork, type ChildProcess } from "node:child_process";
import { closeSync, openSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Clock } from "../../core/clock.ts";
import { WaybillError } from "../../core/errors.ts";
import { canMeasure, measure, type Peaks } from "./measure.ts";
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
  readonly pid: number | null;
}

export interface Workers {
  readonly all: readonly Worker[];
  /** Keeps a worker going: one that dies is started again. Resolves when it is ready for the first time. */
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
  /** Null where they cannot be measured. */
  readonly peaks: Readonly<Peaks> | null;
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
const sampleMs = 500;

export interface WorkersOptions {
  readonly program: string;
  /** Where histories and logs go. */
  readonly folder: string;
  readonly clock: Clock;
  /** Where the system tells of its processes. @default "/proc" */
  readonly proc?: string;
}

export function createWorkers({ program, folder, clock, proc = "/proc" }: WorkersOptions): Workers {
  const posts = new Map<string, Post>();
  const deaths: { worker: string; words: string }[] = [];
  const peaks: Peaks | null = canMeasure(proc) ? { rss: 0, files: 0 } : null;
  const closing = new AbortController();

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
    const stderr = openSync(join(folder, `${name}.err`), "a");
    const child = fork(program, [], { stdio: ["ignore", "ignore", stderr, "ipc"], execArgv: [], serialization: "json" });
    closeSync(stderr);
    post.child = child;
    child.on("message", (report) => heard(post, report as Report));
    child.on("error", (error) => (post.words = error.message));
    child.once("exit", (code, signal) => ended(post, signal ?? `exit ${code}`));
    child.send(task, () => undefined);
  };
  const heard = (post: Post, report: Report): void => {
    if (report.type === "ready") {
      post.ready?.resolve();
      post.ready = null;
    } else if (report.type === "did") post.done = post.before + report.done;
    else {
      post.words = report.message;
      post.early = report.early;
      if (post.ready === null || report.code === null) return;
      post.over = true;
      post.ready.reject(new WaybillError(report.code, report.message));
    }
  };
  const ended = (post: Post, how: string): void => {
    post.child = null;
    for (const tell of post.gone.splice(0)) tell();
    if (post.over) return post.ready?.reject(new Error(`${post.name} ended: ${post.words || how}`));
    if (!post.asked && !post.doomed && !post.early) deaths.push({ worker: post.name, words: post.words || how });
    void clock.sleep(restartMs, closing.signal).then(() => {
      if (!post.over && !closing.signal.aborted) launch(post);
    });
  };

  const sample = async (): Promise<void> => {
    while (!closing.signal.aborted && peaks !== null) {
      for (const { child } of posts.values()) if (child?.pid !== undefined) measure(peaks, proc, child.pid);
      await clock.sleep(sampleMs, closing.signal);
    }
  };
  const sampling = sample();

  const at = (name: string): Post => {
    const post = posts.get(name);
    if (post === undefined) throw new Error(`there is no worker ${name}`);
    return post;
  };
  const signal = (name: string, what: NodeJS.Signals): boolean => at(name).child?.kill(what) ?? false;

  const workers: Workers = {
    get all() {
      return [...posts.values()].map(({ name, duty, done, lives, child }) => ({
        name,
        role: duty.role,
        done,
        lives,
        pid: child?.pid ?? null,
      }));
    },
    deaths,
    peaks,
    start(name, duty) {
      const post: Post = {
        ...{
          name,
          duty,
          child: null,
          failpoints: duty.failpoints ?? [],
          doomed: false,
          early: false,
          lives: 0,
          done: 0,
          before: 0,
          over: false,
          asked: false,
        },
        ...{ words: "", ready: null, gone: [] },
      };
      posts.set(name, post);
      return new Promise((resolve, reject) => {
        post.ready = { resolve, reject };
        launch(post);
      });
    },
    kill(name) {
      at(name).asked = true;
      return signal(name, "SIGKILL");
    },
    freeze: (name) => signal(name, "SIGSTOP"),
    thaw: (name) => void signal(name, "SIGCONT"),
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
        if (pid !== undefined && stateOf(pid) === "T") return true;
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
      await sampling;
    },
  };
  return workers;
}

function stateOf(pid: number): string {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    return stat.slice(stat.lastIndexOf(")") + 2, stat.lastIndexOf(")") + 3);
  } catch {
    return "";
  }
}
