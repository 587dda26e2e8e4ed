import type { OutboxStore } from "../../src/contracts/outbox-store.ts";
import type { Sink } from "../../src/contracts/sink.ts";
import type { Failpoint } from "../../src/core/failpoints.ts";
import type { LeaseStore } from "../../src/contracts/lease-store.ts";
import { createRelay, type Relay } from "../../src/relay/create-relay.ts";
import { routeOf } from "../../src/relay/route.ts";
import type { HandedEvent } from "../../src/proof/judge/history.ts";
import { openClient } from "./client.ts";
import { sharedTopic, skippedType, type RelayKnobs } from "./plan.ts";
import type { Process } from "./scheduler.ts";
import type { World } from "./world.ts";

export interface RelayLife {
  readonly process: Process;
  readonly relay: Relay;
  /** How many events it may have claimed and not settled: as many copies its death may cost. */
  readonly window: number;
  /** It dies when it comes to this. */
  crashAt: Failpoint | null;
  /** It stands still when it comes to this. */
  pauseAt: { readonly at: Failpoint; readonly pause: () => void } | null;
}

const standard = routeOf("{aggregate_type|lower}.events");

/** One life of a relay. `ended` is told when it ends by itself. */
export function startRelay(world: World, name: string, knobs: RelayKnobs, ended: () => void): RelayLife {
  const { plan, scheduler, store, broker } = world;
  const { leaseMs, spanning, purgeEveryMs, distanceMs = 0 } = plan.knobs;
  const process = scheduler.process(name, knobs.skewMs);
  if (distanceMs > 0) store.server.distances.set(process, distanceMs);
  const opened = store.open(process, {
    taken: (won) => {
      // Told by the store itself, whether or not the relay hears of it.
      const lanes = [...won].map(([lane, epoch]) => [lane, Number(epoch)] as const);
      const { now } = scheduler;
      world.history.push({ at: now, process: name, phase: "ok", op: "lease", what: "take", began: now, lanes });
    },
  });
  const held = new Map<string, HandedEvent>();
  const life: RelayLife = {
    process,
    window: knobs.batch * knobs.batchesInFlight,
    crashAt: null,
    pauseAt: null,
    relay: createRelay({
      store: {
        outbox: recordedOutbox(world, process, opened.outbox, held),
        leases: recordedLeases(world, process, opened.leases),
        schema: opened.schema,
        wake: opened.wake,
        operator: opened.operator,
      },
      sink: recordedSink(world, process, openClient(scheduler, world.random(`${name} sends`), broker, process), held),
      ...(spanning ? { route: (event) => (event.type === "shared" ? sharedTopic : standard(event)) } : {}),
      relayId: name,
      clock: process.clock,
      random: world.random(name),
      batch: knobs.batch,
      batchesInFlight: knobs.batchesInFlight,
      pollIntervalMs: knobs.pollIntervalMs,
      coordination: knobs.coordination,
      leaseMs,
      retry: { delaysMs: [100, 300, 600, 1_200] },
      skip: [skippedType],
      probeMs: { first: 100, last: 1_000 },
      // Every second run has more topics in trouble than may have a record.
      topicRecords: plan.seed % 2 === 0 ? 1 : 32,
      housekeeping: { everyMs: purgeEveryMs, retentionMs: 2_000 },
      observe: world.observe(process),
      failpoints: {
        hit(at) {
          if (life.pauseAt?.at === at) {
            life.pauseAt.pause();
            life.pauseAt = null;
            return process.clock.sleep(0); // over when the pause is
          }
          if (life.crashAt !== at) return;
          process.crash();
          return new Promise<never>(() => undefined);
        },
      },
    }),
  };
  const end = (): void => {
    if (process.alive) ended();
  };
  life.relay.start().catch(() => undefined);
  life.relay.stopped.then(end, end);
  return life;
}

function recordedOutbox({ scheduler, record }: World, process: Process, outbox: OutboxStore, held: Map<string, HandedEvent>): OutboxStore {
  return {
    ...outbox,
    async claim(holding, request) {
      const window = await outbox.claim(holding, request);
      const claims = window.claims.map(({ envelope, lane, epoch }) => ({ id: envelope.id, lane, epoch: Number(epoch) }));
      for (const claim of claims) held.set(claim.id, claim);
      if (claims.length > 0) record(process, "ok", { op: "claim", claims });
      return window;
    },
    async settle(relay, window, outcomes) {
      const began = scheduler.now;
      const act = {
        op: "settle" as const,
        began,
        outcomes: outcomes.map((outcome) => ({
          id: outcome.claim.envelope.id,
          lane: outcome.claim.lane,
          epoch: Number(outcome.claim.epoch),
          as: outcome.as,
          ...(outcome.as === "parked" ? { release: outcome.release } : {}),
        })),
      };
      // Also what nobody hears the end of may have been settled.
      record(process, "invoked", act);
      const report = await outbox.settle(relay, window, outcomes).catch((error: unknown) => {
        record(process, "unknown", { ...act, outcomes: [] });
        throw error;
      });
      record(process, "ok", { ...act, settled: report.settled });
      return report;
    },
  };
}

function recordedLeases({ record }: World, process: Process, leases: LeaseStore): LeaseStore {
  return {
    ...leases,
    async renew(relay, ttlMs, window, strategy) {
      const mono = process.clock.monotonic();
      await leases.renew(relay, ttlMs, window, strategy);
      record(process, "ok", { op: "lease", what: "renew", mono, ttlMs });
    },
  };
}

function recordedSink({ record, scheduler }: World, process: Process, sink: Sink, held: ReadonlyMap<string, HandedEvent>): Sink {
  return {
    ...sink,
    async publish(batch, signal) {
      const looked = { mono: process.clock.monotonic(), began: scheduler.now };
      const events = batch.map(({ envelope }) => held.get(envelope.id) ?? { id: envelope.id, lane: -1, epoch: -1 });
      record(process, "invoked", { op: "publish", events, ...looked });
      const results = await sink.publish(batch, signal);
      for (const [phase, statuses] of phases) {
        const those = events.filter((_, index) => statuses.includes(results[index]?.status ?? "unknown"));
        if (those.length > 0) record(process, phase, { op: "publish", events: those, ...looked });
      }
      return results;
    },
  };
}

const phases = [
  ["ok", ["stored"]],
  ["failed", ["refused", "skipped"]],
  ["unknown", ["unknown"]],
] as const satisfies readonly (readonly ["ok" | "failed" | "unknown", readonly string[]])[] as readonly (readonly [
  "ok" | "failed" | "unknown",
  readonly string[],
])[];
