import { onTestFinished } from "vitest";
import { memoryBroker, type MemoryBroker } from "../../src/brokers/memory/index.ts";
import type { Source } from "../../src/contracts/source.ts";
import type { Letters } from "../../src/contracts/letters.ts";
import type { Envelope } from "../../src/core/event.ts";
import { seededRandom } from "../../src/core/random.ts";
import type { Service } from "../../src/core/service.ts";
import { memory, type MemoryStore, type MemoryTx } from "../../src/stores/memory/index.ts";
import { fatal } from "../../src/subscriber/fatal.ts";
import { createSubscriber, type SubscriberOptions } from "../../src/subscriber/subscriber.ts";
import { manualClock, type ManualClock } from "../../src/testing/manual-clock.ts";
import { envelope, settle, watched, type Watched } from "./fakes.ts";

export const topic = "order.events";
export const ann = { who: "ann", dryRun: false };

export interface RedriveScene extends Watched {
  readonly clock: ManualClock;
  readonly store: MemoryStore;
  readonly broker: MemoryBroker;
  /** Events that the handler of consumer "stock" refuses. */
  readonly refused: Set<string>;
  /** Effects that are committed, in order: "consumer id". */
  effects(): readonly string[];
  publish(...events: readonly Envelope[]): Promise<void>;
  /** A new process: same broker, same database. Stopped when the test ends. */
  process(options?: Partial<SubscriberOptions<MemoryTx>>): Service;
  /** Events of these aggregates, each of which consumer "stock" has parked, in this order. */
  parked(...aggregates: readonly string[]): Promise<readonly Envelope[]>;
  /** Lets so many seconds pass. */
  pass(seconds: number): Promise<void>;
  /** Of every letter: its event's id and its error; an asterisk once it was redriven. */
  letters(): Promise<readonly string[]>;
}

/** Real store, broker and subscribers on a clock that the test moves. With `assign`, the broker gives each topic to whoever asks, as Kafka would. */
export function redriveScene({ assign = false } = {}): RedriveScene {
  const clock = manualClock(1_700_000_000_000);
  const store = memory({ clock });
  const broker = memoryBroker({ clock });
  const events = watched();
  const refused = new Set<string>();
  let made = 0;
  const note = (consumer: string, id: string, tx: MemoryTx): void => {
    const table = tx.table<number, string>("effects");
    table.set(table.size, `${consumer} ${id}`);
  };
  const scene: RedriveScene = {
    ...events,
    ...{ clock, store, broker, refused },
    effects: () => [...store.db.table<number, string>("effects").values()],
    async publish(...them) {
      const sent = them.map((one) => ({ topic, source: "/test", envelope: one }));
      await broker.publish(sent, new AbortController().signal);
    },
    process(options = {}) {
      made += 1;
      const { consumer = "stock" } = options;
      const opened: Source = broker.reopen();
      const service = createSubscriber<MemoryTx>({
        ...{ consumer, clock, topics: [topic], inbox: store, observe: events.observe },
        source: assign ? { ...opened, can: { assign: true } } : opened,
        owner: `process-${made}`,
        random: seededRandom(made),
        retry: { delaysMs: [], jitter: 0 },
        handlers: {
          OrderPlaced({ id }, tx) {
            if (consumer === "stock" && refused.has(id)) throw fatal("no such account");
            note(consumer, id, tx);
          },
        },
        ...options,
      });
      onTestFinished(async () => {
        const stopped = service.stop();
        for (let second = 0; second < 40; second++) await clock.advance(1_000);
        await stopped;
      });
      return service;
    },
    async parked(...aggregates) {
      const them = aggregates.map((aggregate) => envelope(aggregate));
      for (const { id } of them) refused.add(id);
      await scene.publish(...them);
      const first = scene.process();
      await first.start();
      await scene.pass(3);
      const drained = first.drain();
      await scene.pass(3);
      await drained;
      refused.clear();
      events.events.length = 0;
      return them;
    },
    async pass(seconds) {
      for (let tenth = 0; tenth < seconds * 10; tenth++) {
        await settle();
        await clock.advance(100);
      }
      await settle();
    },
    letters: async () =>
      (await store.letters.list({ limit: 1_000 }))
        .map(({ id, error, redrivenAt }) => `${id} ${error}${redrivenAt === null ? "" : " *"}`)
        .reverse(),
  };
  return scene;
}

/** The store with some of its letters' methods replaced. */
export const withLetters = (store: MemoryStore, change: Partial<Letters>): MemoryStore => ({
  ...store,
  letters: { ...store.letters, ...change },
});
