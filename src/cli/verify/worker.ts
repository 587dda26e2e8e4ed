import { closeSync, openSync, writeSync } from "node:fs";
import { asError, isWaybillError } from "../../core/errors.ts";
import { createRecorder } from "../../proof/judge/history.ts";
import { endWithParent, serve } from "../child.ts";
import { usesOf } from "./measure.ts";
import { sharedNow } from "./recorded.ts";
import { play, type Post } from "./roles.ts";
import type { Points, Report, Task } from "./task.ts";

/** The program of every process of a run but the first; see workers.ts, which starts it. */

function send(report: Report): void {
  if (process.connected) process.send?.(report, undefined, undefined, () => undefined);
}

/** Written before anything else happens: a process that is killed leaves all that it had to say. */
function appender(file: string): (line: string) => void {
  const fd = openSync(file, "a");
  process.on("exit", () => closeSync(fd));
  return (line) => {
    writeSync(fd, line);
  };
}

function failpointsOf({ failpoints = [] }: Task): Points {
  const times = new Map<string, number>();
  return {
    hit(at) {
      const nth = (times.get(at) ?? 0) + 1;
      times.set(at, nth);
      for (const fail of failpoints) {
        if (fail.at === at && fail.nth === nth) process.kill(process.pid, fail.do === "kill" ? "SIGKILL" : "SIGSTOP");
      }
    },
  };
}

let begun = false;

function failed(error: unknown): void {
  const known = isWaybillError(error) ? error : null;
  const early = !begun && known?.retryable === true;
  const report: Report = { type: "failed", code: known?.code ?? null, message: asError(error).message, early };
  if (!process.connected) process.exit(1);
  process.send!(report, undefined, undefined, () => process.exit(1));
}

function postOf(task: Task): Post {
  const log = appender(task.log);
  let done = 0;
  setInterval(() => send({ type: "did", done, uses: usesOf() }), 200).unref();
  return {
    recorder: createRecorder(task.name, sharedNow, appender(task.history)),
    failpoints: failpointsOf(task),
    did(count) {
      done += count;
    },
    // As it comes: a secret in it would reach a user's `observe` too, and must be found.
    say: (line) => log(`${JSON.stringify({ at: new Date().toISOString(), shared: sharedNow(), worker: task.name, ...line })}\n`),
  };
}

async function main(): Promise<void> {
  endWithParent();
  // Not among its arguments, which every user of the machine can read: URLs hold passwords.
  const task = await new Promise<Task>((resolve) => process.once("message", (message) => resolve(message as Task)));
  const post = postOf(task);
  const ready = (): void => {
    begun = true;
    send({ type: "ready" });
  };
  await serve(() => play(task, post), { ready, failed });
}

if (process.send === undefined) {
  process.stderr.write("waybill: this program is a part of waybill verify, which starts it by itself\n");
  process.exitCode = 2;
} else {
  main().catch(failed);
}
