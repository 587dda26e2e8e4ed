import { closeSync, openSync, writeSync } from "node:fs";
import { sharedNow, systemClock } from "../../core/clock.ts";
import { runChild, type Reporter } from "../crew/child.ts";
import { failpointsOf } from "../crew/failpoints.ts";
import { createRecorder } from "../judge/history.ts";
import type { Access } from "./access.ts";
import { play, type Post } from "./roles.ts";
import type { Task } from "./task.ts";

/** The whole program of a worker, which workers.ts starts. */
export function runWorker(access: Access): void {
  runChild<Task>("waybill verify", (task, report) => play(task, postOf(task, access, report)));
}

function postOf(task: Task, access: Access, report: Reporter): Post {
  const log = appender(task.log);
  return {
    access,
    recorder: createRecorder(task.name, sharedNow, appender(task.history)),
    failpoints: failpointsOf(task.failpoints ?? []),
    did: (count) => report.did("", count),
    // Unredacted: a secret in a path event would reach a user's `observe` too, and must be found.
    say: (line) =>
      log(`${JSON.stringify({ at: new Date(systemClock.now()).toISOString(), shared: sharedNow(), worker: task.name, ...line })}\n`),
  };
}

/** Writes synchronously, so that a process that is killed leaves everything that it reported. */
function appender(file: string): (line: string) => void {
  const fd = openSync(file, "a");
  process.on("exit", () => closeSync(fd));
  return (line) => {
    writeSync(fd, line);
  };
}
