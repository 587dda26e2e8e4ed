import { performance } from "node:perf_hooks";
import { play as playRow, type Result } from "../faults/matrix/stage.ts";
import type { Change, Row, Stage } from "../faults/matrix/row.ts";
import { fork } from "../simulation/plan.ts";
import { inject } from "./faults.ts";
import type { Fault, Leg } from "./plan.ts";
import { serversOf } from "./servers.ts";
import { growthIn, watch, type Watched } from "./watch.ts";

/** What became of a leg. */
export interface Played {
  readonly leg: Leg;
  readonly held: boolean;
  readonly failures: Result["failures"];
  readonly counts: Result["counts"];
  readonly pardons: Result["pardons"];
  readonly caused: readonly Fault[];
  readonly restMs: number;
  readonly watched: Watched | null;
  readonly notes: readonly string[];
  /** Where the histories of a leg that did not hold are. */
  readonly folder: string | null;
  readonly seconds: number;
}

const usual = { aggregates: 8, hot: 0.25, pauseMs: 30, sleepMs: 40, bytes: 80, hard: 0.3, large: 0.002 };
const loads = { steady: usual, bursts: usual, hot: { ...usual, hot: 0.9 }, wide: { ...usual, aggregates: 100, hot: 0.02 } } as const;

function changeOf({ options, seconds, store }: Leg, restMs: number): Change {
  const { batch, batchesInFlight, leaseMs, coordination, purge, onPublish, partitions, listen, handlerBatch, concurrency } = options;
  const drops = purge === "yes" || onPublish === "delete";
  const placing = {
    ...(onPublish === "delete" ? { onPublish } : {}),
    ...(partitions === "day" ? { partitions } : {}),
    ...(listen === "yes" ? { listen: true as const } : {}),
  };
  const publishTimeoutMs = leaseMs / 2;
  const at = store.name === "sqlite" ? {} : { placing };
  return {
    ...{ place: at, direct: at, drops, forMs: seconds * 1_000, restMs },
    crew: { writers: options.writers, relays: options.relays, subscribers: options.subscribers },
    relay: {
      ...{ batch, batchesInFlight, coordination, publishTimeoutMs, pollIntervalMs: 50, probeMs: { first: 100, last: 1_000 } },
      // A file has one writer at a time, which does not serve those that wait in order: there, a short lease expires in health.
      leaseMs: store.name === "sqlite" ? Math.max(leaseMs, 5_000) : leaseMs,
      housekeeping: purge === "yes" ? { everyMs: 3_000, retentionMs: 1_000 } : false,
    },
    subscriber: { batch: handlerBatch, concurrency },
    echoes: options.echoes === "yes" ? 0.1 : 0,
    load: { ...loads[options.workload], ...(options.keys === "yes" ? { keyed: 0.2 } : {}) },
    // A machine that does other work too is no broken promise. What waits for ever is found all the same.
    bounds: { latencyMs: 30_000, recoveryMs: 40_000, answerMs: publishTimeoutMs * 0.24 },
  };
}

/** One more writer that does not pause, for a few seconds, again and again. */
async function bursts(stage: Stage, leg: Leg): Promise<void> {
  const random = fork(leg.seed, `leg ${leg.nth} bursts`);
  for (let nth = 1; stage.on(); nth++) {
    await stage.pause(2_000 + random.next() * 5_000);
    if (!stage.on()) return;
    const duty = stage.dutyOf("writer", 100 + nth);
    const name = `writer-burst-${nth}`;
    // A server may be away just now, which is another burst's chance.
    const isThere = await stage
      .add(name, duty.role === "writer" ? { ...duty, load: { ...duty.load, pauseMs: 0 } } : duty)
      .then(() => true)
      .catch(() => false);
    if (!isThere) continue;
    await stage.pause(1_000 + random.next() * 3_000);
    await stage.workers.drain(name, 15_000);
  }
}

export interface Playing {
  /** What workers run. */
  readonly program: string;
  readonly signal: AbortSignal;
  /** How long everything may take to come to rest. */
  readonly restMs?: number;
}

/** Plays a leg on servers of its own. Never rejects: what goes wrong is the result. */
export async function play(leg: Leg, { program, signal, restMs = 180_000 }: Playing): Promise<Played> {
  const began = performance.now();
  const notes: string[] = [];
  const caused: Fault[] = [];
  let watched: Watched | null = null;
  const row: Row = {
    number: 0,
    title: "soak",
    injected: "",
    pairs: [],
    prepare: () => changeOf(leg, restMs),
    async inject(stage) {
      // A leg without faults shows what the load alone does.
      stage.once();
      const watching = watch(stage);
      try {
        await Promise.all([
          inject(stage, leg, (fault) => caused.push(fault)),
          leg.options.workload === "bursts" ? bursts(stage, leg) : null,
          stage.rest(),
        ]);
      } finally {
        watched = await watching.stop();
      }
    },
  };
  const servers = serversOf(leg, (text) => notes.push(text));
  try {
    const pair = { store: leg.store.name, broker: leg.broker.name };
    // Relays and writers draw from the leg's own seed: two legs of one seed are not the same load.
    const seed = Math.floor(fork(leg.seed, `leg ${leg.nth} load`).next() * 2 ** 31);
    const result = await playRow({ row, pair, servers, program, seed, pace: 1, keep: false, signal });
    const growth = growthIn((watched as Watched | null)?.lives ?? new Map<string, never>());
    const failures = [...result.failures, ...growth.map((why) => ({ invariant: "resources" as const, verdict: "broken", why }))];
    const folder = result.notes.find((note) => note.startsWith(historiesAt))?.slice(historiesAt.length) ?? null;
    return {
      ...{ leg, failures, caused, watched, folder, held: failures.length === 0, counts: result.counts, pardons: result.pardons },
      ...{ restMs: result.restMs, notes: [...notes, ...result.notes.filter((note) => !note.startsWith(historiesAt))] },
      seconds: Math.round((performance.now() - began) / 1_000),
    };
  } finally {
    await servers[Symbol.asyncDispose]();
  }
}

const historiesAt = "histories: ";
