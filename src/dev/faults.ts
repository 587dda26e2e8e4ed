import { rmSync, writeFileSync } from "node:fs";
import type { Clock } from "../core/clock.ts";
import type { Crew } from "../proof/crew/crew.ts";
import type { Job } from "./jobs.ts";
import type { OrderLoad } from "./load.ts";

type FaultKind = "broker stopped" | "poison planted" | "relay killed" | "subscriber killed" | "orders killed";

interface FaultOptions {
  readonly crew: Crew<Job>;
  readonly load: OrderLoad;
  /** The broker is stopped while this file is there. */
  readonly flag: string;
  readonly clock: Clock;
  /** From one round of faults to the next. */
  readonly roundMs: number;
  /** Reports and records a fault before it happens, so that no consequence is recorded first. */
  announce(kind: FaultKind, what: string): Promise<void>;
  say(text: string): void;
}

/** When in a round each fault comes, as a share of it. */
const plan = [
  { at: 0.04, what: "poison" },
  { at: 0.3, what: "stop" },
  { at: 0.4, what: "subscriber" },
  { at: 0.52, what: "resume" },
  { at: 0.62, what: "orders" },
  { at: 0.7, what: "relay" },
  { at: 0.8, what: "subscriber" },
  { at: 0.9, what: "relay" },
] as const;

/** Round after round until the signal aborts; the broker runs again then. */
export async function causeFaults(options: FaultOptions, signal: AbortSignal): Promise<void> {
  const { clock, roundMs } = options;
  const victims = createVictims(options.crew);
  const from = clock.monotonic();
  try {
    for (let round = 0; !signal.aborted; round++) {
      for (const { at, what } of plan) {
        await clock.sleep(from + (round + at) * roundMs - clock.monotonic(), signal);
        if (signal.aborted) return;
        if (what !== "poison" || round === 0) await cause(what, options, victims);
      }
      await clock.sleep(from + (round + 1) * roundMs - clock.monotonic(), signal);
    }
  } finally {
    rmSync(options.flag, { force: true });
  }
}

async function cause(what: (typeof plan)[number]["what"], options: FaultOptions, victims: Victims): Promise<void> {
  switch (what) {
    case "poison": {
      await options.announce("poison planted", "an order is changed in a way that the broker refuses every time");
      const id = options.load.poison();
      return options.say(`order ${id} is the poisoned one: its followers will have to wait, all other orders go on`);
    }
    case "stop":
      await options.announce("broker stopped", "the broker takes and gives nothing for a while");
      return writeFileSync(options.flag, "");
    case "resume":
      rmSync(options.flag, { force: true });
      return options.say("the broker runs again");
    case "relay":
    case "subscriber":
    case "orders": {
      const victim = victims.next(what);
      if (victim === null) return;
      await options.announce(`${what} killed`, `${victim} is killed with SIGKILL, and started again`);
      options.crew.kill(victim);
    }
  }
}

interface Victims {
  next(role: "relay" | "subscriber" | "orders"): string | null;
}

/** In turn. Null where the shop has no such process: the naive shop has no relay. */
function createVictims(crew: Crew<Job>): Victims {
  const turns = { relay: 0, subscriber: 0, orders: 0 };
  return {
    next(role) {
      const names = crew.all.filter((member) => member.role === role).map(({ name }) => name);
      return names.length === 0 ? null : names[turns[role]++ % names.length]!;
    },
  };
}
