import { hash } from "node:crypto";
import type { PathEvent } from "../../src/core/path-events.ts";
import type { Random } from "../../src/core/random.ts";
import type { Act, Entry, Phase, Scope } from "../../src/proof/judge/history.ts";
import { createBroker, type Broker } from "./broker.ts";
import { fork, type Plan } from "./plan.ts";
import { brokers, stores } from "./profiles.ts";
import { createScheduler, type Process, type Scheduler } from "./scheduler.ts";
import { createServer } from "./server.ts";
import { createStoreServer, type StoreServer } from "./store.ts";

/** All that one run shares. */
export interface World {
  readonly plan: Plan;
  readonly scheduler: Scheduler;
  /** The outbox's database, and the one of the subscribers. */
  readonly store: StoreServer;
  readonly inbox: StoreServer;
  readonly broker: Broker;
  readonly history: Entry[];
  readonly outputs: string[];
  random(name: string): Random;
  /** What a process does, while it is alive. */
  record(process: Process, phase: Phase, act: Act): void;
  observe(process: Process): (event: PathEvent) => void;
  /** Writes a fault down; the answer writes its end. */
  fault(fault: string, target: string, copies: number | null, scope: Scope): () => void;
}

/** In every payload: it must not come out in what is told of the path. */
export const canary = "canary-in-every-payload";

export const shaOf = (data: Uint8Array | string): string => hash("sha1", data, "base64url");

export function createWorld(plan: Plan): World {
  const scheduler = createScheduler();
  const history: Entry[] = [];
  const outputs: string[] = [];
  const random = (name: string): Random => fork(plan.seed, name);
  const { latencyMs } = plan.knobs;
  const database = (name: string): StoreServer => {
    const server = createServer(scheduler, random(`links to ${name}`), { latencyMs, timeoutMs: 1_500 });
    return createStoreServer(scheduler.process(name).clock, server, stores[plan.store].oneWriter);
  };
  const write = (process: string, phase: Phase, act: Act, at = scheduler.now): void => void history.push({ at, process, phase, ...act });
  const fault = (name: string, target: string, copies: number | null, scope: Scope, since?: number): (() => void) => {
    // Where an aggregate spans topics, order goes before isolation: one topic's trouble may be everybody's.
    const wide = scope !== "all" && Object.values(scope).flat().length > 0 && plan.knobs.spanning ? "all" : scope;
    write("nemesis", "invoked", { op: "fault", fault: name, target, copies, scope: wide }, since);
    return () => write("nemesis", "ok", { op: "fault", fault: name, target, copies, scope: wide });
  };
  const broker = createBroker(
    scheduler.process("broker").clock,
    createServer(scheduler, random("links to the broker"), { latencyMs, timeoutMs: 1_500 }),
    brokers[plan.broker],
    {
      provision: true,
      heard: {
        // The topic's breaker opens by it. The copy may come long after its sender gave up.
        unheard: ({ topic, envelope }, gaveUpAt) => fault("ack-lost", envelope.id, 1, { topics: [topic] }, gaveUpAt)(),
        poisoned: ({ envelope }) => fault("poison", envelope.id, 0, { aggregates: [`${envelope.aggregateType} ${envelope.aggregateId}`] }),
      },
    },
  );
  return {
    plan,
    scheduler,
    store: database("the store"),
    inbox: database("the inbox"),
    broker,
    history,
    outputs,
    random,
    record(process, phase, act) {
      if (process.alive) write(process.name, phase, act);
    },
    observe: (process) => (event) => {
      if (process.alive) outputs.push(JSON.stringify(event));
    },
    fault,
  };
}
