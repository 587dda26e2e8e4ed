import { createMutex, type Mutex } from "../../src/core/queue.ts";
import type { Clock } from "../../src/core/clock.ts";
import type { Envelope } from "../../src/core/event.ts";
import type { PathEvent } from "../../src/core/path-events.ts";
import { letterRow } from "../../src/core/letter.ts";
import { createRoom } from "../../src/core/room.ts";
import { createWake } from "../../src/core/wake.ts";
import type { Letter } from "../../src/core/letter.ts";
import type { Inbox, Seat } from "../../src/contracts/inbox.ts";
import type { Outgoing, PublishResult, Sink } from "../../src/contracts/sink.ts";
import type { Assignment, Delivery, Source, Subscription, Unreadable } from "../../src/contracts/source.ts";

/** Polls until the condition holds; time of an injected clock does not pass meanwhile. */
export async function eventually(condition: () => boolean): Promise<void> {
  const deadline = performance.now() + 15_000;
  for (let looks = 0; !condition(); looks++) {
    if (performance.now() > deadline) throw new Error(`did not come true: ${condition.toString()}`);
    await new Promise((resolve) => (looks < 50 ? setImmediate(resolve) : setTimeout(resolve, 5)));
  }
}

/** Lets everything that needs no time run on. */
export async function settle(): Promise<void> {
  for (let i = 0; i < 20; i++) await new Promise((resolve) => setImmediate(resolve));
}

let made = 0;

export function envelope(aggregateId: string, payload: unknown = {}, rest: Partial<Envelope> = {}): Envelope {
  made += 1;
  return {
    id: `event-${made}`,
    seq: BigInt(made),
    aggregateType: "Order",
    aggregateId,
    type: "OrderPlaced",
    eventVersion: 1,
    data: Buffer.from(JSON.stringify(payload)),
    contentType: "application/json",
    headers: {},
    idempotencyKey: null,
    createdAt: new Date(1_000),
    ...rest,
  };
}

export interface FakeBroker {
  readonly acked: string[];
  /** How many deliveries there were, repeated ones included. */
  readonly delivered: number;
  readonly letters: Outgoing[];
  readonly source: Source;
  readonly sink: Sink;
  readonly both: Source & Sink;
  /** How often `receive` was called, and for which topics. */
  readonly received: string[];
  /** By topic, when its oldest message was stored. */
  readonly oldest: Map<string, Date>;
  /** The last subscription. */
  readonly subscription: Subscription | null;
  /** A message that is no event. */
  addUnreadable(topic: string, envelope: Envelope, unreadable: Unreadable): void;
  add(topic: string, ...envelopes: Envelope[]): void;
  /** Delivers it once more, as a broker may. */
  redeliver(topic: string, envelope: Envelope): void;
  /** Gives an aggregate to another process, as a broker that assigns does when members come. */
  takeAway(aggregateId: string): void;
  /** Every open receiving rejects with this. */
  breakLink(error: Error): void;
  /** What the broker answers next; stored otherwise. */
  readonly answers: PublishResult[];
  readonly ackErrors: Error[];
}

/** A log that gives what is not acknowledged to whoever receives, in order, from the start. */
export function fakeBroker({ assign = true } = {}, clock: Clock): FakeBroker {
  const log: { topic: string; envelope: Envelope; unreadable?: Unreadable }[] = [];
  const acked = new Set<string>();
  const letters: Outgoing[] = [];
  const answers: PublishResult[] = [];
  const ackErrors: Error[] = [];
  const received: string[] = [];
  const oldest = new Map<string, Date>();
  const wakes = new Set<ReturnType<typeof createWake>>();
  const assignments = new Map<string, Assignment & { readonly controller: AbortController }>();
  const assignmentOf = (aggregateId: string): Assignment => {
    const controller = new AbortController();
    const made = { controller, ended: controller.signal, ours: () => !controller.signal.aborted };
    if (!assignments.has(aggregateId)) assignments.set(aggregateId, made);
    return assignments.get(aggregateId)!;
  };
  let broken: { error: Error; at: number } | null = null;
  let breaks = 0;
  let delivered = 0;
  let subscription: Subscription | null = null;
  const notify = (): void => wakes.forEach((wake) => wake.notify());

  const source: Source = {
    name: "fake",
    can: { assign },
    connect: async () => undefined,
    oldest: async (topic) => oldest.get(topic) ?? null,
    async *receive(wanted, signal): AsyncGenerator<Delivery> {
      const { topics, ...bounds } = (subscription = wanted);
      received.push(topics.join(","));
      const wake = createWake();
      wakes.add(wake);
      const opened = breaks;
      let at = 0;
      const room = createRoom(bounds);
      try {
        while (!signal.aborted) {
          if (broken !== null && broken.at > opened) throw broken.error;
          const next = room.left > 0 ? log[at] : undefined;
          if (next === undefined) {
            await wake.wait(clock, 3_600_000, signal);
            continue;
          }
          at += 1;
          if (!topics.includes(next.topic) || acked.has(next.envelope.id)) continue;
          const taken = room.take(next.envelope.data.byteLength);
          delivered += 1;
          yield {
            ...next,
            ...(assign && { assignment: assignmentOf(next.envelope.aggregateId) }),
            async ack() {
              const error = ackErrors.shift();
              if (error !== undefined) throw error;
              taken.ack();
              acked.add(next.envelope.id);
              broker.acked.push(next.envelope.id);
              notify();
            },
            aside() {
              taken.aside();
              wake.notify();
            },
          };
        }
      } finally {
        wakes.delete(wake);
      }
    },
    [Symbol.asyncDispose]: async () => undefined,
  };
  const sink: Sink = {
    name: "fake",
    can: { maxBytes: 1_000_000 },
    connect: async () => undefined,
    async publish(batch) {
      return batch.map((outgoing) => {
        const answer = answers.shift() ?? { status: "stored" as const };
        if (answer.status === "stored") letters.push(outgoing);
        return answer;
      });
    },
    probe: async () => undefined,
    [Symbol.asyncDispose]: async () => undefined,
  };
  const broker: FakeBroker = {
    acked: [],
    get delivered() {
      return delivered;
    },
    letters,
    source,
    sink,
    both: { ...sink, ...source, can: { ...sink.can, ...source.can } },
    received,
    oldest,
    get subscription() {
      return subscription;
    },
    addUnreadable(topic, one, unreadable) {
      log.push({ topic, envelope: one, unreadable });
      notify();
    },
    answers,
    ackErrors,
    add(topic, ...envelopes) {
      for (const one of envelopes) log.push({ topic, envelope: one });
      notify();
    },
    redeliver(topic, one) {
      acked.delete(one.id);
      log.push({ topic, envelope: one });
      notify();
    },
    takeAway(aggregateId) {
      assignments.get(aggregateId)?.controller.abort();
      assignments.delete(aggregateId);
    },
    breakLink(error) {
      breaks += 1;
      broken = { error, at: breaks };
      notify();
    },
  };
  return broker;
}

export interface FakeTx {
  readonly write: (effect: string) => void;
}

export interface FakeInbox {
  readonly inbox: Inbox<FakeTx>;
  /** What is committed, in order. */
  readonly effects: string[];
  readonly failures: Map<string, number>;
  readonly errors: string[];
  /** The first that was parked of each message. */
  readonly parked: Map<string, Letter>;
  readonly seats: Map<string, { owner: string; expiresAt: number }>;
  /** Thrown by the next calls, instead of doing anything. */
  readonly troubles: {
    readonly once: Error[];
    readonly commit: Error[];
    readonly failed: Error[];
    readonly sit: Error[];
    readonly park: Error[];
  };
  /** Rejects what it is asked for this event, for as long as it gives an error. */
  refuses: (step: "once" | "failed" | "park", id: string) => Error | null;
  /** What `forget` was asked for, and how many rows it says next. */
  readonly forgets: unknown[];
  readonly old: number[];
  /** While set, `sit` never answers. */
  hung: boolean;
}

export function fakeInbox(clock: Clock): FakeInbox {
  const marks = new Set<string>();
  const locks = new Map<string, Mutex>();
  const placeOf = ({ consumer, topic }: Seat): string => `${consumer} ${topic}`;
  const fail = (errors: Error[]): void => {
    const error = errors.shift();
    if (error !== undefined) throw error;
  };
  const refuse = (...[step, id]: Parameters<FakeInbox["refuses"]>): void => {
    const error = fake.refuses(step, id);
    if (error !== null) throw error;
  };
  const fake: FakeInbox = {
    effects: [],
    failures: new Map(),
    errors: [],
    parked: new Map(),
    refuses: () => null,
    forgets: [],
    old: [],
    seats: new Map(),
    troubles: { once: [], commit: [], failed: [], sit: [], park: [] },
    hung: false,
    inbox: {
      once({ consumer, id, also = [] }, _version, work) {
        const names = [id, ...also].map((each) => `${consumer} ${each}`);
        const lockOf = (name: string): Mutex => {
          const lock = locks.get(name) ?? createMutex();
          locks.set(name, lock);
          return lock;
        };
        const locked = <T>(rest: readonly string[], inside: () => Promise<T>): Promise<T> =>
          rest.length === 0 ? inside() : lockOf(rest[0]!).run(() => locked(rest.slice(1), inside));
        return locked([...names].sort(), async () => {
          fail(fake.troubles.once);
          for (const each of [id, ...also]) refuse("once", each);
          const fresh = new Set([id, ...also].filter((each) => !marks.has(`${consumer} ${each}`)));
          if (fresh.size === 0) return "seen";
          const written: string[] = [];
          let open = true;
          try {
            const tx: FakeTx = {
              write(effect) {
                if (!open) throw new Error("the transaction has ended");
                written.push(effect);
              },
            };
            await work(tx, fresh, () => tx);
          } finally {
            open = false;
          }
          fail(fake.troubles.commit);
          for (const each of fresh) {
            marks.add(`${consumer} ${each}`);
            fake.failures.delete(each);
          }
          fake.effects.push(...written);
          return fresh.has(id) ? "done" : "seen";
        });
      },
      async failed({ id }, error) {
        fail(fake.troubles.failed);
        refuse("failed", id);
        const count = (fake.failures.get(id) ?? 0) + 1;
        fake.failures.set(id, count);
        fake.errors.push(error);
        return count;
      },
      async park(letter) {
        fail(fake.troubles.park);
        refuse("park", letter.envelope.id);
        const { consumer, topic, id, digest } = letterRow(letter);
        const name = [consumer, topic, id, digest].join(" ");
        if (!fake.parked.has(name)) fake.parked.set(name, letter);
      },
      async forget(before, limit, consumer) {
        fake.forgets.push([before.toISOString(), limit, consumer]);
        return fake.old.shift() ?? 0;
      },
      async sit(seat, ttlMs) {
        fail(fake.troubles.sit);
        if (fake.hung) await new Promise(() => undefined);
        const taken = fake.seats.get(placeOf(seat));
        if (taken !== undefined && taken.owner !== seat.owner && taken.expiresAt > clock.now()) return false;
        fake.seats.set(placeOf(seat), { owner: seat.owner, expiresAt: clock.now() + ttlMs });
        return true;
      },
      async leave(seat) {
        if (fake.seats.get(placeOf(seat))?.owner === seat.owner) fake.seats.delete(placeOf(seat));
      },
    },
  };
  return fake;
}

export interface Watched {
  readonly events: PathEvent[];
  readonly observe: (event: PathEvent) => void;
  of<Type extends PathEvent["type"]>(type: Type): Extract<PathEvent, { type: Type }>[];
}

export function watched(): Watched {
  const events: PathEvent[] = [];
  return {
    events,
    observe: (event) => void events.push(event),
    of: <Type extends PathEvent["type"]>(type: Type) =>
      events.filter((event) => event.type === type) as Extract<PathEvent, { type: Type }>[],
  };
}
