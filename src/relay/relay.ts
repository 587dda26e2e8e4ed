import type { Outcome } from "../contracts/outbox-store.ts";
import { agesOf } from "../core/ages.ts";
import type { Clock } from "../core/clock.ts";
import { asError, isWaybillError, WaybillError } from "../core/errors.ts";
import { idsFor, type Observe, relayTroubles } from "../core/path-events.ts";
import { alarm, follow, type Follower, onAbort, persist, withDeadline } from "../core/time.ts";
import { createService, type ServiceRun, type Service } from "../core/service.ts";
import { createWake } from "../core/wake.ts";
import { createProgress } from "../core/progress.ts";
import { createBreaker } from "./breaker.ts";
import { createCrowd } from "./crowd.ts";
import { watchDestinations } from "./destinations.ts";
import type { FedWindow } from "./feed.ts";
import { createOrder } from "./order.ts";
import type { Concluded, Parcel } from "./parcel.ts";
import type { RelayParts } from "./parts.ts";
import { createPublisher } from "./publish.ts";
import { wholly } from "../core/reason.ts";

/** What one `runOnce` did. */
export interface OnceReport {
  readonly published: number;
  readonly failed: number;
  readonly dead: number;
  /** Given back because their destination is broken. */
  readonly held: number;
}

export interface Relay extends Service {
  /** Publishes all that is due now, hands its lanes back and ends: for cron. */
  runOnce(): Promise<OnceReport>;
}

export function createRelayService(parts: RelayParts): Relay {
  const counts = { published: 0, failed: 0, dead: 0, held: 0 };
  let once = false;
  const service = createService((run) => bounded(parts, run, (own) => relay(parts, own, once, (concluded) => count(counts, concluded))));
  return {
    ...service,
    async runOnce() {
      once = true;
      await service.start();
      await service.stopped;
      return counts;
    },
  };
}

const stopMs = 1_000;

/** When nothing of a payload arrives for this many leases, that is its event's failure. The lease is renewed meanwhile. */
const readLeases = 3;

interface RelayRun extends ServiceRun {
  /** The relay claims nothing more from here on. */
  ending(): void;
  /** Something was settled. */
  settled(): void;
}

/**
 * Once the relay claims nothing more, it gives up when it has settled nothing for `publishTimeoutMs` plus `leaseMs`. Otherwise a store that
 * cannot be reached would keep the process for ever. Other relays take over what is left then, as after a crash.
 */
async function bounded(parts: RelayParts, run: ServiceRun, work: (run: RelayRun) => Promise<void>): Promise<void> {
  const { clock, publishTimeoutMs, leaseMs } = parts;
  const stop = follow(run.stopping);
  const mostMs = publishTimeoutMs + leaseMs;
  let late: WaybillError | null = null;
  let cancel: (() => void) | null = null;
  const giveUp = (): void => {
    const then = "another relay continues when this relay's lease has expired, and may send some events again";
    late = new WaybillError("STOPPED", `nothing could be settled or given back for ${mostMs / 1_000} s: ${then}`);
    stop.abort();
  };
  const ending = (): void => void (cancel ??= alarm(clock, mostMs, giveUp));
  const settled = (): void => {
    if (cancel === null) return;
    cancel();
    cancel = alarm(clock, mostMs, giveUp);
  };
  try {
    await orStopped(clock, stop.signal, work({ ...run, stopping: stop.signal, ending, settled }));
    if (late !== null) throw late as WaybillError;
  } finally {
    (cancel as (() => void) | null)?.();
    stop.release();
  }
}

/** A stop waits only a moment for the work under way: a step that hangs must not keep the process. */
async function orStopped(clock: Clock, stopping: AbortSignal, work: Promise<void>): Promise<void> {
  const ended = new AbortController();
  const hung = new Promise<void>((resolve) => onAbort(stopping, resolve)).then(() => clock.sleep(stopMs, ended.signal));
  await Promise.race([work, hung]).finally(() => ended.abort());
}

async function relay(parts: RelayParts, run: RelayRun, once: boolean, counted: (concluded: readonly Concluded[]) => void): Promise<void> {
  const { coordinator, clock, observe, sink } = parts;
  const { relay: name } = coordinator.holding;
  const steps = createProgress(clock);
  const order = createOrder();
  const changed = createWake();
  const crowd = createCrowd(clock, observe);
  const breaker = createBreaker({
    clock,
    crowd,
    named: parts.topics,
    records: parts.topicRecords,
    random: parts.random,
    observe,
    firstProbeMs: parts.probeMs.first,
    lastProbeMs: parts.probeMs.last,
    changed,
  });
  const done = follow(run.draining);
  const noMore = done.signal;
  onAbort(noMore, run.ending);
  let failure: Error | null = null;
  const fail = (error: Error): void => {
    failure ??= error;
    done.abort();
  };
  /** Since when each step fails: a store may let a relay claim, and not settle. */
  const failingSince = new Map<"claim" | "settle", number>();
  const troubles = relayTroubles(observe, name, clock);

  const feed = parts.feed({
    ...parts,
    steps,
    draining: noMore,
    stopping: run.stopping,
    recall: (windows) => publisher.recall(windows),
    onRead: (topics) => {
      failingSince.delete("claim");
      troubles.over("claim");
      topics.forEach((topic) => breaker.adopt(topic));
    },
    onTrouble: (step, error) => {
      troubles.met(step, error);
      // For `runOnce`, a store that stays unreachable is a failed run. Any other relay waits for it.
      const now = clock.monotonic();
      if (!failingSince.has(step)) failingSince.set(step, now);
      if (once && now - failingSince.get(step)! > parts.leaseMs) fail(error);
    },
  });
  const settle = async (window: FedWindow, concluded: readonly Concluded[]): Promise<void> => {
    await feed.settle(
      window,
      concluded.map(({ outcome }) => outcome),
    );
    if (!run.stopping.aborted) {
      run.settled();
      failingSince.delete("settle");
      troubles.over("settle");
    }
    const stopped = concluded.filter(({ outcome }) => outcome.as !== "published");
    if (stopped.length > 0)
      order.settled(
        stopped.map(({ parcel }) => parcel),
        clock.monotonic(),
      );
    for (const { outcome } of stopped) report(observe, outcome);
    counted(concluded);
  };
  const onPublished = (parcels: readonly Parcel[], ms: number): void => {
    const ids = idsFor(observe, parcels, ({ envelope }) => envelope.id);
    const now = observe.ages === true ? coordinator.storeNow() : null;
    const ages = now === null ? {} : { ages: agesOf(now, parcels, ({ envelope }) => envelope.createdAt) };
    observe({ type: "relay.published", relay: name, count: parcels.length, ms, ...ids, ...ages });
  };
  const underWay = new Set<Promise<unknown>>();
  /** By design this work never fails. If it does, that is a bug in Waybill, and ends the relay instead of being ignored. */
  const track = (work: Promise<unknown>): void => {
    const tracked: Promise<unknown> = work.catch((error: unknown) => fail(asError(error))).finally(() => underWay.delete(tracked));
    underWay.add(tracked);
  };

  const publisher = createPublisher({
    ...parts,
    ...{ breaker, order, feed, steps, readTimeoutMs: readLeases * parts.leaseMs, track, onPublished, settle },
    draining: noMore,
    stopping: run.stopping,
  });

  const leaving = new AbortController();
  const work = { progress: () => steps.overdue().length === 0, lanesInUse: () => feed.lanesInUse() };
  const lanes = whenReachable(parts, { ...run, once, draining: noMore, onTrouble: (error) => troubles.met("renew", error) }, (ready) =>
    coordinator.run(work, { leaving: leaving.signal, stopping: run.stopping }, () => {
      troubles.over("renew");
      ready();
    }),
  );
  lanes.catch(() => done.abort()); // `await lanes` below throws the failure itself
  const probes = watchDestinations(
    {
      ...parts,
      breaker,
      crowd,
      feed,
      once,
      changed,
      steps,
      storeTimeoutMs: parts.leaseMs,
      probeTimeoutMs: parts.publishTimeoutMs,
      onTrouble: (error) => troubles.met("probe", error),
    },
    noMore,
  );
  const chores = once ? Promise.resolve() : parts.chores(noMore);
  const idle = once ? endWhenIdle(parts, () => feed.empty() && breaker.quiet() && crowd.quiet(), done) : Promise.resolve();

  try {
    // A broker that cannot be reached is an outage. The breaker handles it once there is something to publish.
    const connected = withDeadline(
      clock,
      parts.publishTimeoutMs,
      noMore,
      (signal) => sink.connect(signal),
      () => undefined,
    );
    await connected.catch((error: unknown) => troubles.met("publish", error));
    for await (const window of feed.windows()) publisher.take(window);
    while (underWay.size > 0) await Promise.all(underWay);
    if (failure !== null) throw failure as Error;
  } finally {
    done.abort();
    done.release();
    leaving.abort();
    await Promise.all([probes, idle, chores]);
    await lanes;
  }
}

/**
 * Begins once the store can be reached and has its tables. A store that is away is waited for, as it is later: the relay counts as running
 * meanwhile. What no wait can mend, such as a wrong password, ends the relay. So does any failure of `runOnce`.
 */
async function whenReachable(
  { check, clock }: Pick<RelayParts, "check" | "clock">,
  run: Pick<ServiceRun, "draining" | "ready"> & { readonly once: boolean; onTrouble(error: Error): void },
  begin: (ready: () => void) => Promise<void>,
): Promise<void> {
  let begun = false;
  const ready = (): void => {
    begun = true;
    run.ready();
  };
  const attempt = async (): Promise<void> => {
    if (run.draining.aborted) return;
    await check();
    await begin(ready);
  };
  await persist(attempt, (cause, tried) => {
    const error = asError(cause);
    if (begun || run.once || !isWaybillError(error) || !error.retryable) return null;
    run.onTrouble(error);
    run.ready();
    return clock.sleep(Math.min(500 * tried, 5_000), run.draining);
  });
}

async function endWhenIdle(parts: RelayParts, idle: () => boolean, { signal, abort }: Follower): Promise<void> {
  const { clock, coordinator, leaseMs } = parts;
  const patience = clock.monotonic() + leaseMs * 1.5; // a dead relay's lanes come free within its lease
  while (!signal.aborted) {
    const started = coordinator.settledIn() || clock.monotonic() > patience;
    if (started && (idle() || coordinator.holding.lanes.size === 0)) return abort();
    await clock.sleep(5, signal);
  }
}

function report(observe: Observe, outcome: Outcome): void {
  const { id, aggregateType, aggregateId, type } = outcome.claim.envelope;
  if (outcome.as === "retry") {
    observe({
      type: "relay.failed",
      id,
      aggregateType,
      aggregateId,
      eventType: type,
      failures: outcome.claim.failures + 1,
      retryInMs: outcome.afterMs,
      error: wholly(outcome),
    });
  } else if (outcome.as === "parked") {
    observe({
      type: "relay.died",
      id,
      aggregateType,
      aggregateId,
      eventType: type,
      error: wholly(outcome),
      followers: outcome.release ? "released" : "blocked",
    });
  }
}

function count(counts: { published: number; failed: number; dead: number; held: number }, concluded: readonly Concluded[]): void {
  for (const { outcome } of concluded) {
    if (outcome.as === "published") counts.published++;
    else if (outcome.as === "retry") counts.failed++;
    else if (outcome.as === "parked") counts.dead++;
    else if (outcome.destination !== undefined) counts.held++;
  }
}
