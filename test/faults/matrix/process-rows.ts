import { execFile } from "node:child_process";
import { readdirSync } from "node:fs";
import { promisify } from "node:util";
import type { Failpoint } from "../../../src/core/failpoints.ts";
import type { Duty } from "../../../src/cli/verify/workers.ts";
import { typesOf } from "../../../src/cli/verify/ground.ts";
import { aggregateName } from "../../../src/cli/verify/workload.ts";
import { allPairs, processPairs } from "./pairs.ts";
import type { Row, Stage } from "./row.ts";
import { terminate } from "./sigterm.ts";

const run = promisify(execFile);
const hour = 3_600_000;

/** Its next lives die there, or so long after, each a little later than the one before; a fault for every life. */
async function killAt(stage: Stage, role: "relay" | "subscriber", at: Failpoint, afterMs: readonly number[] = []): Promise<void> {
  const { workers } = stage;
  const [victim] = stage.names(role);
  const copies = role === "relay" ? stage.window : 0;
  const livesOf = (): number => workers.all.find(({ name }) => name === victim)!.lives;
  for (let nth = 1; stage.on(); nth = (nth % 4) + 1) {
    const lives = livesOf();
    const later = afterMs[nth - 1];
    workers.arm(victim!, [{ at, nth: role === "relay" ? nth : nth * 5, do: "kill", ...(later === undefined ? {} : { afterMs: later }) }]);
    const fault = stage.fault({ fault: `killed at ${at}`, target: victim!, copies });
    workers.kill(victim!); // a life that is armed begins
    while (stage.on() && livesOf() < lives + 2) await stage.pause(50);
    // Only a life that has ended there counts, and not one that never came by.
    if (livesOf() >= lives + 2) stage.once();
    fault.ended();
  }
  workers.arm(victim!, []);
}

/** Frozen for longer than its lease. */
async function freeze(stage: Stage, names: readonly string[], forMs: number): Promise<void> {
  for (const name of names) {
    if (!stage.on()) return;
    const fault = stage.fault({ fault: "freeze", target: name, copies: stage.window });
    stage.once();
    stage.workers.freeze(name);
    await stage.pause(forMs);
    stage.workers.thaw(name);
    fault.ended();
    await stage.pause(800);
  }
}

const killed = (number: number, title: string, role: "relay" | "subscriber", at: Failpoint, afterMs: readonly number[] = []): Row => ({
  number,
  title,
  injected: `SIGKILL at the failpoint ${at}${afterMs.length === 0 ? "" : `, or ${afterMs.join(", ")} ms after it`}, life after life`,
  pairs: processPairs,
  // With a second subscriber, that one would have all the deliveries after the first death.
  prepare: () => ({ forMs: 14_000, ...(role === "subscriber" ? { crew: { writers: 2, relays: 2, subscribers: 1 } } : {}) }),
  inject: (stage) => killAt(stage, role, at, afterMs),
});

const fresh = async (stage: Stage, duty: (role: Duty["role"], nth: number) => Duty): Promise<void> => {
  for (const role of ["relay", "subscriber", "writer"] as const) {
    for (const [i, name] of stage.names(role).entries()) {
      await stage.workers.drain(name, 10_000);
      await stage.add(`${name}-new`, duty(role, i + 1));
    }
  }
};

/** Each event may have two copies more, from the first one on; nobody is harmed by that. */
const copying = [1, 2].map(
  (nth) =>
    ({
      op: "fault",
      fault: `copies ${nth}`,
      target: "every event",
      copies: 1_000_000,
      scope: { aggregates: [] as readonly string[] },
    }) as const,
);

export const processRows: readonly Row[] = [
  killed(1, "relay killed between the broker's acknowledgement and its settle", "relay", "before-settle"),
  killed(2, "relay killed between claim and publish", "relay", "after-claim"),
  {
    number: 3,
    title: "relay killed in the middle of a publish: some sent, no acknowledgement read",
    injected:
      "the link to the broker passes some thousand bytes more, then resets, and the relay is killed at the same time, four times; then SIGKILL 1 to 4 ms after the failpoint before-publish, life after life",
    pairs: processPairs,
    async inject(stage) {
      for (let round = 0; round < 4 && stage.on(); round++) {
        await stage.pause(900);
        const [relays, { link }] = [stage.names("relay"), stage.broker];
        const victim = relays[round % relays.length]!;
        const fault = stage.fault({ fault: "cut and kill", target: victim, copies: stage.window * relays.length });
        link!.fault("up", { cutAfter: 700 + 1_300 * round });
        await stage.pause(150);
        stage.workers.kill(victim);
        link!.heal();
        fault.ended();
        stage.once();
      }
      await killAt(stage, "relay", "before-publish", [1, 2, 3, 4]);
    },
  },
  {
    number: 14,
    title: "clocks of relays and subscribers are off by an hour, each its own way",
    injected: "every relay and subscriber runs under a wall clock that is an hour early or late; those of the writers are right",
    pairs: processPairs,
    async inject(stage) {
      await stage.pause(1_500);
      // A writer's clock says when its delayed events are due, which is not what is asked here.
      await fresh(stage, (role, nth) => ({
        ...stage.dutyOf(role, nth),
        ...(role === "writer" ? {} : { skewMs: nth % 2 === 0 ? hour : -hour }),
      }));
      stage.once();
    },
  },
  {
    number: 15,
    title: "two relays believe that they own a lane",
    injected: "SIGSTOP for longer than the lease, then SIGCONT, one relay after the other",
    pairs: processPairs,
    prepare: () => ({ forMs: 14_000 }),
    inject: (stage) => freeze(stage, [...stage.names("relay"), ...stage.names("relay")], stage.leaseMs * 1.4),
  },
  {
    number: 16,
    title: "a relay stands still inside its publish until its lease has run out",
    injected: "SIGSTOP at the failpoints before-publish, after-publish and before-renew, SIGCONT after the lease",
    pairs: processPairs,
    prepare: () => ({ forMs: 13_000 }),
    async inject(stage) {
      const { workers } = stage;
      const [victim] = stage.names("relay");
      for (const at of ["after-publish", "before-publish", "before-renew"] as const) {
        if (!stage.on()) break;
        workers.arm(victim!, [{ at, nth: 3, do: "pause" }]);
        const fault = stage.fault({ fault: `stopped at ${at}`, target: victim!, copies: 2 * stage.window });
        workers.kill(victim!);
        if (await workers.frozen(victim!, 5_000)) stage.once();
        await stage.clock.sleep(stage.leaseMs * 1.4);
        workers.thaw(victim!);
        workers.arm(victim!, []);
        fault.ended();
      }
    },
  },
  {
    number: 17,
    title: "an event that the broker refuses for what it is",
    injected: "one aggregate's events are refused: five attempts, then DEAD, its followers BLOCKED",
    pairs: processPairs,
    prepare: () => ({ relay: { retry: { delaysMs: [50, 100, 200, 400] } } }),
    async inject(stage) {
      const name = aggregateName({ aggregateType: typesOf(stage.place)[0]!, aggregateId: "a-1" });
      stage.fault({ fault: "poison", target: name, copies: 0, scope: { aggregates: [name] } });
      for (const [i, relay] of stage.names("relay").entries()) {
        await stage.workers.drain(relay, 10_000);
        const duty = stage.dutyOf("relay");
        if (duty.role === "relay") await stage.add(`poisoned-relay-${i}`, { ...duty, poison: [name] });
      }
      stage.once();
      await stage.rest();
      const { states } = await stage.ground.store.operator.status();
      stage.note(`DEAD ${states.DEAD}, BLOCKED ${states.BLOCKED} behind it`);
      if (states.DEAD === 0) throw new Error("nothing has died of the poison");
    },
  },
  {
    number: 28,
    title: "every message arrives three times",
    injected: "each event is published twice more, and nobody is told; two subscribers",
    pairs: [...processPairs.filter(({ broker }) => broker !== "nats"), { store: "sqlite", broker: "redis" }],
    prepare: () => ({ crew: { writers: 2, relays: 0, subscribers: 2 } }),
    async before(stage) {
      for (const act of copying) stage.recorder.write("invoked", act);
      const duty = stage.dutyOf("relay");
      if (duty.role === "relay") for (const nth of [1, 2]) await stage.add(`repeating-relay-${nth}`, { ...duty, again: 2 });
    },
    async inject(stage) {
      stage.once();
      await stage.rest();
      for (const nth of [1, 2]) await stage.add(`relay-${nth}`, stage.dutyOf("relay"));
      for (const nth of [1, 2]) await stage.workers.drain(`repeating-relay-${nth}`, 10_000);
      for (const act of copying) stage.recorder.write("ok", act);
    },
  },
  killed(30, "subscriber killed between its commit and its acknowledgement", "subscriber", "after-effect"),
  killed(31, "subscriber killed between its inbox row and the end of its commit", "subscriber", "before-commit", [0, 1, 2]),
  {
    number: 41,
    title: "SIGTERM in the middle of batches",
    injected: "SIGTERM to one relay process after the other; it must end with 0, and a new one begins: no copy is allowed",
    pairs: processPairs,
    // As they are unless configured: on a busy machine a publish may take longer than half of a short lease, which costs copies too.
    prepare: () => ({ forMs: 14_000, relay: { leaseMs: 10_000, publishTimeoutMs: 5_000 } }),
    inject: terminate,
  },
  {
    number: 45,
    title: "a relay may open no more files",
    injected:
      "prlimit takes every file descriptor that is not in use, and the links are reset; then they are given back. Memory is not taken: Node ends a process that gets none at once, which is the death of rows 1 to 3",
    pairs: processPairs,
    cannot: { sqlite: "a relay on a file opens no new ones while it works" },
    // It may end, and be started again.
    prepare: () => ({ limits: { deaths: 20 } }),
    async inject(stage) {
      for (const name of stage.names("relay")) {
        const pid = stage.workers.all.find((worker) => worker.name === name)?.pid;
        if (pid === null || pid === undefined || !stage.on()) continue;
        const fault = stage.fault({ fault: "no more files", target: name, copies: stage.window * 2 });
        const soft = String(Math.max(...readdirSync(`/proc/${pid}/fd`).map(Number)) + 1);
        await run("prlimit", ["--pid", String(pid), `--nofile=${soft}:`]);
        stage.broker.link?.reset();
        stage.store.link?.reset();
        stage.once();
        await stage.pause(2_500);
        await run("prlimit", ["--pid", String(pid), "--nofile=4096:"]).catch(() => undefined);
        fault.ended();
        await stage.pause(500);
      }
    },
  },
  {
    number: 0,
    title: "a mix of faults",
    injected: "processes killed and frozen, both links cut and black, the broker and the store killed and started again",
    pairs: allPairs,
    prepare: () => ({ forMs: 15_000 }),
    inject: mixed,
  },
];

async function mixed(stage: Stage): Promise<void> {
  const { random, workers, window } = stage;
  const all = 2 * window;
  const below = (n: number): number => Math.floor(random.next() * n);
  const one = (role: Duty["role"]): string => stage.names(role)[below(stage.names(role).length)]!;
  const steps: readonly (readonly [name: string, work: () => Promise<void>])[] = [
    ["kill relay", async () => void workers.kill(one("relay"))],
    ["kill subscriber", async () => void workers.kill(one("subscriber"))],
    ["kill writer", async () => void workers.kill(one("writer"))],
    [
      "freeze relay",
      async () => {
        const name = one("relay");
        workers.freeze(name);
        await stage.pause(stage.leaseMs * 1.3);
        workers.thaw(name);
      },
    ],
    ...(["store", "broker"] as const).flatMap((which) => {
      const { link, server } = stage[which];
      if (link === null || server === null) return [];
      return [
        [
          `black hole to the ${which}`,
          async () => {
            for (const direction of ["up", "down"] as const) link.fault(direction, { hold: true });
            await stage.pause(1_000 + below(2_000));
            link.heal();
          },
        ],
        [
          `cut to the ${which}`,
          async () => {
            link.fault(below(2) === 0 ? "up" : "down", { cutAfter: 500 + below(30_000) });
            await stage.pause(600);
            link.heal();
          },
        ],
        [
          `${which} killed`,
          async () => {
            await server.kill9();
            await stage.clock.sleep(300);
            await server.start();
          },
        ],
      ] as const;
    }),
  ];
  const deck = steps.map((step) => [random.next(), step] as const).sort(([a], [b]) => a - b);
  for (let at = 0; stage.on(); at++) {
    await stage.pause(400 + below(600));
    const [name, work] = deck[at % deck.length]![1];
    const fault = stage.fault({ fault: name, target: "one", copies: all });
    await work();
    fault.ended();
    stage.once();
  }
}
