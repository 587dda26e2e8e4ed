import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import type { ChildReport } from "../../../src/proof/crew/child.ts";
import type { Task } from "../../../src/proof/run/task.ts";
import type { Stage } from "./row.ts";

interface Own {
  readonly name: string;
  readonly child: ChildProcess;
  /** How it ended: a code, or the signal that ended it. */
  readonly ended: Promise<number | string>;
}

/** A relay that nobody else can tell to end: only a signal does. */
async function startOwn(stage: Stage, name: string): Promise<Own> {
  const { folder, program } = stage;
  const child = fork(program, [], { stdio: ["ignore", "ignore", "ignore", "ipc"], execArgv: [], serialization: "json" });
  const ended = once(child, "exit").then(([code, signal]) => (code ?? signal) as number | string);
  const task = { ...stage.dutyOf("relay"), name, history: join(folder, `${name}.jsonl`), log: join(folder, `${name}.log`) } as Task;
  child.send(task);
  const ready = new Promise<void>((resolve, reject) => {
    child.on("message", (report: ChildReport) => {
      if (report.type === "ready") resolve();
      else if (report.type === "failed") reject(new Error(`${name}: ${report.message}`));
    });
    void ended.then((how) => reject(new Error(`${name} ended with ${how}`)));
  });
  await ready;
  return { name, child, ended };
}

const withinMs = 10_000;

/** Real SIGTERMs to real processes: each has to end by itself, in order, and in time. */
export async function terminate(stage: Stage): Promise<void> {
  const own: Own[] = [];
  const end = async ({ name, child, ended }: Own): Promise<void> => {
    child.kill("SIGTERM");
    const timely = new AbortController();
    const how = await Promise.race([ended, stage.clock.sleep(withinMs, timely.signal).then(() => `nothing within ${withinMs} ms`)]);
    timely.abort();
    if (how !== 0) throw new Error(`SIGTERM: ${name} ended with ${how}`);
  };
  try {
    const before = stage.names("relay");
    for (const nth of [1, 2]) own.push(await startOwn(stage, `own-relay-${nth}`));
    for (const name of before) await stage.workers.drain(name, withinMs);
    for (let nth = 3; stage.on(); nth++) {
      await stage.pause(700);
      const first = own.shift()!;
      const fault = stage.fault({ fault: "SIGTERM", target: first.name, copies: 0 });
      await end(first);
      own.push(await startOwn(stage, `own-relay-${nth}`));
      fault.ended();
      stage.once();
    }
    for (const name of before) await stage.add(`${name}-again`, stage.dutyOf("relay"));
    for (const each of own.splice(0)) await end(each);
  } finally {
    for (const { child } of own) child.kill("SIGKILL");
  }
}
