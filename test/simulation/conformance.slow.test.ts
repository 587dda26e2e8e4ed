import { describe, test } from "vitest";
import {
  inboxSuite,
  leaseStoreSuite,
  operatorSuite,
  outboxStoreSuite,
  schemaSuite,
  serviceSuite,
  sinkSuite,
  sourceSuite,
  type AuditLine,
  type StoreHarness,
  type StoreSuite,
} from "../../src/conformance/index.ts";
import type { Envelope } from "../../src/core/event.ts";
import { seededRandom } from "../../src/core/random.ts";
import { createRelay } from "../../src/relay/create-relay.ts";
import { createSubscriber } from "../../src/subscriber/subscriber.ts";
import { keepsItsPromises } from "../stores/history.ts";
import { createBroker, type Broker } from "./broker.ts";
import { openClient, type Client } from "./client.ts";
import { brokers, stores, type BrokerProfile } from "./profiles.ts";
import { createScheduler, type Scheduler } from "./scheduler.ts";
import { createServer } from "./server.ts";
import { createStoreServer, type SimDb, type SimTx } from "./store.ts";

/** What is simulated keeps the same promises as the real ones; here its time is ours, so that the suites can wait for it. */
function realTime(): { readonly scheduler: Scheduler; advance(ms: number): Promise<void>; end(): void } {
  const scheduler = createScheduler();
  const started = performance.now();
  let ahead = 0;
  let ended = false;
  const run = async (): Promise<void> => {
    while (!ended) {
      await scheduler.run(performance.now() - started + ahead);
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  };
  const running = run();
  return {
    scheduler,
    async advance(ms) {
      ahead += ms;
      const until = scheduler.now + ms;
      while (scheduler.now < until) await new Promise((resolve) => setTimeout(resolve, 1));
    },
    end() {
      ended = true;
      void running;
    },
  };
}

const links = { latencyMs: 0.2, timeoutMs: 1_000 };

async function openStore(oneWriter: boolean): Promise<StoreHarness<SimDb, SimTx>> {
  const { scheduler, advance, end } = realTime();
  const { clock } = scheduler.process("the store");
  const server = createStoreServer(clock, createServer(scheduler, seededRandom(1), links), oneWriter);
  const store = server.open(scheduler.process("a client"));
  const { db } = store;
  return {
    store,
    db,
    clock: { now: () => clock.now(), advance },
    begin: async () => {
      const tx = await db.begin();
      return { tx, commit: () => db.commit(tx), rollback: () => db.rollback(tx) };
    },
    effect: (tx, name) => tx.effect(name),
    effects: async () => server.database.image.effects as string[],
    lose: (tx) => {
      tx.server.givenUp = true;
      server.database.rollback(tx.server);
    },
    commitInside: (tx) => server.database.commit(tx.server),
    letters: async () => [...server.database.image.tables.letters.values()].map(({ row }) => row),
    audit: async () => server.database.image.tables.audit.map(({ who, action, events }): AuditLine => ({ who, action, events })),
    close: async () => end(),
  };
}

describe.each(Object.entries(stores))("the simulated store as %s", (_, { oneWriter }) => {
  const can = {
    claimBesideWriter: !oneWriter,
    parallelWriters: !oneWriter,
    loseTransaction: true,
    commitInside: true,
    uniqueIds: true,
    hostileRows: false,
  };
  // Without `skip`: what this store cannot do is no lack of the machine that the tests run on.
  const suite: StoreSuite<SimDb, SimTx> = { test: (name, body) => test(name, body), can, create: () => openStore(oneWriter) };
  outboxStoreSuite(suite);
  leaseStoreSuite(suite);
  inboxSuite(suite);
  operatorSuite(suite);
  schemaSuite(suite);

  test("any history keeps the promises", () => keepsItsPromises(() => openStore(oneWriter), { numRuns: 2 }));
});

const topics = ["order.events", "invoice.events"] as const;

function openBroker(profile: BrokerProfile, provision: boolean): { broker: Broker; client: () => Client; end: () => void } {
  const { scheduler, end } = realTime();
  const server = createServer(scheduler, seededRandom(2), links);
  const broker = createBroker(scheduler.process("the broker").clock, server, profile, { provision });
  broker.provision(topics);
  return { broker, client: () => openClient(scheduler, seededRandom(3), broker, scheduler.process("a client")), end };
}

describe.each(Object.entries(brokers))("the simulated broker as %s", (_, given) => {
  // Between partitions there is no order that a suite could ask for.
  const profile = { ...given, units: 1 };
  sinkSuite({
    test,
    can: { missing: true },
    async create() {
      const { broker, client, end } = openBroker(profile, false);
      return { sink: client(), topics, missing: "nowhere", stored: async (topic) => broker.messages(topic), close: async () => end() };
    },
  });

  sourceSuite({
    test,
    can: { redeliverWithinMs: 0 },
    async create() {
      const { client, end } = openBroker(profile, true);
      const sink = client();
      return {
        topics,
        open: async () => client(),
        store: async (topic: string, events: readonly Envelope[]) => {
          await sink.publish(
            events.map((envelope) => ({ topic, source: "/test", envelope })),
            new AbortController().signal,
          );
        },
        close: async () => end(),
      };
    },
  });
});

describe("in the simulated world", () => {
  const world = () => {
    const { scheduler, end } = realTime();
    const process = scheduler.process("a process");
    const server = createStoreServer(scheduler.process("the store").clock, createServer(scheduler, seededRandom(1), links), false);
    const broker = createBroker(process.clock, createServer(scheduler, seededRandom(2), links), brokers.embedded, { provision: true });
    return { store: server.open(process), client: openClient(scheduler, seededRandom(3), broker, process), clock: process.clock, end };
  };
  serviceSuite({
    test: (name, body) => test(`relay: ${name}`, body),
    async create() {
      const { store, client, clock, end } = world();
      return { service: createRelay({ store, sink: client, clock, random: seededRandom(4) }), close: async () => end() };
    },
  });
  serviceSuite({
    test: (name, body) => test(`subscriber: ${name}`, body),
    async create() {
      const { store, client, clock, end } = world();
      const handlers = { "*": () => undefined };
      const options = { consumer: "c", source: client, inbox: store, topics: ["t"], handlers, clock, random: seededRandom(4) };
      return { service: createSubscriber(options), close: async () => end() };
    },
  });
});
