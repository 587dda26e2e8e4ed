import type { WorkerDuty } from "../../src/proof/run/workers.ts";
import { trouble, type NetworkTrouble } from "../../src/proof/run/network.ts";
import { copiesOf, freezeCopies } from "../faults/matrix/rounds.ts";
import type { Stage } from "../faults/matrix/row.ts";
import { processesIn } from "../servers/processes-in.ts";
import { switches } from "./fault-names.ts";
import type { Fault, Leg } from "./plan.ts";
import { switchRows } from "./switches.ts";

/** Faults of one thing come one after the other, so that a server is not killed while it starts. Those of different things overlap. */
export async function inject(stage: Stage, leg: Leg, done: (fault: Fault) => void): Promise<void> {
  const began = stage.clock.monotonic();
  const queues = new Map<string, Promise<void>>();
  const waits = leg.faults.map(async (fault) => {
    await stage.pause(began + fault.at * stage.forMs - stage.clock.monotonic());
    if (!stage.on()) return;
    const of = thingOf(fault);
    const before = queues.get(of) ?? Promise.resolve();
    const work = before.then(async () => {
      if (!stage.on()) return;
      if (await cause(stage, leg, fault)) done(fault);
    });
    queues.set(
      of,
      work.catch(() => undefined),
    );
    await work;
  });
  await Promise.all(waits);
}

const isSwitch = (name: string): name is (typeof switches)[number] => (switches as readonly string[]).includes(name);

function thingOf({ name }: Fault): string {
  if (isSwitch(name)) return "switch";
  const [what, of] = name.split(": ");
  if (of !== undefined) return what!.startsWith("server") ? `the ${of}` : `the link to the ${of}`;
  return what!.split(" ")[1]!;
}

async function cause(stage: Stage, leg: Leg, fault: Fault): Promise<boolean> {
  const { name } = fault;
  if (isSwitch(name)) return switchRows[name](stage, leg, fault.size);
  const [what, of] = name.split(": ") as [string, "store" | "broker" | undefined];
  if (of === undefined) {
    const [act, role] = what.split(" ") as ["kill" | "freeze", WorkerDuty["role"]];
    return act === "kill" ? kill(stage, role, fault.size) : freeze(stage, role, fault.size);
  }
  return what.startsWith("server") ? breakServer(stage, of, what, fault.size) : breakLink(stage, of, what as NetworkTrouble, fault.size);
}

/** One of the processes of a role that run now. Those that were drained have no process. */
function one({ workers }: Stage, role: WorkerDuty["role"], size: number): string | null {
  const names = workers.all.filter((worker) => worker.role === role && worker.state === "running").map(({ name }) => name);
  return names[Math.floor(size * names.length * 0.999)] ?? null;
}

async function kill(stage: Stage, role: WorkerDuty["role"], size: number): Promise<boolean> {
  const name = one(stage, role, size);
  if (name === null) return false;
  const begun = stage.fault({ fault: "kill", target: name, copies: role === "relay" ? stage.window : 0 });
  const isKilled = stage.workers.kill(name);
  begun.ended();
  return isKilled;
}

async function freeze(stage: Stage, role: WorkerDuty["role"], size: number): Promise<boolean> {
  const name = one(stage, role, size);
  if (name === null) return false;
  const oneWriter = stage.pair.store === "sqlite";
  const copies = role === "relay" ? freezeCopies(stage) : oneWriter ? copiesOf(stage) : 0;
  const begun = stage.fault({ fault: "freeze", target: name, copies });
  try {
    if (!stage.workers.freeze(name)) return false;
    // From a part of a lease to more than one.
    await stage.clock.sleep(stage.leaseMs * (0.2 + size * 1.4));
    return true;
  } finally {
    stage.workers.thaw(name);
    begun.ended();
  }
}

async function breakLink(stage: Stage, of: "store" | "broker", what: NetworkTrouble, size: number): Promise<boolean> {
  const link = stage[of].link!;
  const begun = stage.fault({ fault: what, target: `the link to the ${of}`, copies: copiesOf(stage) });
  try {
    trouble({ url: "", proxy: link, [Symbol.asyncDispose]: async () => undefined }, what, size);
    await stage.clock.sleep(what === "reset" ? 0 : 300 + size * stage.leaseMs * 1.3);
    return true;
  } finally {
    link.heal();
    begun.ended();
  }
}

async function breakServer(stage: Stage, of: "store" | "broker", what: string, size: number): Promise<boolean> {
  const server = stage[of].server!;
  const begun = stage.fault({ fault: what, target: stage.pair[of], copies: copiesOf(stage) });
  const downMs = 200 + size * 3_000;
  try {
    if (what === "server frozen") {
      const pids = processesIn(server.folder);
      const signal = (name: NodeJS.Signals): void => pids.forEach((pid) => signalTo(pid, name));
      try {
        signal("SIGSTOP");
        await stage.clock.sleep(downMs * 2);
      } finally {
        signal("SIGCONT");
      }
      return pids.length > 0;
    }
    if (what === "server killed") await server.kill9();
    else await server.stop("fast");
    await stage.clock.sleep(downMs);
    await server.start();
    return true;
  } finally {
    begun.ended();
  }
}

function signalTo(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // it has ended
  }
}
