import type { Outcome } from "../contracts/outbox-store.ts";
import type { PublishResult } from "../contracts/sink.ts";
import { asError, isWaybillError, WaybillError } from "../core/errors.ts";
import { otherTopics } from "../core/other-topics.ts";
import { onAbort } from "../core/time.ts";
import type { Breaker } from "./breaker.ts";
import type { FedWindow, Feed } from "./feed.ts";
import { judge, refuse } from "./judge.ts";
import type { Order } from "./order.ts";
import { pack, type Concluded, type Parcel } from "./parcel.ts";
import type { LifeParts } from "./parts.ts";
import { readPayload } from "./read.ts";
import { send } from "./send.ts";
import { tellPublished } from "./tell.ts";

interface PublisherOptions extends LifeParts {
  readonly feed: Pick<Feed, "payload">;
  readonly breaker: Breaker;
  readonly order: Order;
  /** Resolves once the outcomes of this window's parcels are durable. */
  settle(window: FedWindow, concluded: readonly Concluded[]): Promise<void>;
}

interface Publisher {
  /** Publishes the window's events, each when its turn in its aggregate has come, and has them settled. */
  take(window: FedWindow): void;
  /** Gives back what is not sent yet of these windows, which must be all that are not settled. */
  recall(windows: readonly FedWindow[]): void;
}

/** What may be sent to one topic, and how much is on its way there. A slow topic keeps no other waiting. */
interface Destination {
  readonly topic: string;
  readonly ready: Parcel[];
  flights: number;
  /** How many round trips the next flight of hot aggregates may take. */
  trips: number;
  /** The last flight was of hot aggregates: others that wait go before the next. */
  wasHot: boolean;
}

/** How many calls of the sink may be under way for one topic. Further parcels wait, and go together. */
const mostFlights = 8;

/**
 * While so many topics have flights, further topics that have never taken an event share theirs: a writer may invent any number of topics.
 * One of them that does not answer delays the others.
 */
const mostAlone = 64;
/** How many of them share a flight: sinks do some work for each topic, and the answers to other events wait for it. */
const mostShared = 128;

/**
 * A flight of hot aggregates takes as many round trips as fit into `ms`, judged by the last such flight, and at most `most`. One deadline
 * covers all of them, and each trip goes on where the one before it was stored.
 */
const manyTrips = { ms: 10, most: 32 };

export function createPublisher(options: PublisherOptions): Publisher {
  const { sink, breaker, coordinator, order, policy, clock, draining, stopping } = options;
  const run = sink.can.run ?? Infinity;
  const destinations = new Map<string, Destination>();
  /** What one step has found out, by window; and where there is more to send. */
  let concluded = new Map<FedWindow, Concluded[]>();
  const stirred = new Set<Destination>();
  /** Events that were claimed without their payload. One of them is in memory at a time, until it is settled. */
  const unread: Parcel[] = [];
  let inHand: Parcel | null = null;
  const recalled = new WeakSet<FedWindow>();

  const conclude = (parcel: Parcel, outcome: Outcome): void => {
    note(parcel, outcome);
    if (outcome.as === "published") return begin(order.published(parcel));
    const { next, back } = order.stopped(parcel);
    for (const follower of back) note(follower, returned(follower));
    begin(next);
  };
  const note = (parcel: Parcel, outcome: Outcome): void => {
    const known = concluded.get(parcel.window);
    if (known === undefined) concluded.set(parcel.window, [{ parcel, outcome }]);
    else known.push({ parcel, outcome });
  };

  /** Its turn in its aggregate has come. */
  const begin = (parcel: Parcel | null): void => {
    if (parcel === null || parcel.sent) return;
    const { claim, topic } = parcel;
    if (!mayGo(parcel)) return conclude(parcel, returned(parcel));
    if (parcel.fault !== null) {
      // However many topics are not on the list, they are one cause.
      const names = options.topics?.has(topic) === false ? [topic] : [];
      return conclude(parcel, refuse(claim, parcel.fault, false, policy, names));
    }
    if (claim.unread !== undefined) {
      // In a window with others: the sink takes larger messages than at the time of the claim, so the next claim decides.
      if (!parcel.unread) return conclude(parcel, returned(parcel));
      if (!breaker.admits(topic)) return conclude(parcel, held(parcel));
      unread.push(parcel);
      return readNext();
    }
    const destination = destinationOf(topic);
    destination.ready.push(parcel);
    stirred.add(destination);
  };
  const mayGo = (parcel: Parcel): boolean => !draining.aborted && !isRecalled(parcel) && isOurs(parcel);
  const isOurs = ({ claim }: Parcel): boolean => coordinator.holding.lanes.get(claim.lane) === claim.epoch;
  /** A payload that is read, or being read, is not given back: reading it may take longer than any window has. */
  const isRecalled = (parcel: Parcel): boolean => parcel !== inHand && recalled.has(parcel.window);
  const held = ({ claim, topic }: Parcel): Outcome => ({
    claim,
    as: "returned",
    destination: { topic, why: breaker.why(topic), under: breaker.under(topic) },
  });
  const destinationOf = (its: string): Destination => {
    const alone = destinations.has(its) || destinations.size < mostAlone || breaker.isFamiliar(its);
    const topic = alone ? its : otherTopics;
    let known = destinations.get(topic);
    if (known === undefined) destinations.set(topic, (known = { topic, ready: [], flights: 0, trips: 1, wasHot: false }));
    return known;
  };

  /** Sends what may be sent now, and settles what is known. Every step ends with it. */
  const proceed = (): void => {
    for (const destination of stirred) {
      stirred.delete(destination);
      while (destination.ready.length > 0 && destination.flights < mostFlights) {
        const { flight, trips } = load(destination);
        if (flight.length > 0) options.track(fly(destination, flight, trips));
      }
      if (destination.flights === 0) destinations.delete(destination.topic);
    }
    for (const [window, known] of concluded) options.track(settle(window, known));
    concluded = new Map();
  };
  const settle = async (window: FedWindow, known: readonly Concluded[]): Promise<void> => {
    await options.settle(window, known);
    if (inHand?.window !== window) return;
    inHand = null;
    readNext();
  };

  /**
   * What goes next, at most a batch: as much of each aggregate as one round trip takes. Aggregates with more than that waiting are hot.
   * They go in flights of their own, by turns with the others, so that neither waits for the answers to the other. Such a flight takes more
   * than one trip where the broker is quick.
   */
  const load = (destination: Destination): { readonly flight: readonly Parcel[]; readonly trips: number | null } => {
    const { ready, trips, wasHot } = destination;
    const width = destination.topic === otherTopics ? Math.min(mostShared, options.batch) : options.batch;
    const isHot = ({ next }: Parcel): boolean => next !== null && run !== Infinity;
    const some = ready.some(isHot);
    const hot = some && !(wasHot && ready.some((each) => !isHot(each)));
    const going = some ? ready.filter((each) => isHot(each) === hot).slice(0, width) : ready.splice(0, width);
    if (some) ready.splice(0, ready.length, ...without(ready, going));
    destination.wasHot = hot;
    const flight: Parcel[] = [];
    let longest = 0;
    for (const first of going) {
      let taken = 0;
      for (let each: Parcel | null = first; each !== null && taken < trips * run && isReady(first, each); each = each.next, taken++) {
        each.sent = true;
        flight.push(each);
      }
      longest = Math.max(longest, taken);
    }
    return { flight, trips: hot ? Math.ceil(longest / run) : null };
  };
  /** Whether `each` may be sent, as the first of its aggregate or behind it. Concludes the first one when it may not. */
  const isReady = (first: Parcel, each: Parcel): boolean => {
    if (each !== first && (each.topic !== first.topic || each.fault !== null || each.claim.unread !== undefined)) return false;
    const ours = mayGo(each);
    if (ours && breaker.admit(each.topic, each.envelope.id)) return true;
    if (each === first) conclude(each, ours ? held(each) : returned(each));
    return false;
  };

  /** `trips`: how many round trips it takes; null where no aggregate of it is hot. */
  const fly = async (destination: Destination, flight: readonly Parcel[], trips: number | null): Promise<void> => {
    destination.flights++;
    const started = clock.monotonic();
    const answers = await send(options, flight, stopping);
    const ms = clock.monotonic() - started;
    destination.flights--;
    if (trips !== null) destination.trips = tripsAfter(trips, ms);
    stirred.add(destination);
    land(flight, answers, ms);
    proceed();
  };
  const land = (flight: readonly Parcel[], answers: readonly PublishResult[] | null, ms: number): void => {
    const published: Parcel[] = [];
    /** Aggregates of which an event of this flight was not stored. */
    const stopped = new Set<string>();
    flight.forEach((parcel, at) => {
      parcel.sent = false;
      const outcome = answers === null ? unsent(parcel) : outcomeOf(parcel, answers[at] ?? noResult(sink.name));
      if (outcome.as === "published") published.push(parcel);
      // Of an aggregate's events that were not stored, only the first is judged. The turn of the others comes when that one is settled.
      const followed = outcome.as !== "published" && stopped.has(parcel.aggregate);
      if (outcome.as !== "published") stopped.add(parcel.aggregate);
      conclude(parcel, followed ? returned(parcel) : outcome);
    });
    if (published.length > 0) tellPublished(options, published, ms);
  };
  const unsent = (parcel: Parcel): Outcome => {
    breaker.unsent(parcel.topic, parcel.envelope.id);
    return returned(parcel);
  };
  /** What an answer means for the event, and for its topic. */
  const outcomeOf = (parcel: Parcel, result: PublishResult): Outcome => {
    const { claim, topic, envelope } = parcel;
    switch (result.status) {
      case "stored":
        breaker.answered(topic, envelope.id);
        break;
      case "skipped":
        return unsent(parcel);
      case "unknown":
        // The relay called the publish off, which says nothing about the destination.
        if (stopping.aborted) return unsent(parcel);
        if (breaker.failed(topic, envelope.id, result.error, true)) return refuse(claim, result.error, true, policy);
        break;
      case "refused":
        if (result.blame === "event") breaker.answered(topic, envelope.id);
        else breaker.failed(topic, envelope.id, result.error, false);
    }
    return judge(claim, { topic, under: breaker.under(topic) }, result, policy);
  };

  const readNext = (): void => {
    inHand ??= unread.shift() ?? null;
    if (inHand?.unread === true) options.track(readAlone(inHand));
  };
  const readAlone = async (parcel: Parcel): Promise<void> => {
    parcel.unread = false;
    const read = await readOf(parcel);
    if ("as" in read) conclude(parcel, read);
    else {
      const { unread: _, ...claim } = parcel.claim;
      parcel.envelope = { ...parcel.envelope, data: read.data };
      parcel.claim = { ...claim, envelope: parcel.envelope };
      begin(parcel);
    }
    proceed();
  };
  const readOf = async (parcel: Parcel): Promise<{ readonly data: Uint8Array } | Outcome> => {
    const { claim, topic } = parcel;
    // Its topic may have failed, or its lane gone, while it waited.
    if (!mayGo(parcel)) return returned(parcel);
    if (!breaker.admits(topic)) return held(parcel);
    try {
      const data = await readPayload(options, claim, draining);
      return data === null ? returned(parcel) : { data };
    } catch (cause) {
      // A store that fails or is silent here counts as this event's failure: the event waits for its backoff, and others go on.
      const error = asError(cause);
      if (isWaybillError(error) && error.code === "ROW_UNREADABLE") return refuse(claim, error, false, policy);
      const why = `its payload of ${claim.unread ?? 0} bytes could not be read: ${error.message}`;
      return refuse(claim, new WaybillError("ROW_UNREADABLE", why), true, policy);
    }
  };

  const giveBack = (from: Parcel[]): void => {
    const kept = from.filter(mayGo);
    for (const parcel of without(from.splice(0, from.length, ...kept), kept)) conclude(parcel, returned(parcel));
  };
  onAbort(draining, () => {
    for (const { ready } of destinations.values()) giveBack(ready);
    proceed();
  });

  return {
    take(window) {
      for (const parcel of pack(window, options)) {
        const turn = order.admit(parcel);
        if (turn === "go") begin(parcel);
        else if (turn === "back") note(parcel, returned(parcel));
      }
      proceed();
    },
    recall(windows) {
      for (const window of windows) recalled.add(window);
      for (const from of [unread, ...[...destinations.values()].map(({ ready }) => ready)]) giveBack(from);
      proceed();
    },
  };
}

const tripsAfter = (trips: number, ms: number): number =>
  Math.max(1, Math.min(2 * trips, manyTrips.most, Math.floor((manyTrips.ms * trips) / ms)));

const without = (all: readonly Parcel[], some: readonly Parcel[]): readonly Parcel[] => {
  const gone = new Set(some);
  return all.filter((each) => !gone.has(each));
};

const returned = ({ claim }: Parcel): Outcome => ({ claim, as: "returned" });

const noResult = (name: string): PublishResult => ({
  status: "unknown",
  error: new WaybillError("PUBLISH_UNKNOWN", `${name} gave no result`),
});
