import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock as clock, type Clock } from "../../../src/core/clock.ts";
import { asError } from "../../../src/core/errors.ts";
import { seededRandom } from "../../../src/core/random.ts";
import { accessTo } from "../../../src/cli/url.ts";
import { deadTopicOf, topicsOf } from "../../../src/proof/run/ground.ts";
import { remove, run, type RunResult, type RunScene } from "../../../src/proof/run/run.ts";
import type { RunPlace } from "../../../src/proof/run/task.ts";
import type { Invariant } from "../../../src/proof/judge/verdict.ts";
import type { BrokerName, Pair, StoreName } from "./pairs.ts";
import type { Change, Row, Stage } from "./row.ts";
import { startBroker, startStore, whole, type Reached, type ReachedBroker } from "./servers.ts";

/** What became of one row on one pair. */
export interface Result {
  readonly row: number;
  readonly title: string;
  readonly store: StoreName;
  readonly broker: BrokerName;
  /** What was injected and how often; or why it could not be. */
  readonly injected: string;
  readonly times: number;
  /** How often each kind was, where the row has several. */
  readonly kinds?: Readonly<Record<string, number>>;
  readonly cannot: string | null;
  readonly held: boolean;
  /** Those that do not hold, with the smallest example or what is not known. */
  readonly failures: readonly { readonly invariant: Invariant | "run"; readonly verdict: string; readonly why: string }[];
  /** What looked like a broken promise and was legal. */
  readonly pardons: Readonly<Record<string, number>>;
  readonly counts: RunResult["counts"] | null;
  readonly restMs: number;
  readonly seed: number;
  readonly seconds: number;
  readonly notes: readonly string[];
  readonly at: string;
  /** Earlier runs of the same code here that did not hold. */
  readonly before?: readonly { readonly seed: number; readonly why: string }[];
  /** Of the code that was tried; told when the result is kept. */
  readonly hash?: string;
}

/** Servers that are started when they are first needed, and serve all that follows. */
export interface Servers extends AsyncDisposable {
  store(name: StoreName): Promise<Reached>;
  broker(name: BrokerName): Promise<ReachedBroker>;
  /** Ends it; whoever needs it next gets a new one. */
  drop(name: StoreName | BrokerName): Promise<void>;
}

export function createServers(): Servers {
  const started = new Map<string, Promise<Reached>>();
  const get = <T extends Reached>(name: string, start: () => Promise<T>): Promise<T> => {
    let server = started.get(name) as Promise<T> | undefined;
    if (server === undefined) started.set(name, (server = start()));
    return server;
  };
  const drop = async (name: string): Promise<void> => {
    const server = started.get(name);
    started.delete(name);
    await (await server?.catch(() => null))?.[Symbol.asyncDispose]();
  };
  return {
    store: (name) => get(name, () => startStore(name)),
    broker: (name) => get(name, () => startBroker(name)),
    drop,
    async [Symbol.asyncDispose]() {
      await Promise.all([...started.keys()].map(drop));
    },
  };
}

/**
 * A file has one writer at a time, and who waits for it longest does not come first: on a busy machine a relay may not get there within two
 * seconds, which costs copies as docs/promises.md says, and is not what is asked here.
 */
const leaseMsOf = (store: StoreName): number => (store === "sqlite" ? 5_000 : 3_000);
const relayOf = (leaseMs: number) => ({
  ...{ batch: 20, batchesInFlight: 2, leaseMs, publishTimeoutMs: leaseMs / 2, pollIntervalMs: 30, housekeeping: false as const },
  probeMs: { first: 100, last: 500 },
});
const load = { aggregates: 8, hot: 0.25, pauseMs: 12, sleepMs: 40, bytes: 80, hard: 0.3, large: 0.002 };

interface Play {
  readonly row: Row;
  readonly pair: Pair;
  readonly servers: Servers;
  /** What workers run. */
  readonly program: string;
  readonly seed: number;
  /** Every run's load is made longer or shorter by this. */
  readonly pace: number;
  /** Keeps the histories, and says where. */
  readonly keep: boolean;
  /** Calls the run off; what it has made is put away all the same. */
  readonly signal?: AbortSignal;
}

let runs = 0;

/** One row on one pair of servers. Never rejects: what goes wrong is the result. */
export async function play({
  row,
  pair,
  servers,
  program,
  seed,
  pace,
  keep,
  signal = new AbortController().signal,
}: Play): Promise<Result> {
  const began = clock.monotonic();
  const notes: string[] = [];
  let times = 0;
  const declared = typeof row.kinds === "function" ? row.kinds(pair) : (row.kinds ?? []);
  const kinds: Record<string, number> = Object.fromEntries(declared.map((kind) => [kind, 0]));
  const common = { row: row.number, title: row.title, ...pair, injected: row.injected, seed, at: new Date().toISOString() };
  const cannot = row.cannot?.[pair.broker] ?? row.cannot?.[pair.store] ?? null;
  const ended = (): Pick<Result, "seconds" | "notes" | "times" | "kinds"> => ({
    seconds: Math.round((clock.monotonic() - began) / 1_000),
    notes,
    times,
    ...(Object.keys(kinds).length === 0 ? {} : { kinds }),
  });
  const nothing = { held: false, failures: [], pardons: {}, counts: null, restMs: 0 } as const;
  if (cannot !== null) return { ...common, ...nothing, ...ended(), cannot };

  const folder = mkdtempSync(join(tmpdir(), "waybill-faults-"));
  const name = `verify_${process.pid}_${(runs += 1)}`;
  let change: Change = {};
  try {
    const [sharedStore, sharedBroker] = [await servers.store(pair.store), await servers.broker(pair.broker)];
    change = (await row.prepare?.({ pair, store: sharedStore, broker: sharedBroker, run: name })) ?? {};
    signal.throwIfAborted();
    const [store, broker] = [change.store ?? sharedStore, change.broker ?? sharedBroker];
    for (const server of [store, broker]) await whole(server);
    const place: RunPlace = { store: store.linked, broker: broker.linked, run: name, ...change.place };
    let direct: RunPlace = { store: store.url, broker: broker.url, run: name, ...change.direct };
    const forMs = (change.forMs ?? 9_000) * pace;
    const relay = { ...relayOf(leaseMsOf(pair.store)), ...change.relay };
    const { leaseMs } = relay;
    let until = Infinity;
    const sleep: Clock["sleep"] = (ms, or = signal) => clock.sleep(ms, or);
    const stageOf = (scene: RunScene): Stage => {
      const left = (): number => (signal.aborted ? 0 : Math.max(0, until - clock.monotonic()));
      return {
        ...scene,
        ...{ pair, store, broker, forMs, leaseMs, folder, program, clock: { ...clock, sleep } },
        once(kind) {
          times += 1;
          if (kind !== undefined) kinds[kind] = (kinds[kind] ?? 0) + 1;
        },
        note: (text) => void notes.push(text),
        move: (to) => void (direct = { ...direct, ...to }),
        on: () => left() > 0,
        pause: (ms) => sleep(Math.min(ms, left())),
        rest: () => sleep(left()),
      };
    };
    const tapped = topicsOf(place).flatMap((topic) => [topic, deadTopicOf(topic)]);
    const result = await run({
      ...{ access: accessTo(), place, direct: () => direct, folder, program, clock, seed, signal, random: seededRandom(seed) },
      crew: change.crew ?? { writers: 2, relays: 2, subscribers: 2 },
      relay,
      seatMs: leaseMs,
      load: { ...load, ...change.load },
      read: (topic) => broker.read(name, topic),
      async before(scene) {
        await broker.tap(name, tapped);
        await row.before?.(stageOf(scene));
      },
      async nemesis(scene) {
        until = clock.monotonic() + forMs;
        const stage = stageOf(scene);
        await row.inject(stage);
        await stage.rest();
      },
      async heal() {
        for (const server of [store, broker]) await whole(server);
      },
      restMs: change.restMs ?? 60_000,
      ...(change.forgets === undefined ? {} : { forgets: change.forgets }),
      ...(change.drops === undefined ? {} : { drops: change.drops }),
      ...(change.subscriber === undefined ? {} : { subscriber: change.subscriber }),
      ...(change.echoes === undefined ? {} : { echoes: change.echoes }),
      bounds: { latencyMs: 8_000, recoveryMs: 15_000, ...change.bounds },
      ...(change.limits === undefined ? {} : { limits: change.limits }),
      canaries: ["canary-7f3a9c51", ...(change.canaries ?? [])],
    });
    for (const { worker, words } of result.deaths.slice(0, 5)) notes.push(`${worker} died: ${words}`);
    const { failures, ...verdict } = judged(result, times);
    for (const [kind, often] of Object.entries(kinds)) if (often === 0) failures.push(failed(`${kind} was never injected`));
    const unfelt = row.felt?.(result) ?? null;
    if (unfelt !== null) failures.push(failed(unfelt));
    failures.push(...(await remove(accessTo(), direct)).map((why) => failed(`something could not be removed: ${why}`)));
    const disposing = change.dispose;
    change = { ...change, dispose: undefined };
    await disposing?.();
    const held = failures.length === 0;
    if (keep || !held) notes.push(`histories: ${folder}`);
    else rmSync(folder, { recursive: true, force: true });
    return { ...common, cannot: null, ...verdict, held, failures, ...ended() };
  } catch (error) {
    const failures = [failed(asError(error).stack ?? asError(error).message)];
    // What a failed run leaves behind is not trusted, and goes with its servers.
    for (const away of [change.dispose, () => servers.drop(pair.store), () => servers.drop(pair.broker)])
      await away?.().catch((why: unknown) => void failures.push(failed(`something could not be removed: ${asError(why).message}`)));
    if (signal.aborted) rmSync(folder, { recursive: true, force: true });
    else notes.push(`histories: ${folder}`);
    return { ...common, ...nothing, ...ended(), failures, cannot: null };
  }
}

type Failure = Result["failures"][number];
const failed = (why: string): Failure => ({ invariant: "run", verdict: "failed", why });

function judged(
  { judgement, counts, restMs, rested }: RunResult,
  times: number,
): { readonly failures: Failure[] } & Pick<Result, "pardons" | "counts" | "restMs"> {
  const failures: Failure[] = [];
  const pardons: Record<string, number> = {};
  for (const verdict of judgement.verdicts) {
    const { invariant } = verdict;
    if (verdict.verdict === "broken")
      failures.push({ invariant, verdict: "broken", why: `${verdict.times} times; ${verdict.example.text}` });
    else if (verdict.verdict === "unknown") failures.push({ invariant, verdict: "unknown", why: verdict.reason });
    else for (const [why, often] of verdict.pardons) pardons[why] = (pardons[why] ?? 0) + often;
  }
  // A row that injected nothing has shown nothing.
  if (times === 0) failures.push(failed("nothing was injected"));
  if (!rested) failures.push(failed(`it did not come to rest within ${Math.round(restMs)} ms`));
  return { failures, pardons, counts, restMs: Math.round(restMs) };
}
