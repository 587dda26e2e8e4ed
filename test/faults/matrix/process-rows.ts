import { execFile } from "node:child_process";
import { promisify } from "node:util";
import type { Point } from "../../../src/proof/crew/failpoints.ts";
import type { WorkerDuty } from "../../../src/proof/run/workers.ts";
import { typesOf } from "../../../src/proof/run/ground.ts";
import { aggregateName } from "../../../src/proof/run/workload.ts";
import { copiesFelt, filesFelt, lanesLost, noFiles, nothingDead } from "./felt.ts";
import { cut, mixed, mixOf } from "./mixed.ts";
import { allPairs, processPairs } from "./pairs.ts";
import { freezeCopies } from "./rounds.ts";
import type { Row, Stage } from "./row.ts";
import { terminate } from "./sigterm.ts";

const run = promisify(execFile);
const hour = 3_600_000;
const mostMs = 60_000;
/** Standard input, output and error: what is open beyond them stays so under this limit, but its number is not given again. */
const standard = 3;
const stops = ["mid-batch", "after-publish", "before-publish", "before-renew"] as const;

/**
 * One life after the other dies there, by turns; the first of each point early, those that follow a little later. A fault for every life. Each
 * point is come to once at least, though that may take longer than the load.
 */
async function killAt(stage: Stage, role: "relay" | "subscriber", points: readonly Point[]): Promise<void> {
  const { workers, clock } = stage;
  const [victim] = stage.names(role) as [string];
  const copies = role === "relay" ? stage.window : 0;
  const pointOf = (life: number): Point => points[life % points.length]!;
  /** Armed for its next life. */
  const arm = (life: number): void => {
    const turn = Math.floor(life / points.length) % 4;
    workers.arm(victim, [{ at: pointOf(life), nth: 1 + turn * (role === "relay" ? 1 : 5), do: "kill" }]);
  };
  const post = () => workers.all.find(({ name }) => name === victim)!;
  const lives = (): number => post().lives;
  const first = 1 + lives();
  const latest = clock.monotonic() + stage.forMs + mostMs;
  const goesOn = (): boolean => stage.on() || (lives() < first + points.length && clock.monotonic() < latest && !stage.signal.aborted);
  const begun = async (nth: number): Promise<boolean> => {
    while (goesOn() && lives() < nth) await clock.sleep(20);
    return lives() >= nth;
  };
  arm(0);
  const beginning = stage.fault({ fault: "killed", target: victim, copies });
  workers.kill(victim);
  beginning.ended();
  for (let life = 0; await begun(first + life); life++) {
    const fault = stage.fault({ fault: `killed at ${pointOf(life)}`, target: victim, copies });
    arm(life + 1);
    // Only a life that has ended there counts, and not one that never came by, or ended by itself.
    if ((await begun(first + life + 1)) && post().fallen.includes(first + life)) stage.once(pointOf(life));
    if (!goesOn()) {
      // Nobody stays who would die later, when nothing is to break any more.
      workers.arm(victim, []);
      workers.kill(victim);
    }
    fault.ended();
    if (!goesOn()) return;
  }
  workers.arm(victim, []);
}

/** Frozen for longer than its lease. */
async function freeze(stage: Stage, names: readonly string[], forMs: number): Promise<void> {
  for (const name of names) {
    if (!stage.on()) return;
    const fault = stage.fault({ fault: "freeze", target: name, copies: freezeCopies(stage) });
    if (stage.workers.freeze(name)) stage.once();
    await stage.clock.sleep(forMs);
    stage.workers.thaw(name);
    fault.ended();
    await stage.pause(800);
  }
}

/** The answer to a COMMIT is held back, and whoever waits for it is killed; the server has the COMMIT. */
async function killInCommit(stage: Stage): Promise<void> {
  const [victim] = stage.names("subscriber") as [string];
  const link = stage.store.link!;
  for (let round = 0; round < 4 && (stage.on() || round === 0); round++) {
    await stage.pause(600);
    const late = stage.clock.sleep(mostMs).then(() => false);
    const met = await Promise.race([link.seen(stage.ground.tables.effects, "COMMIT").then(() => true), late]);
    const fault = stage.fault({ fault: "killed mid-commit", target: victim, copies: 0 });
    link.fault("down", { hold: true });
    if (stage.workers.kill(victim) && met) stage.once("mid-commit");
    link.heal();
    fault.ended();
  }
}

const killed = (number: number, title: string, role: "relay" | "subscriber", points: readonly Point[]): Row => ({
  number,
  title,
  injected: `SIGKILL at the failpoint${points.length > 1 ? "s" : ""} ${points.join(" and ")}, life after life`,
  kinds: points,
  pairs: processPairs,
  // With a second subscriber, that one would have all the deliveries after the first death. Some brokers wait long for a dead one to come back.
  prepare: ({ pair: { broker } }) =>
    role === "relay"
      ? { forMs: 14_000 }
      : { forMs: { kafka: 30_000, nats: 30_000 }[broker as string] ?? 14_000, crew: { writers: 2, relays: 2, subscribers: 1 } },
  inject: (stage) => killAt(stage, role, points),
});

const fresh = async (stage: Stage, duty: (role: WorkerDuty["role"], nth: number) => WorkerDuty): Promise<void> => {
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
  killed(1, "relay killed between the broker's acknowledgement and its settle", "relay", ["before-settle"]),
  killed(2, "relay killed between claim and publish", "relay", ["after-claim"]),
  {
    number: 3,
    title: "relay killed in the middle of a publish: some sent, no acknowledgement read",
    injected:
      "the link to the broker passes some hundred or thousand bytes more, then resets, and a relay is killed when it does, four times; then SIGKILL at the failpoint mid-batch, with half of a batch stored, life after life",
    pairs: processPairs,
    kinds: ["cut and kill", "mid-batch"],
    prepare: () => ({ forMs: 18_000 }),
    async inject(stage) {
      for (let round = 0; round < 4 && stage.on(); round++) {
        await stage.pause(900);
        const relays = stage.names("relay");
        const victim = relays[round % relays.length]!;
        const fault = stage.fault({ fault: "cut and kill", target: victim, copies: stage.window * relays.length });
        const isCut = await cut(stage, stage.broker.link!, "up", 700 + 1_300 * round);
        if (stage.workers.kill(victim) && isCut) stage.once("cut and kill");
        stage.broker.link!.heal();
        fault.ended();
      }
      await killAt(stage, "relay", ["mid-batch"]);
    },
  },
  {
    number: 14,
    title: "all clocks are off by an hour, each its own way",
    injected: "every relay, subscriber and writer runs under a wall clock that is an hour early or late",
    pairs: processPairs,
    async inject(stage) {
      await stage.pause(1_500);
      await fresh(stage, (role, nth) => ({ ...stage.dutyOf(role, nth), skewMs: nth % 2 === 0 ? hour : -hour }));
      stage.once();
    },
  },
  {
    number: 15,
    title: "two relays believe that they own a lane",
    injected: "SIGSTOP for longer than the lease, then SIGCONT, one relay after the other; at least one must have lost its lanes meanwhile",
    pairs: processPairs,
    prepare: () => ({ forMs: 14_000 }),
    inject: (stage) => freeze(stage, [...stage.names("relay"), ...stage.names("relay")], stage.leaseMs * 1.4),
    felt: lanesLost,
  },
  {
    number: 16,
    title: "a relay stands still inside its publish until its lease has run out",
    injected:
      "SIGSTOP at the failpoint mid-batch, with half of a batch stored, and around the publish at after-publish, before-publish and before-renew; SIGCONT after the lease",
    pairs: processPairs,
    kinds: stops,
    prepare: () => ({ forMs: 13_000 }),
    async inject(stage) {
      const { workers } = stage;
      const [victim] = stage.names("relay") as [string];
      for (const at of stops) {
        if (stage.signal.aborted) return;
        workers.arm(victim, [{ at, nth: 2, do: "pause" }]);
        const fault = stage.fault({ fault: `stopped at ${at}`, target: victim, copies: 2 * stage.window });
        workers.kill(victim);
        if (await workers.frozen(victim, 10_000)) {
          stage.once(at);
          await stage.clock.sleep(stage.leaseMs * 1.4);
        }
        workers.thaw(victim);
        workers.arm(victim, []);
        fault.ended();
      }
    },
  },
  {
    number: 17,
    title: "an event that the broker refuses for what it is",
    injected:
      "a wrapper of the sink refuses one aggregate's events as a broker would: five attempts, then DEAD, its followers BLOCKED; then relays without it take over, and an operator redrives what is DEAD",
    pairs: processPairs,
    prepare: () => ({ relay: { retry: { delaysMs: [50, 100, 200, 400] } } }),
    async inject(stage) {
      const name = aggregateName({ aggregateType: typesOf(stage.place)[0]!, aggregateId: "a-1" });
      const fault = stage.fault({ fault: "poison", target: name, copies: 0, scope: { aggregates: [name] } });
      for (const [i, relay] of stage.names("relay").entries()) {
        await stage.workers.drain(relay, 10_000);
        const duty = stage.dutyOf("relay");
        if (duty.role === "relay") await stage.add(`poisoned-relay-${i}`, { ...duty, poison: [name] });
      }
      stage.once();
      await stage.rest();
      // On a slow machine five attempts may take longer than the load.
      let { states } = await stage.ground.store.operator.status();
      for (
        const latest = stage.clock.monotonic() + mostMs;
        states.DEAD === 0 && stage.clock.monotonic() < latest && !stage.signal.aborted;
      ) {
        await stage.clock.sleep(200);
        ({ states } = await stage.ground.store.operator.status());
      }
      stage.note(`DEAD ${states.DEAD}, BLOCKED ${states.BLOCKED} behind it`);
      if (states.DEAD === 0) throw new Error("nothing has died of the poison");
      for (const relay of stage.names("relay").filter((each) => each.startsWith("poisoned"))) {
        await stage.add(`cured-${relay}`, stage.dutyOf("relay"));
        await stage.workers.drain(relay, 10_000);
      }
      fault.ended();
      const { ids } = await stage.ground.store.operator.redrive({}, { who: "nemesis", dryRun: false });
      stage.recorder.write("ok", { op: "operate", action: "redrive", ids });
    },
    felt: nothingDead,
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
    felt: copiesFelt,
    async inject(stage) {
      stage.once();
      await stage.rest();
      for (const nth of [1, 2]) await stage.add(`relay-${nth}`, stage.dutyOf("relay"));
      for (const nth of [1, 2]) await stage.workers.drain(`repeating-relay-${nth}`, 10_000);
      for (const act of copying) stage.recorder.write("ok", act);
    },
  },
  killed(30, "subscriber killed between its commit and its acknowledgement", "subscriber", ["after-effect"]),
  {
    ...killed(31, "subscriber killed between its inbox row and the end of its commit", "subscriber", ["before-commit"]),
    injected:
      "where the database is a server, SIGKILL when the subscriber's COMMIT is on its way there, before its answer, four times; then SIGKILL at the failpoint before-commit, life after life. On SQLite a COMMIT is one call: no signal comes inside it",
    kinds: ({ store }) => (store === "sqlite" ? ["before-commit"] : ["mid-commit", "before-commit"]),
    async inject(stage) {
      if (stage.store.link !== null) await killInCommit(stage);
      await killAt(stage, "subscriber", ["before-commit"]);
    },
  },
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
      "prlimit sets a relay's limit of open files below all that it has open, and the links are reset: no new connection can be had; after 2.5 s the limit is lifted. It must not end of it. Memory is not taken: Node ends a process that gets none at once, which is the death of rows 1 to 3",
    pairs: processPairs,
    felt: filesFelt,
    async inject(stage) {
      for (const name of stage.names("relay")) {
        const pid = stage.workers.all.find((worker) => worker.name === name)?.pid;
        if (pid === null || pid === undefined || !stage.on()) continue;
        const fault = stage.fault({ fault: noFiles, target: name, copies: stage.window * 2 });
        await run("prlimit", ["--pid", String(pid), `--nofile=${standard}:`]);
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
    injected:
      "a relay, a subscriber and a writer killed, and a relay frozen past its lease; of a store or broker that is a server, the link to it cut and black, and itself killed and started again; all of them, shuffled, as long as the load lasts and at least once",
    pairs: allPairs,
    kinds: mixOf,
    prepare: () => ({ forMs: 15_000 }),
    inject: mixed,
  },
];
