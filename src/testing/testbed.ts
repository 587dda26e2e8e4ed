import { AssertionError } from "node:assert";
import type { Store } from "../contracts/store.ts";
import { fromAttributes } from "../core/cloudevents.ts";
import { WaybillError } from "../core/errors.ts";
import type { EventMap } from "../outbox/event-map.ts";
import { checkOptions } from "../core/options.ts";
import { seededRandom } from "../core/random.ts";
import type { RelayOptions } from "../relay/create-relay.ts";
import type { DraftOf } from "../outbox/catalogue.ts";
import { createOutbox, type EventBuffer, type Outbox } from "../outbox/outbox.ts";
import { memoryBroker, type MemoryBroker } from "../brokers/memory/index.ts";
import { memory, type MemoryDb, type MemoryTx } from "../stores/memory/index.ts";
import { createDeliveries, type Deliveries } from "./deliveries.ts";
import { assertEvents, eventsAfter, testEvent, type ExpectedEvent, type TestEvent } from "./events.ts";
import { manualClock, type ManualClock } from "./manual-clock.ts";
import { createPassing } from "./passing.ts";
import { createPublishing, type Publishing } from "./publishing.ts";

export interface TestbedOptions<Events extends EventMap = EventMap> {
  /** The catalogue of the testbed's outbox. */
  readonly events?: Events;
  /** How the testbed's relays route, retry and so on. */
  readonly relay?: Pick<RelayOptions, "route" | "source" | "batch" | "retry" | "skip" | "observe">;
  /** @default one that stands at the beginning of 2030 */
  readonly clock?: ManualClock;
}

/** A database of your own in place of the memory store. */
export interface TestbedStore<Db, Tx> {
  /** Migrated, and made with the testbed's clock. */
  readonly store: Store<Db, Tx>;
  /** The handle that begins transactions. */
  readonly db: Db;
}

/**
 * The whole path within one test. Nothing runs unless a call starts it, time stands still in between, and every run is like the last.
 * A failed check throws an AssertionError of node:assert, for any test runner.
 */
export interface Testbed<Db, Tx, Events extends EventMap = EventMap> extends Publishing, Deliveries<Tx, keyof Events & string> {
  readonly clock: ManualClock;
  readonly store: Store<Db, Tx>;
  readonly db: Db;
  readonly outbox: Outbox<Db, Tx, Tx, DraftOf<Events>>;
  readonly broker: MemoryBroker;
  /** `outbox.transaction` on `db`. */
  transaction<T>(work: (tx: Tx, events: EventBuffer<DraftOf<Events>>) => T | Promise<T>): Promise<T>;
  /** All events that have been added and committed, in the order of their commits. */
  added(): Promise<readonly TestEvent[]>;
  /** Runs `work` and fails unless it added and committed exactly these events, in this order. Returns what `work` returns. */
  assertAdded<T>(work: () => T | Promise<T>, expected: readonly ExpectedEvent<keyof Events & string>[]): Promise<T>;
  /** Runs `work` and fails if it added and committed any event; without `work`, nothing may have been added so far. */
  assertNothingAdded(work?: () => unknown): Promise<void>;
  /** What the topic holds, oldest first, duplicates included. */
  published(topic: string): Promise<readonly TestEvent[]>;
  /** Fails unless the topic holds exactly these, in this order. */
  assertPublished(topic: string, expected: readonly ExpectedEvent<keyof Events & string>[]): Promise<void>;
}

/** An outbox, relays, a broker and subscribers for your own tests: in memory, or over a database of yours. */
export function createTestbed<const Events extends EventMap = EventMap>(
  options?: TestbedOptions<Events>,
): Testbed<MemoryDb, MemoryTx, Events>;
export function createTestbed<Db, Tx, const Events extends EventMap = EventMap>(
  options: TestbedOptions<Events> & TestbedStore<Db, Tx>,
): Testbed<Db, Tx, Events>;
export function createTestbed<Db, Tx, const Events extends EventMap>(
  options: TestbedOptions<Events> & Partial<TestbedStore<Db, Tx>> = {},
): Testbed<Db, Tx, Events> | Testbed<MemoryDb, MemoryTx, Events> {
  checkOptions("createTestbed", options, ["events", "relay", "clock", "store", "db"]);
  const { store, db, clock = manualClock(Date.UTC(2030, 0, 1)) } = options;
  if (store !== undefined && db !== undefined) return testbed({ store, db }, options, clock);
  if (store !== undefined || db !== undefined) {
    throw new WaybillError(
      "INVALID_OPTION",
      "createTestbed takes store and db together: the store, and the handle that begins transactions",
    );
  }
  const inMemory = memory({ clock });
  return testbed({ store: inMemory, db: inMemory.db }, options, clock);
}

function testbed<Db, Tx, const Events extends EventMap>(
  { store, db }: TestbedStore<Db, Tx>,
  { events, relay = {} }: TestbedOptions<Events>,
  clock: ManualClock,
): Testbed<Db, Tx, Events> {
  const random = seededRandom(1);
  const passing = createPassing(clock);
  const broker = memoryBroker({ clock });
  const topics = new Set<string>();
  const sink: MemoryBroker = {
    ...broker,
    publish(batch, signal) {
      for (const { topic } of batch) topics.add(topic);
      return broker.publish(batch, signal);
    },
  };
  const outbox = createOutbox<Db, Tx, Tx, Events>({ store, clock, random, ...(events === undefined ? {} : { events }) });
  const publishing = createPublishing({ store, sink, relay, clock, random, passing });

  /** Fails if events are stuck: a subscriber that gets nothing because nothing could be published would look healthy. */
  const publish = async (): Promise<readonly string[]> => {
    const { failed, dead, held } = await publishing.publishAll();
    if (failed + dead + held === 0) return [...topics];
    const stuck = (await store.operator.list({ limit: 1_000 })).filter(({ lastError, hold }) => lastError !== null || hold !== null);
    const why = stuck.map(({ type, aggregateId, lastError, hold }) => `${type} of ${aggregateId}: ${lastError ?? hold}`);
    throw new AssertionError({ message: `the relay could not publish everything: ${why.join("; ")}` });
  };

  const bed: Testbed<Db, Tx, Events> = {
    ...publishing,
    ...createDeliveries({ broker, inbox: store.inbox, clock, random, passing, publish }),
    clock,
    store,
    db,
    outbox,
    broker,
    transaction: (work) => outbox.transaction(db, work),
    added: () => eventsAfter(store.operator, 0n),
    async assertAdded(work, expected) {
      const [last] = await store.operator.list({ limit: 1 });
      const value = await work();
      assertEvents(await eventsAfter(store.operator, last?.seq ?? 0n), expected, "added", bed.assertAdded);
      return value;
    },
    async assertNothingAdded(work) {
      if (work !== undefined) await bed.assertAdded(work, []);
      else assertEvents(await bed.added(), [], "added", bed.assertNothingAdded);
    },
    published: (topic) =>
      Promise.all(broker.messages(topic).map(({ attributes, headers, data }) => testEvent(fromAttributes(attributes, headers, data)!))),
    async assertPublished(topic, expected) {
      assertEvents(await bed.published(topic), expected, `published to ${topic}`, bed.assertPublished);
    },
  };
  return bed;
}
