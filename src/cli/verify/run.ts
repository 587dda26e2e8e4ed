import { appendFileSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Clock } from "../../core/clock.ts";
import { asError } from "../../core/errors.ts";
import type { Random } from "../../core/random.ts";
import { check, type Judgement } from "../../verify/check.ts";
import { createRecorder, readHistory, type Entry, type Recorder, type Scope } from "../../verify/history.ts";
import type { Bounds } from "../../verify/isolation.ts";
import type { Reads, Sample } from "../../verify/reads.ts";
import { deadTopicOf, topicsOf, type Ground } from "./ground.ts";
import { openGround } from "./grounds.ts";
import { readBroker, readerName, readStore, type ReadTopic, type StoreReads } from "./reads.ts";
import { sharedNow } from "./recorded.ts";
import { openRunBroker } from "./run-broker.ts";
import type { Load, Place, RelaySettings } from "./task.ts";
import { aggregateName, aggregatesOf } from "./workload.ts";
import { createWorkers, type Duty, type Workers } from "./workers.ts";

export interface RunOptions {
  /** As the workers reach the servers. */
  readonly place: Place;
  /** As the judge does: nothing that is broken on purpose is in between. A fail-over may change it. */
  readonly direct: () => Place;
  /** Where histories and logs go. */
  readonly folder: string;
  readonly program: string;
  readonly crew: { readonly writers: number; readonly relays: number; readonly subscribers: number };
  readonly relay: RelaySettings & { readonly batch: number; readonly batchesInFlight: number; readonly leaseMs: number };
  readonly seatMs: number;
  readonly load: Load;
  readonly seed: number;
  readonly clock: Clock;
  readonly random: Random;
  /** What is in the broker at the end. */
  readonly read: ReadTopic;
  /** Called once tables and topics are there, and before anybody works. */
  before?(scene: Scene): Promise<void>;
  /** Breaks things for as long as the load lasts, which is as long as this takes. */
  nemesis(scene: Scene): Promise<void>;
  /** Makes whole whatever may still be broken. */
  heal(): Promise<void> | void;
  /** How long everything may take to come to rest after that. */
  readonly restMs: number;
  /** Effects that the store has forgotten, and that nothing brings back. */
  readonly forgets?: boolean;
  readonly bounds: Bounds;
  /** Limits of what is measured; a death that nobody asked for counts as one. */
  readonly limits?: { readonly rssMiB?: number; readonly files?: number; readonly deaths?: number };
  readonly canaries: readonly string[];
  readonly phase?: (name: Phase) => void;
  readonly signal?: AbortSignal;
}

export type Phase = "setup" | "load" | "heal" | "drain" | "reopen" | "read" | "judge";

/** A run as whoever breaks things in it sees it. */
export interface Scene {
  readonly place: Place;
  readonly ground: Ground;
  readonly workers: Workers;
  readonly clock: Clock;
  readonly random: Random;
  /** The names of those who are at work. */
  names(role: Duty["role"]): readonly string[];
  /** How many copies one fault of one relay may cause. */
  readonly window: number;
  readonly recorder: Recorder;
  /** Written down before it happens; `ended` when it is over. */
  fault(fault: Fault): { ended(): void };
  /** A relay, writer or subscriber more. */
  add(name: string, duty: Duty): Promise<void>;
  dutyOf(role: Duty["role"], nth?: number): Duty;
  /** Aborts when the run is called off. */
  readonly signal: AbortSignal;
}

export interface Fault {
  readonly fault: string;
  readonly target: string;
  readonly copies: number | null;
  readonly scope?: Scope;
}

export interface RunResult {
  readonly judgement: Judgement;
  readonly history: readonly Entry[];
  readonly reads: Reads;
  readonly counts: { readonly events: number; readonly published: number; readonly effects: number; readonly copies: number };
  readonly deaths: Workers["deaths"];
  /** It came to rest before the deadline. */
  readonly rested: boolean;
  readonly restMs: number;
}

export const consumers = ["shop"] as const;
const readers = [...consumers, readerName];
const startMs = 400;

export async function run(options: RunOptions): Promise<RunResult> {
  const { place, folder, clock, phase = () => undefined } = options;
  const signal = options.signal ?? new AbortController().signal;
  const topics = topicsOf(place);
  const aggregates = aggregatesOf(place, options.load).map(aggregateName);
  const recorder = createRecorder("nemesis", sharedNow, (line) => appendFileSync(join(folder, "nemesis.jsonl"), line));

  phase("setup");
  await using ground = await openGround(options.direct());
  await ground.prepare(aggregates, consumers);
  await provision(options.direct(), topics);
  await using workers = createWorkers({ program: options.program, folder, clock });
  const exit = (): void => workers.killAll();
  process.once("exit", exit);
  try {
    const scene = sceneOf(options, { ground, workers, recorder, signal });
    await options.before?.(scene);
    await startCrew(options, scene);

    phase("load");
    await clock.sleep(startMs, signal);
    await options.nemesis(scene);
    signal.throwIfAborted();

    phase("heal");
    await options.heal();
    recorder.write("ok", { op: "fault", fault: "heal", target: "everything", copies: 0, scope: "all" });
    await Promise.all(scene.names("writer").map((name) => workers.drain(name, 15_000)));

    phase("drain");
    const began = clock.monotonic();
    const rested = await rest(options, signal);
    const restMs = clock.monotonic() - began;

    phase("reopen");
    await reopen(options, scene);
    const again = await rest(options, signal, 10_000);
    await drainAll(scene);
    signal.throwIfAborted();

    phase("read");
    const reads = await readAll(options, workers, topics);
    phase("judge");
    const history = readHistory(filesOf(folder, ".jsonl"));
    const judgement = check(history, reads, options.bounds);
    return { judgement, history, reads, counts: countsOf(reads), deaths: [...workers.deaths], rested: rested && again, restMs };
  } finally {
    process.off("exit", exit);
  }
}

/** Takes everything of the run away again: tables, topics, files. Says what could not be. */
export async function remove(place: Place): Promise<readonly string[]> {
  const failures: string[] = [];
  const attempt = async (work: () => Promise<void>): Promise<void> =>
    work().catch((error: unknown) => void failures.push(asError(error).message));
  await attempt(async () => {
    await using ground = await openGround(place);
    await ground.remove();
  });
  await attempt(async () => {
    await using opened = openRunBroker(place);
    const topics = topicsOf(place);
    await opened.remove([...topics, ...topics.map(deadTopicOf)], readers);
  });
  return failures;
}

async function provision(place: Place, topics: readonly string[]): Promise<void> {
  await using opened = openRunBroker(place);
  await opened.provision([...topics, ...topics.map(deadTopicOf)], readers);
}

type Parts = Pick<Scene, "ground" | "workers" | "signal" | "recorder">;

function sceneOf(options: RunOptions, { ground, workers, recorder, signal }: Parts): Scene {
  const { place, clock, random, relay, load, seed } = options;
  const [canary = ""] = options.canaries;
  const dutyOf = (role: Duty["role"], nth = 1): Duty => {
    switch (role) {
      case "writer":
        return { role, place, load, canary, seed: seed * 1_000 + nth };
      case "relay":
        return { role, place, options: relay };
      case "subscriber":
        return { role, place, consumer: consumers[(nth - 1) % consumers.length]!, seatMs: options.seatMs };
    }
  };
  return {
    ...{ place, ground, workers, clock, random, signal, recorder, dutyOf },
    window: relay.batch * relay.batchesInFlight,
    names: (role) => workers.all.filter((worker) => worker.role === role).map(({ name }) => name),
    fault({ fault, target, copies, scope = "all" }) {
      const act = { op: "fault", fault, target, copies, scope } as const;
      recorder.write("invoked", act);
      return { ended: () => recorder.write("ok", act) };
    },
    add: (name, duty) => workers.start(name, duty),
  };
}

async function startCrew({ crew }: RunOptions, { workers, dutyOf }: Scene): Promise<void> {
  const start = (role: Duty["role"], count: number): Promise<void>[] =>
    Array.from({ length: count }, (_, i) => workers.start(`${role}-${i + 1}`, dutyOf(role, i + 1)));
  await Promise.all([...start("relay", crew.relays), ...start("subscriber", crew.subscribers)]);
  await Promise.all(start("writer", crew.writers));
}

/** Until everything that may be published is, and has had its effect. */
async function rest({ direct, clock, restMs, forgets = false }: RunOptions, signal: AbortSignal, withinMs = restMs): Promise<boolean> {
  await using ground = await openGround(direct());
  const { ask, tables } = ground;
  const count = async (sql: string): Promise<number> => Number(Object.values((await ask(sql))[0] ?? {})[0] ?? 0);
  const open = `SELECT count(*) AS n FROM ${tables.outboxEvents} WHERE state IN ('PENDING', 'PUBLISHING', 'FAILED')`;
  // Of what an operator has to look at, nothing comes by itself.
  const blocked = `SELECT count(*) AS n FROM ${tables.outboxEvents} e WHERE state = 'BLOCKED' AND NOT EXISTS (
    SELECT 1 FROM ${tables.outboxEvents} d WHERE d.state = 'DEAD' AND d.aggregate_type = e.aggregate_type AND d.aggregate_id = e.aggregate_id)`;
  const due = `SELECT count(*) AS n FROM ${tables.outboxEvents} WHERE state = 'PUBLISHED'`;
  const done = `SELECT count(*) AS n FROM ${tables.effects}`;
  let before = -1;
  for (
    const until = clock.monotonic() + withinMs;
    clock.monotonic() < until && !signal.aborted;
    await clock.sleep(forgets ? 3_000 : 250, signal)
  ) {
    try {
      if ((await count(open)) > 0 || (await count(blocked)) > 0) continue;
      const now = await count(done);
      if (now >= (await count(due)) * consumers.length || (forgets && now === before)) return true;
      before = now;
    } catch {
      // It may be about to come back.
    }
  }
  return false;
}

/** New processes in place of all: whatever one of them kept to itself must not matter. */
async function reopen(options: RunOptions, scene: Scene): Promise<void> {
  await drainAll(scene);
  const { workers, dutyOf } = scene;
  await Promise.all([workers.start("last-relay", dutyOf("relay")), workers.start("last-subscriber", dutyOf("subscriber"))]);
  await options.clock.sleep(1_000);
}

async function drainAll({ workers }: Scene): Promise<void> {
  await Promise.all(workers.all.map(({ name }) => workers.drain(name, 10_000)));
}

/** What cannot be read is null, and no verdict passes over it. */
async function readAll(options: RunOptions, workers: Workers, topics: readonly string[]): Promise<Reads> {
  const nothing: StoreReads = { written: null, effects: null, outbox: null, status: null };
  await using ground = await openGround(options.direct());
  const store = await readStore(ground).catch(() => nothing);
  const broker = await readBroker(options.read, topics).catch(() => ({ broker: null, letters: null }));
  const { rssMiB = 400, files = 200, deaths = 0 } = options.limits ?? {};
  const samples: Sample[] = [
    { what: "the memory of a worker in MiB", value: Math.round(workers.peaks.rss), bound: rssMiB },
    { what: "open files of a worker", value: workers.peaks.files, bound: files },
    { what: "deaths that nobody asked for", value: workers.deaths.length, bound: deaths },
  ];
  return {
    ...store,
    ...broker,
    consumers: consumers.map((consumer) => ({ consumer, topics })),
    samples,
    outputs: [
      ...[...filesOf(options.folder, ".log"), ...filesOf(options.folder, ".err")].map(({ name, text }) => ({ where: name, text })),
      { where: "last words", text: JSON.stringify(workers.deaths) },
    ],
    canaries: options.canaries,
  };
}

function filesOf(folder: string, ending: string): readonly { readonly name: string; readonly text: string }[] {
  return readdirSync(folder)
    .filter((name) => name.endsWith(ending))
    .map((name) => ({ name, text: readFileSync(join(folder, name), "utf8") }));
}

function countsOf({ written, broker, effects }: Reads): RunResult["counts"] {
  const published = new Set(broker?.map(({ id }) => id)).size;
  return {
    events: written?.length ?? 0,
    published,
    effects: effects?.length ?? 0,
    copies: (broker?.length ?? 0) - published,
  };
}
