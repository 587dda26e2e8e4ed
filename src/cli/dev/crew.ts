import { fork, type ChildProcess } from "node:child_process";
import { extname } from "node:path";
import { fileURLToPath } from "node:url";
import type { Clock } from "../../core/clock.ts";
import { WaybillError } from "../../core/errors.ts";
import type { PathEvent } from "../../core/path-events.ts";
import { drainOrder } from "../child.ts";
import type { Job, Report } from "./jobs.ts";

/** One process of the shop, as the view shows it. */
export interface Member {
  readonly name: string;
  readonly role: Job["role"];
  readonly pid: number | null;
  readonly state: "starting" | "running" | "down" | "draining" | "ended";
  readonly restarts: number;
  readonly did: string;
  /** How many it has done, over all its lives. */
  readonly done: number;
}

export interface Crew {
  readonly members: readonly Member[];
  /** Starts a process and keeps it going: one that dies is started again. Resolves when it is ready for the first time. */
  start(job: Job): Promise<{ readonly port: number | null }>;
  /** SIGKILL, as a fault; says which process it was, or null when it is down already. */
  kill(name: string): number | null;
  /** Lets these finish what they hold, and ends them; those that take longer are killed, and named. */
  drain(names: readonly string[], withinMs: number): Promise<readonly string[]>;
  /** Ends everything now. */
  killAll(): void;
  /** Rejects when a process cannot be kept going. */
  readonly failed: Promise<never>;
}

export interface CrewOptions {
  readonly clock: Clock;
  onPath(name: string, event: PathEvent): void;
  /** A process died that nobody had told to. */
  onDeath(name: string, pid: number | null, how: string): void;
}

interface Post {
  job: Job;
  child: ChildProcess | null;
  view: { -readonly [K in keyof Member]: Member[K] };
  doneBefore: number;
  /** Deaths in a row before it was ready. */
  failures: number;
  lastWords: string;
  started: { resolve(ready: { port: number | null }): void; reject(error: Error): void } | null;
  over: boolean;
  gone: (() => void)[];
}

const program = fileURLToPath(new URL(`./child${extname(import.meta.url)}`, import.meta.url));
const restartMs = 400;
const mostFailures = 5;

export function createCrew({ clock, onPath, onDeath }: CrewOptions): Crew {
  const posts = new Map<string, Post>();
  let fail: (error: Error) => void = () => undefined;
  const failed = new Promise<never>((_, reject) => (fail = reject));
  failed.catch(() => undefined);

  const heard = (post: Post, report: Report): void => {
    switch (report.type) {
      case "ready":
        post.failures = 0;
        if (post.view.state === "starting") post.view.state = "running";
        // A service that comes back is expected where it was.
        if (post.job.role === "orders" && report.port !== null) post.job = { ...post.job, port: report.port };
        post.started?.resolve({ port: report.port });
        post.started = null;
        return;
      case "failed":
        post.lastWords = report.message;
        if (post.started === null || report.code === null) return;
        post.over = true;
        return post.started.reject(new WaybillError(report.code, report.message));
      case "did":
        post.view.did = report.what;
        post.view.done = post.doneBefore + report.done;
        return;
      case "path":
        return onPath(post.view.name, report.event);
    }
  };

  const launch = (post: Post): void => {
    const { view } = post;
    const child = fork(program, [JSON.stringify(post.job)], { stdio: ["ignore", "ignore", "pipe", "ipc"], execArgv: [] });
    post.child = child;
    post.doneBefore = view.done;
    Object.assign(view, { pid: child.pid ?? null, state: "starting", did: "starting" });
    child.on("message", (report) => heard(post, report as Report));
    child.on("error", (error) => (post.lastWords = error.message));
    child.stderr!.setEncoding("utf8").on("data", (text: string) => (post.lastWords = (post.lastWords + text).slice(-2_000)));
    child.once("exit", (code, signal) => ended(post, signal ?? `exit ${code}`));
  };

  const ended = (post: Post, how: string): void => {
    const { view } = post;
    const { pid, state } = view;
    post.child = null;
    Object.assign(view, { pid: null, state: post.over ? "ended" : "down", did: post.over ? "ended" : `died (${how})` });
    for (const tell of post.gone.splice(0)) tell();
    if (post.over) return;
    onDeath(view.name, pid, how);
    post.failures = state === "starting" && how !== "SIGKILL" ? post.failures + 1 : 0;
    if (post.failures >= mostFailures) {
      post.over = true;
      const error = new Error(`${view.name} cannot be kept running: ${post.lastWords.trim() || how}`);
      post.started?.reject(error);
      return fail(error);
    }
    void clock.sleep(restartMs).then(() => {
      if (post.over) return;
      view.restarts++;
      launch(post);
    });
  };

  const end = async (post: Post, withinMs: number): Promise<string | null> => {
    post.over = true;
    const { child, view } = post;
    if (child === null) return null;
    view.state = "draining";
    const timely = new AbortController();
    const gone = new Promise<void>((resolve) => post.gone.push(resolve)).finally(() => timely.abort());
    if (child.connected) child.send(drainOrder, () => undefined);
    await clock.sleep(withinMs, timely.signal);
    if (post.child === null) return null;
    child.kill("SIGKILL");
    await gone;
    return view.name;
  };

  return {
    get members() {
      return [...posts.values()].map(({ view }) => view);
    },
    start(job) {
      const view: Post["view"] = { name: job.name, role: job.role, pid: null, state: "down", restarts: 0, did: "", done: 0 };
      const post: Post = { job, child: null, view, doneBefore: 0, failures: 0, lastWords: "", started: null, over: false, gone: [] };
      posts.set(job.name, post);
      return new Promise((resolve, reject) => {
        post.started = { resolve, reject };
        launch(post);
      });
    },
    kill(name) {
      const child = posts.get(name)?.child ?? null;
      if (child?.pid === undefined) return null;
      child.kill("SIGKILL");
      return child.pid;
    },
    async drain(names, withinMs) {
      const late = await Promise.all(
        [...posts.values()].filter(({ view }) => names.includes(view.name)).map((post) => end(post, withinMs)),
      );
      return late.filter((name) => name !== null);
    },
    killAll() {
      for (const post of posts.values()) {
        post.over = true;
        post.child?.kill("SIGKILL");
      }
    },
    failed,
  };
}
