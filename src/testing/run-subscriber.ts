import type { Inbox } from "../contracts/inbox.ts";
import type { Sink } from "../contracts/sink.ts";
import type { Source } from "../contracts/source.ts";
import { noFailpoints, type Failpoints } from "../core/failpoints.ts";
import { observerOf } from "../core/observer.ts";
import type { PathEvent } from "../core/path-events.ts";
import type { Random } from "../core/random.ts";
import type { Schemas } from "../subscriber/event.ts";
import { createSubscriber, type SubscriberOptions } from "../subscriber/subscriber.ts";
import { testEvent, type TestEvent } from "./events.ts";
import type { ManualClock } from "./manual-clock.ts";
import type { Passing } from "./passing.ts";
import { watchedSource, type DeliveryFault } from "./watched-source.ts";

/** A subscriber's options, without those that the testbed gives. */
export interface SubscriberUnderTest<InboxTx, Tx = InboxTx, Events extends Schemas = Schemas> extends Omit<
  SubscriberOptions<InboxTx, Tx, Events>,
  "source" | "inbox" | "topics" | "owner" | "clock" | "random" | "failpoints"
> {
  /** @default every topic that the testbed's relay has published to */
  readonly topics?: readonly string[];
}

/** What became of the deliveries of one call. */
export interface DeliveryReport {
  /** Events whose handler's work was committed. */
  readonly handled: number;
  /** Deliveries that had no effect, since their events had been handled before. */
  readonly seen: number;
  /** Attempts that failed and were repeated. */
  readonly failed: number;
  /** Deliveries of event types without a handler. */
  readonly ignored: number;
  /** Events that the subscriber gave up on. */
  readonly parked: readonly ParkedEvent[];
}

export interface ParkedEvent extends TestEvent {
  readonly attempts: number;
  readonly error: string;
}

export interface Surroundings<Tx> {
  readonly broker: Source & Sink;
  readonly inbox: Inbox<Tx>;
  readonly clock: ManualClock;
  readonly random: Random;
  readonly passing: Passing;
}

export interface SubscriberFate {
  readonly fault?: DeliveryFault;
  readonly failpoints?: Failpoints;
  /** The subscriber ends as in a crash, not cleanly. */
  readonly dies?: boolean;
}

/** One subscriber process, from its start until it has nothing left to do. */
export async function runSubscriber<InboxTx, Tx, Events extends Schemas>(
  { broker, inbox, clock, random, passing }: Surroundings<InboxTx>,
  options: SubscriberUnderTest<InboxTx, Tx, Events> & { readonly topics: readonly string[] },
  { fault = "none", failpoints = noFailpoints, dies = false }: SubscriberFate,
): Promise<DeliveryReport> {
  const watched = watchedSource(broker, fault);
  const heard: PathEvent[] = [];
  const { consumer, topics } = options;
  const observe = observerOf(options.observe ?? false);
  const subscriber = createSubscriber<InboxTx, Tx, Events>({
    ...options,
    source: watched.source,
    inbox: { inbox: passing.paced(inbox) },
    clock,
    random,
    failpoints,
    observe(event) {
      heard.push(event);
      observe(event);
    },
  });
  let ended = false;
  const end = (): void => void (ended = true);
  subscriber.stopped.then(end, end);
  await passing.through(subscriber.start(), `the start of ${consumer}`);
  await passing.until(() => ended || watched.idle(topics), `delivering to ${consumer}`);
  await passing.through(dies ? subscriber.stop() : subscriber.drain(), `the end of ${consumer}`);
  await subscriber.stopped;
  return reportOf(heard, watched.delivered);
}

async function reportOf(heard: readonly PathEvent[], delivered: ReturnType<typeof watchedSource>["delivered"]): Promise<DeliveryReport> {
  const count = (holds: (event: PathEvent) => boolean): number => heard.filter(holds).length;
  const died = heard.flatMap((event) => (event.type === "subscriber.died" ? [event] : []));
  return {
    handled: count((event) => event.type === "subscriber.handled" && event.first),
    seen: count((event) => event.type === "subscriber.handled" && !event.first),
    failed: count((event) => event.type === "subscriber.failed"),
    ignored: count((event) => event.type === "subscriber.ignored"),
    parked: await Promise.all(died.map(async ({ id, attempts, error }) => ({ ...(await testEvent(delivered.get(id)!)), attempts, error }))),
  };
}
