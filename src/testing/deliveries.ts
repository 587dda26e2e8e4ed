import { AssertionError } from "node:assert";
import { WaybillError } from "../core/errors.ts";
import type { Failpoints } from "../core/failpoints.ts";
import type { Schemas } from "../subscriber/event.ts";
import { assertEvents, type ExpectedEvent } from "./events.ts";
import { runSubscriber, type DeliveryReport, type SubscriberFate, type SubscriberUnderTest, type Surroundings } from "./run-subscriber.ts";

/** The subscribing half of a testbed. Each call publishes what is due before it delivers. */
export interface Deliveries<Tx, Type extends string = string> {
  /**
   * Delivers everything that this consumer has not acknowledged, and ends when nothing is left. Failed attempts are
   * retried on their schedule, without real waiting. Fails when the subscriber gives up on an event.
   */
  deliver<Handle = Tx, const Events extends Schemas = Schemas>(
    subscriber: SubscriberUnderTest<Tx, Handle, Events>,
  ): Promise<DeliveryReport>;
  /** Delivers, and fails unless the subscriber gave up on exactly these events, in this order. */
  assertParked<Handle = Tx, const Events extends Schemas = Schemas>(
    subscriber: SubscriberUnderTest<Tx, Handle, Events>,
    expected: readonly ExpectedEvent<Type>[],
  ): Promise<DeliveryReport>;
  /** Delivers every message twice in a row, as a broker may. The handler must not run for the second. */
  deliverTwice<Handle = Tx, const Events extends Schemas = Schemas>(
    subscriber: SubscriberUnderTest<Tx, Handle, Events>,
  ): Promise<DeliveryReport>;
  /** The subscriber commits its effects and crashes before an ack reaches the broker. The next subscriber gets everything again. */
  crashBeforeAck<Handle = Tx, const Events extends Schemas = Schemas>(
    subscriber: SubscriberUnderTest<Tx, Handle, Events>,
  ): Promise<DeliveryReport>;
  /**
   * Every handler runs to its end, its commit is lost, and it runs again. Its effects through `tx` happen once. Effects elsewhere happen
   * twice, and this is how to find them.
   */
  crashBeforeCommit<Handle = Tx, const Events extends Schemas = Schemas>(
    subscriber: SubscriberUnderTest<Tx, Handle, Events>,
  ): Promise<DeliveryReport>;
}

interface DeliveriesOptions<Tx> extends Surroundings<Tx> {
  /** Publishes what is due, and answers the topics that have been published to so far. */
  readonly publish: () => Promise<readonly string[]>;
}

const nothing: DeliveryReport = { handled: 0, seen: 0, failed: 0, ignored: 0, parked: [] };

export function createDeliveries<Tx>({ publish, ...surroundings }: DeliveriesOptions<Tx>): Deliveries<Tx> {
  /** Runs one subscriber process after the other, each with its fate. */
  const run = async <Handle, Events extends Schemas>(
    subscriber: SubscriberUnderTest<Tx, Handle, Events>,
    fates: readonly SubscriberFate[],
  ): Promise<DeliveryReport> => {
    const published = await publish();
    const topics = subscriber.topics ?? published;
    if (topics.length === 0) return nothing;
    let report = nothing;
    for (const fate of fates) report = sum(report, await runSubscriber(surroundings, { ...subscriber, topics }, fate));
    return report;
  };
  const faulty = async <Handle, Events extends Schemas>(
    subscriber: SubscriberUnderTest<Tx, Handle, Events>,
    fates: readonly SubscriberFate[],
    caller: object,
  ): Promise<DeliveryReport> => {
    const report = await run(subscriber, fates);
    assertNothingParked(subscriber.consumer, report, caller);
    assertHandled(subscriber.consumer, report, caller);
    return report;
  };

  const deliveries: Deliveries<Tx> = {
    async deliver(subscriber) {
      const report = await run(subscriber, [{}]);
      assertNothingParked(subscriber.consumer, report, deliveries.deliver);
      return report;
    },
    async assertParked(subscriber, expected) {
      const report = await run(subscriber, [{}]);
      assertEvents(report.parked, expected, "parked", deliveries.assertParked);
      return report;
    },
    deliverTwice: (subscriber) => faulty(subscriber, [{ fault: "twice" }], deliveries.deliverTwice),
    crashBeforeAck: (subscriber) => faulty(subscriber, [{ fault: "lost-acks", dies: true }, {}], deliveries.crashBeforeAck),
    crashBeforeCommit: (subscriber) => faulty(subscriber, [{ failpoints: lostCommits() }], deliveries.crashBeforeCommit),
  };
  return deliveries;
}

/** The first commit of each event's work is lost with its connection; that costs no attempt. */
function lostCommits(): Failpoints {
  const lost = new Set<string>();
  return {
    hit(at, ids) {
      if (at !== "before-commit" || ids.every((id) => lost.has(id))) return;
      for (const id of ids) lost.add(id);
      throw new WaybillError("STORE_UNAVAILABLE", "the testbed lost the connection before the commit");
    },
  };
}

function sum(a: DeliveryReport, b: DeliveryReport): DeliveryReport {
  return {
    handled: a.handled + b.handled,
    seen: a.seen + b.seen,
    failed: a.failed + b.failed,
    ignored: a.ignored + b.ignored,
    parked: [...a.parked, ...b.parked],
  };
}

/** A parked event that the test did not expect must not go unnoticed. */
function assertNothingParked(consumer: string, { parked }: DeliveryReport, caller: object): void {
  const [first] = parked;
  if (first === undefined) return;
  const { type, aggregateType, aggregateId, attempts, error } = first;
  const times = attempts === 1 ? "1 attempt" : `${attempts} attempts`;
  const more = parked.length > 1 ? `, and on ${parked.length - 1} more` : "";
  throw new AssertionError({
    message: `${consumer} gave up on ${type} of ${aggregateType} ${aggregateId} after ${times}${more}: ${error}`,
    actual: parked,
    expected: [],
    stackStartFn: caller as () => void,
  });
}

/** A fault that hit no event has proven nothing. */
function assertHandled(consumer: string, { handled }: DeliveryReport, caller: object): void {
  if (handled > 0) return;
  throw new AssertionError({
    message: `${consumer} handled no event, so that nothing is proven: add one first that it has a handler for`,
    stackStartFn: caller as () => void,
  });
}
