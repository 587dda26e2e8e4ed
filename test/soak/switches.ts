import type { WorkerDuty } from "../../src/proof/run/workers.ts";
import type { Stage } from "../faults/matrix/row.ts";
import type { SwitchName } from "./fault-names.ts";
import { levels, type Leg } from "./plan.ts";

/** Makes one switch under load. True when it was made. */
type Switch = (stage: Stage, leg: Leg, size: number) => Promise<boolean>;

const of = <T>(values: readonly T[], size: number): T => values[Math.floor(size * values.length * 0.999)]!;
const drainMs = 15_000;

let started = 0;

/**
 * Stops a process in order and starts its successor. A clean stop may cost no copies. One that cannot end in time, because a server is away,
 * is killed, which is a fault.
 */
async function replace(stage: Stage, role: WorkerDuty["role"], successors: readonly WorkerDuty[]): Promise<boolean> {
  const running = stage.workers.all.find((worker) => worker.role === role && worker.state === "running");
  if (running === undefined) return false;
  const mark = stage.fault({ fault: "switch", target: running.name, copies: 0 });
  try {
    await leave(stage, running.name, role);
    for (const duty of successors) await join(stage, role, duty);
  } finally {
    mark.ended();
  }
  return true;
}

async function leave(stage: Stage, name: string, role: WorkerDuty["role"]): Promise<void> {
  if (await stage.workers.drain(name, drainMs)) return;
  stage.note(`${name} did not drain within ${drainMs / 1_000} s, and was killed`);
  stage.fault({ fault: "kill", target: name, copies: role === "relay" ? stage.window : 0 }).ended();
}

/** Servers may be away just then: it is tried again, as a process manager would do. */
async function join(stage: Stage, role: WorkerDuty["role"], duty: WorkerDuty): Promise<void> {
  for (let tries = 1; ; tries++) {
    started += 1;
    try {
      await stage.add(`${role}-switched-${started}`, duty);
      return;
    } catch (error) {
      if (tries === 5 || stage.signal.aborted) throw error;
      await stage.clock.sleep(1_000);
    }
  }
}

const relayWith = (stage: Stage, options: Partial<Extract<WorkerDuty, { role: "relay" }>["options"]>): WorkerDuty => {
  const duty = stage.dutyOf("relay") as Extract<WorkerDuty, { role: "relay" }>;
  return { ...duty, options: { ...duty.options, ...options } };
};

const subscriberWith = (stage: Stage, batch: number): WorkerDuty => {
  const duty = stage.dutyOf("subscriber") as Extract<WorkerDuty, { role: "subscriber" }>;
  return { ...duty, options: { ...duty.options, batch } };
};

/** A new switch, such as from polling to the log and back, is a new row here and its name in fault-names.ts. */
export const switchRows: Readonly<Record<SwitchName, Switch>> = {
  "switch coordination": (stage, _, size) => replace(stage, "relay", [relayWith(stage, { coordination: of(levels.coordination, size) })]),
  // The window that faults may copy is the leg's own, which no relay may exceed.
  "switch relay batch": (stage, leg, size) =>
    replace(stage, "relay", [relayWith(stage, { batch: 1 + Math.floor(size * (leg.options.batch - 1)) })]),
  "switch relay count": (stage, _, size) => {
    const duty = stage.dutyOf("relay");
    return replace(stage, "relay", size < 0.5 ? [duty] : [duty, duty]);
  },
  "switch handler batch": (stage, _, size) => replace(stage, "subscriber", [subscriberWith(stage, of(levels.handlerBatch, size))]),
  "switch subscriber count": (stage, _, size) => {
    const duty = stage.dutyOf("subscriber");
    return replace(stage, "subscriber", size < 0.5 ? [duty] : [duty, duty]);
  },
};
