import { appendFileSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { sharedNow, type Clock } from "../../core/clock.ts";
import { asError, isWaybillError } from "../../core/errors.ts";
import type { Random } from "../../core/random.ts";
import { never } from "../../core/time.ts";
import { check, type Judgement } from "../judge/check.ts";
import { createRecorder, readHistory, type Entry, type Recorder, type Scope } from "../judge/history.ts";
import type { TimeBounds } from "../judge/isolation.ts";
import type { Reads } from "../judge/reads.ts";
import { openRunBroker, patient, type Access } from "./access.ts";
import { consumersOf, deadTopicOf, openGround, readerOf, topicsOf, type Ground } from "./ground.ts";
import { samplesOf, type Limits } from "../crew/measure.ts";
import { readBroker, readStore, type ReadTopic, type StoreReads } from "./reads.ts";
import { rest, stuck, waitsIn } from "./rest.ts";
import type { Load, RunPlace, RelaySettings, SubscriberSettings } from "./task.ts";
import { aggregateName, aggregatesOf } from "./workload.ts";
import { createWorkers, type WorkerDuty, type Workers } from "./workers.ts";

export interface RunOptions {
  readonly access: Access;
  /** As the workers reach the servers. */
  readonly place: RunPlace;
  /** As the judge reaches them: without the network that can be broken. A fail-over may change it. */
  readonly direct: () => RunPlace;
  /** Where histories and logs go. */
  readonly folder: string;
  readonly program: string;
  readonly crew: { readonly writers: number; readonly relays: number; readonly subscribers: number };
  readonly relay: RelaySettings & { readonly batch: number; readonly batchesInFlight: number; readonly leaseMs: number };
  readonly seatMs: number;
  readonly subscriber?: SubscriberSettings;
  /** The share of events whose handler adds one of its own. */
  readonly echoes?: number;
  readonly load: Load;
  readonly seed: number;
  readonly clock: Clock;
  readonly random: Random;
  /** Reads what is in the broker at the end. */
  readonly read: ReadTopic;
  /** Called before the run creates anything there, once the server can be reached. */
  making?(what: "store" | "broker"): void;
  /** Called once tables and topics exist, and before any worker starts. */
  before?(scene: RunScene): Promise<void>;
  /** Causes the faults. The load lasts for as long as this takes. */
  nemesis(scene: RunScene): Promise<void>;
  /** Heals everything that may still be broken. */
  heal(): Promise<void> | void;
  /** How long everything may take to come to rest after that. */
  readonly restMs: number;
  /** The store may have forgotten effects, which nothing brings back. */
  readonly forgets?: boolean;
  /** Published rows may leave the outbox before the end. */
  readonly drops?: boolean;
  readonly bounds: Omit<TimeBounds, "lingerMs">;
  /** Limits of what is measured. */
  readonly limits?: Limits;
  readonly canaries: readonly string[];
  /** Secrets that are also words of our own output. */
  readonly commonCanaries?: readonly string[];
  /** What the caller itself prints about the run: no canary may be in that either. */
  said?(result: RunResult): NonNullable<Reads["outputs"]>;
  readonly phase?: (name: Phase) => void;
  readonly signal?: AbortSignal;
}

type Phase = "setup" | "load" | "heal" | "drain" | "reopen" | "read" | "judge";

/** A run as the nemesis sees it. */
export interface RunScene {
  readonly place: RunPlace;
  readonly ground: Ground;
  readonly workers: Workers;
  readonly clock: Clock;
  readonly random: Random;
  /** The names of the workers with this role. */
  names(role: WorkerDuty["role"]): readonly string[];
  /** How many copies one fault of one relay may cause. */
  readonly window: number;
  readonly recorder: Recorder;
  /** Records a fault before it happens. Its `ended` is called when the fault is over. */
  fault(fault: PlannedFault): { ended(): void };
  /** Starts one more relay, writer or subscriber. */
  add(name: string, duty: WorkerDuty): Promise<unknown>;
  dutyOf(role: WorkerDuty["role"], nth?: number): WorkerDuty;
  /** Aborts when the run is called off. */
  readonly signal: AbortSignal;
}

export interface PlannedFault {
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
  /** It came to rest before the deadline; otherwise the judgement says that something was stuck. */
  readonly rested: boolean;
  readonly restMs: number;
  /** False where the system does not report open files. */
  readonly measured: boolean;
  /** What could not be read or begun at the end, and why. */
  readonly unread: readonly string[];
}

/** How long new processes have to bring everything to rest. */
const againMs = 10_000;
/** How long subscribers of a run that is called off may take to end. */
const leaveMs = 7_000;
const startMs = 400;

export async function run(options: RunOptions): Promise<RunResult> {
  const { access, place, folder, clock, phase = () => undefined } = options;
  const signal = options.signal ?? never;
  const consumers = consumersOf(place);
  const resting = { ...options, consumers, forgets: options.forgets ?? false, drops: options.drops ?? false };
  const aggregates = aggregatesOf(place, options.load).map(aggregateName);
  const recorder = createRecorder("nemesis", sharedNow, (line) => appendFileSync(join(folder, "nemesis.jsonl"), line));

  phase("setup");
  await vacant(access, options.direct());
  await using ground = await openGround(access, options.direct());
  await ground.store.schema.check().catch((error: unknown) => {
    if (!isWaybillError(error, "NOT_MIGRATED")) throw error;
  });
  options.making?.("store");
  await ground.prepare(aggregates, consumers);
  await provision(access, options.direct(), signal, () => options.making?.("broker"));
  await using workers = createWorkers({ program: options.program, folder, clock, signal });
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
    const rested = await rest(resting, options.restMs, signal).catch(() => false);
    const restMs = clock.monotonic() - began;
    signal.throwIfAborted();
    const before = rested ? null : await waitsIn(resting, restMs, "all was whole again");

    phase("reopen");
    // If a server is gone for good, new processes cannot begin. A run that says so is worth more than none.
    const refused = await reopen(options, scene).then(
      () => null,
      (error: unknown) => `New processes could not begin: ${asError(error).message}`,
    );
    const again = refused === null && (await rest(resting, againMs, signal).catch(() => false));
    const after = refused === null ? "new processes had taken over" : "new ones were to begin";
    const waits = before ?? (again ? null : await waitsIn(resting, againMs, after));
    await drainAll(scene);
    signal.throwIfAborted();

    phase("read");
    const { reads, unread } = await readAll(options, workers);
    signal.throwIfAborted();
    phase("judge");
    const history = readHistory(filesOf(folder, ".jsonl"));
    const { leaseMs, publishTimeoutMs = leaseMs } = options.relay;
    const bounds = { ...options.bounds, lingerMs: leaseMs + publishTimeoutMs };
    const judge = (of: Reads): Judgement => stuck(check(history, of, bounds), waits);
    const result: RunResult = {
      ...{ judgement: judge(reads), history, reads, counts: countsOf(reads), deaths: [...workers.deaths] },
      ...{ rested: waits === null, restMs, measured: workers.peaks?.files !== null },
      unread: refused === null ? unread : [refused, ...unread],
    };
    const said = options.said?.(result) ?? [];
    return said.length === 0 ? result : { ...result, judgement: judge({ ...reads, outputs: [...(reads.outputs ?? []), ...said] }) };
  } finally {
    // A member that does not leave its consumer group stays in it for a long time, and keeps the group from being removed.
    if (signal.aborted)
      await Promise.all(workers.all.filter(({ role }) => role === "subscriber").map(({ name }) => workers.drain(name, leaveMs)));
    process.off("exit", exit);
  }
}

/** Removes everything that the run may have created: tables, topics, files. Returns what could not be removed. */
export async function remove(
  access: Access,
  place: RunPlace,
  made: ReadonlySet<"store" | "broker"> = new Set(["store", "broker"]),
): Promise<readonly string[]> {
  const failures: string[] = [];
  const attempt = async (of: "store" | "broker", work: () => Promise<void>): Promise<void> =>
    (made.has(of) ? work() : Promise.resolve()).catch((error: unknown) => void failures.push(asError(error).message));
  await attempt("store", async () => {
    await using ground = await openGround(access, place);
    await ground.remove();
  });
  await attempt("broker", async () => {
    await using opened = openRunBroker(access, place, patient);
    const topics = allTopicsOf(place);
    await opened.remove(topics, [...consumersOf(place), ...topics.map(readerOf)]);
  });
  return failures;
}

async function vacant(access: Access, place: RunPlace): Promise<void> {
  await using opened = openRunBroker(access, place, patient);
  await opened.vacant?.(allTopicsOf(place));
}

async function provision(access: Access, place: RunPlace, signal: AbortSignal, making: () => void): Promise<void> {
  await using opened = openRunBroker(access, place, patient);
  await opened.broker.connect(signal);
  making();
  await opened.provision(allTopicsOf(place), consumersOf(place));
  for (const topic of allTopicsOf(place)) await opened.provision([topic], [readerOf(topic)]);
}

const allTopicsOf = (place: RunPlace): readonly string[] => topicsOf(place).flatMap((topic) => [topic, deadTopicOf(topic)]);

type Parts = Pick<RunScene, "ground" | "workers" | "signal" | "recorder">;

function sceneOf(options: RunOptions, { ground, workers, recorder, signal }: Parts): RunScene {
  const { place, clock, random, relay, load, seed, subscriber, echoes } = options;
  const [canary = ""] = options.canaries;
  const consumers = consumersOf(place);
  const more = { ...(subscriber === undefined ? {} : { options: subscriber }), ...(echoes === undefined ? {} : { echoes }) };
  const dutyOf = (role: WorkerDuty["role"], nth = 1): WorkerDuty => {
    switch (role) {
      case "writer":
        return { role, place, load, canary, seed: seed * 1_000 + nth };
      case "relay":
        return { role, place, options: relay };
      case "subscriber":
        return { role, place, consumer: consumers[(nth - 1) % consumers.length]!, seatMs: options.seatMs, ...more };
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

async function startCrew({ crew }: RunOptions, { workers, dutyOf }: RunScene): Promise<void> {
  const start = (role: WorkerDuty["role"], count: number): Promise<unknown>[] =>
    Array.from({ length: count }, (_, i) => workers.start(`${role}-${i + 1}`, dutyOf(role, i + 1)));
  await Promise.all([...start("relay", crew.relays), ...start("subscriber", crew.subscribers)]);
  await Promise.all(start("writer", crew.writers));
}

/** Replaces all processes: what one of them kept only in memory must not matter. */
async function reopen(options: RunOptions, scene: RunScene): Promise<void> {
  await drainAll(scene);
  const { workers, dutyOf } = scene;
  await Promise.all([workers.start("last-relay", dutyOf("relay")), workers.start("last-subscriber", dutyOf("subscriber"))]);
  await options.clock.sleep(1_000);
}

async function drainAll({ workers }: RunScene): Promise<void> {
  await Promise.all(workers.all.map(({ name }) => workers.drain(name, 10_000)));
}

/** What cannot be read is null, and no verdict ignores that. */
async function readAll(options: RunOptions, workers: Workers): Promise<{ readonly reads: Reads; readonly unread: RunResult["unread"] }> {
  const [topics, consumers] = [topicsOf(options.place), consumersOf(options.place)];
  const nothing: StoreReads = { written: null, effects: null, outbox: null, status: null };
  const unread: string[] = [];
  const orElse =
    <T>(otherwise: T, what: string) =>
    (error: unknown): T => {
      unread.push(`The ${what} could not be read: ${asError(error).message}`);
      return otherwise;
    };
  const readWhole = async (): Promise<StoreReads> => {
    await using ground = await openGround(options.access, options.direct());
    return await readStore(ground);
  };
  const store = await readWhole().catch(orElse(nothing, "store"));
  const broker = await readBroker(options.read, { topics, consumers, store }).catch(orElse({ broker: null, letters: null }, "broker"));
  const reads: Reads = {
    ...store,
    ...broker,
    consumers: consumers.map((consumer) => ({ consumer, topics })),
    samples: samplesOf(workers.peaks, workers.deaths.length, options.limits),
    outputs: [
      ...[...filesOf(options.folder, ".log"), ...filesOf(options.folder, ".err")].map(({ name, text }) => ({ where: name, text })),
      { where: "last words", text: JSON.stringify(workers.deaths) },
      { where: "the status", text: JSON.stringify(store.status) },
    ],
    canaries: options.canaries,
    commonCanaries: options.commonCanaries ?? [],
  };
  return { reads, unread };
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
