import { systemClock } from "../../core/clock.ts";
import { asError, isWaybillError, type ErrorCode } from "../../core/errors.ts";
import type { PathEvent } from "../../core/path-events.ts";
import type { Service } from "../../core/service.ts";
import { usesOf, type Uses } from "./measure.ts";

/** The message with which a parent makes a child finish its work in hand, and exit. */
export const drainOrder = "drain";

/** From a child to its parent. */
export type ChildReport =
  | { readonly type: "ready"; readonly port?: number }
  /** `early`: it could not begin because a server was unavailable. */
  | { readonly type: "failed"; readonly code: ErrorCode | null; readonly message: string; readonly early: boolean }
  /** Its last action, the count so far, and its use of resources. */
  | { readonly type: "did"; readonly what: string; readonly done: number; readonly uses: Uses | null }
  | { readonly type: "path"; readonly event: PathEvent };

/** How a role reports what it does. */
export interface Reporter {
  did(what: string, more: number): void;
  path(event: PathEvent): void;
}

/** What a role gives the process it runs in. */
export interface Running {
  /** Where it listens, if it does. */
  readonly port?: number;
  drain(): Promise<void>;
  /** Rejects when the role has failed and cannot go on. */
  readonly stopped: Promise<void>;
}

/** Starts a relay or a subscriber. Its drain also closes the resources that it uses. */
export async function running(service: Service, resources: readonly AsyncDisposable[]): Promise<Running> {
  try {
    await service.start();
  } catch (error) {
    await Promise.allSettled(resources.map((resource) => resource[Symbol.asyncDispose]()));
    throw error;
  }
  return {
    stopped: service.stopped,
    async drain() {
      await service.drain();
      for (const resource of resources) await resource[Symbol.asyncDispose]();
    },
  };
}

const tellEveryMs = 200;
let begun = false;

/** The whole program of a process that a crew starts, and that is a part of `command`. */
export function runChild<T>(command: string, play: (task: T, report: Reporter) => Promise<Running>): void {
  if (process.send === undefined) {
    process.stderr.write(`waybill: this program is a part of ${command}, which starts it by itself\n`);
    process.exitCode = 2;
    return;
  }
  main(play).catch(failed);
}

async function main<T>(play: (task: T, report: Reporter) => Promise<Running>): Promise<void> {
  endWithParent();
  // The task is a message, not an argument: URLs hold passwords, and every user of the machine can read arguments.
  const task = await new Promise<T>((resolve) => process.once("message", (message) => resolve(message as T)));
  let running: Running | null = null;
  let ending = false;
  const drain = async (): Promise<void> => {
    if (ending) return;
    ending = true;
    await running?.drain();
    process.exit(0);
  };
  process.on("SIGTERM", () => void drain().catch(failed));
  process.on("message", (message) => {
    if (message === drainOrder) void drain().catch(failed);
  });
  running = await play(task, reporter());
  begun = true;
  send({ type: "ready", ...(running.port === undefined ? {} : { port: running.port }) });
  await running.stopped;
  if (!ending) failed(new Error("it ended by itself"));
}

/** Only its parent ends a child. So the child exits when the parent is gone, also when the parent was killed. */
function endWithParent(): void {
  process.on("disconnect", () => process.exit(1));
  if (!process.connected) process.exit(1);
  // Ctrl-C and the end of a terminal reach every process of the group, but the parent decides when a child ends.
  for (const name of ["SIGINT", "SIGHUP"] as const) process.on(name, () => undefined);
}

function send(report: ChildReport, sent: () => void = () => undefined): void {
  if (process.connected) process.send?.(report, undefined, undefined, sent);
  else sent();
}

function failed(error: unknown): void {
  const known = isWaybillError(error) ? error : null;
  const early = !begun && known?.retryable === true;
  send({ type: "failed", code: known?.code ?? null, message: asError(error).message, early }, () => process.exit(1));
}

function reporter(): Reporter {
  let [what, done] = ["", 0];
  const tell = async (): Promise<never> => {
    for (;;) {
      await systemClock.sleep(tellEveryMs);
      send({ type: "did", what, done, uses: usesOf() });
    }
  };
  void tell();
  return {
    did(now, more) {
      what = now;
      done += more;
    },
    path: (event) => send({ type: "path", event }),
  };
}
