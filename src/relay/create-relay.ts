import type { Sink } from "../contracts/sink.ts";
import type { Housekeeping } from "../contracts/housekeeping.ts";
import type { LeaseStore } from "../contracts/lease-store.ts";
import type { Archive, Operator } from "../contracts/operator.ts";
import type { OutboxStore } from "../contracts/outbox-store.ts";
import type { Schema } from "../contracts/store.ts";
import { createLeases } from "./lanes/leases.ts";
import { strategyOf, type StrategyName } from "./lanes/strategies.ts";
import { type Clock, systemClock } from "../core/clock.ts";
import { show, WaybillError } from "../core/errors.ts";
import { type Failpoints, noFailpoints } from "../core/failpoints.ts";
import { uuidv7 } from "../core/ids.ts";
import { observerOf, type ObserveOption } from "../core/observer.ts";
import { checkOptions, positive, whole } from "../core/options.ts";
import { type Random, systemRandom } from "../core/random.ts";
import { type RetryOptions, retrySchedule } from "../core/retry.ts";
import { createWake, type Wake } from "../core/wake.ts";
import { createHousekeeping, type HousekeepingParts } from "./housekeeping/housekeeping.ts";
import { defaultThresholds, type Thresholds } from "./housekeeping/warnings.ts";
import { createPollFeed } from "./poll-feed.ts";
import { createRelayService, type Relay } from "./relay.ts";
import { DEFAULT_ROUTE, listOf, type Route, routeOf } from "./route.ts";

export type { OnceReport, Relay } from "./relay.ts";

export interface RelayOptions {
  readonly store: {
    readonly outbox: OutboxStore;
    readonly leases: LeaseStore;
    readonly schema?: Schema;
    readonly wake?: Wake;
    readonly operator?: Operator;
    readonly housekeeping?: Housekeeping;
  };
  readonly sink: Sink;
  /** A template or a function of the event. @default "{aggregate_type|lower}.events" */
  readonly route?: string | Route;
  /**
   * The only topics that events may go to: an event whose route is none of them goes DEAD unsent, so that a writer cannot invent topics.
   * @default any topic
   */
  readonly topics?: readonly string[];
  /** CloudEvents `source` of every message. @default "/waybill" */
  readonly source?: string;
  /** The most events per window. Windows widen up to it while there is a backlog. @default 1000 */
  readonly batch?: number;
  /** Windows claimed and not settled at once. This times `batch` is how many duplicates one fault may cause. @default 3 */
  readonly batchesInFlight?: number;
  /** Payload bytes per window. This times `batchesInFlight` is what a relay holds. A larger event is claimed alone. @default 8 MiB */
  readonly windowBytes?: number;
  /** Wait after a poll that found nothing. @default 100 */
  readonly pollIntervalMs?: number;
  /** How long other relays wait before they take a dead relay's lanes. @default 10000 */
  readonly leaseMs?: number;
  /** A publish without an answer by then is unknown; must be shorter than the lease. @default half of leaseMs */
  readonly publishTimeoutMs?: number;
  readonly retry?: RetryOptions;
  /** Aggregate types whose followers go on when an event dies; all others stay blocked until an operator acts. */
  readonly skip?: readonly string[];
  /** @default "partitioned" */
  readonly coordination?: StrategyName;
  /** The lanes of coordination "static". */
  readonly own?: readonly number[];
  /** Waits between probes of a broken destination: the first, doubled up to the last. @default 1000 and 30000 */
  readonly probeMs?: { readonly first: number; readonly last: number };
  /**
   * How many topics in trouble have a record and probes of their own; twice as many of those that have taken events of this relay. Events
   * for further topics wait under one record, and come back more slowly. A claim reads the records of its lanes. @default 32
   */
  readonly topicRecords?: number;
  /** Purges and watches the tables while this relay owns lane 0; false: other relays do. @default on, where the store has an operator */
  readonly housekeeping?: false | HousekeepingOptions;
  /** Gets path events: a function, or a logger like `console` or pino. False: none. @default deaths, troubles and recoveries to stderr */
  readonly observe?: ObserveOption;
  /** Name shown in `status`; a unique suffix is added for each `createRelay`. @default generated */
  readonly relayId?: string;
  readonly clock?: Clock;
  /** @internal For tests and simulations. */
  readonly random?: Random;
  /** @internal For tests and simulations. */
  readonly failpoints?: Failpoints;
}

export interface HousekeepingOptions {
  /** @default 1 hour, with some jitter */
  readonly everyMs?: number;
  /** How long published and discarded events stay. @default 7 days */
  readonly retentionMs?: number;
  /** How long idempotency keys are known. @default 7 days */
  readonly keyRetentionMs?: number;
  /** Called with published and discarded events before they are deleted. While it fails, they stay. */
  readonly archive?: Archive;
  /** The thresholds above which the watch warns. */
  readonly warn?: Partial<Thresholds>;
}

/** The names of all options, for code that must know them all. */
export const relayOptionNames = [
  "store",
  "sink",
  "route",
  "topics",
  "source",
  "batch",
  "batchesInFlight",
  "windowBytes",
  "pollIntervalMs",
  "leaseMs",
  "publishTimeoutMs",
  "retry",
  "skip",
  "coordination",
  "own",
  "probeMs",
  "topicRecords",
  "housekeeping",
  "observe",
  "relayId",
  "clock",
  "random",
  "failpoints",
] as const satisfies readonly (keyof RelayOptions)[];

export const housekeepingOptionNames = [
  "everyMs",
  "retentionMs",
  "keyRetentionMs",
  "archive",
  "warn",
] as const satisfies readonly (keyof HousekeepingOptions)[];

/** Publishes events from the store's outbox to the sink. Any number of relays may run on one store. */
export function createRelay(options: RelayOptions): Relay {
  checkOptions("createRelay", options, relayOptionNames);
  const { store, sink } = options;
  const clock = options.clock ?? systemClock;
  const random = options.random ?? systemRandom;
  const observe = observerOf(options.observe);
  const failpoints = options.failpoints ?? noFailpoints;
  const leaseMs = positive("leaseMs", options.leaseMs ?? 10_000);
  const publishTimeoutMs = positive("publishTimeoutMs", options.publishTimeoutMs ?? leaseMs / 2);
  if (publishTimeoutMs >= leaseMs * 0.8) {
    throw new WaybillError(
      "INVALID_OPTION",
      `publishTimeoutMs ${publishTimeoutMs} must be less than 0.8 of leaseMs ${leaseMs}: a publish must end before the lease does`,
    );
  }
  const skipped = new Set(options.skip ?? []);
  const batch = whole("batch", options.batch ?? 1_000);
  const batchesInFlight = whole("batchesInFlight", options.batchesInFlight ?? 3);
  const life = uuidv7(clock, random)();
  const coordinator = createLeases({
    leases: store.leases,
    // A restarted relay is a new one, even under an old name: it must win its former lanes, and its former windows are suspect.
    relay: options.relayId === undefined ? life : `${options.relayId}:${life.slice(-8)}`,
    strategy: strategyOf(options.coordination ?? "partitioned", options.own),
    leaseMs,
    window: batch * batchesInFlight,
    clock,
    random,
    failpoints,
    observe,
  });
  return createRelayService({
    check: async () => store.schema?.check(),
    outbox: store.outbox,
    feedOf: createPollFeed,
    wake: store.wake ?? createWake(),
    sink,
    coordinator,
    route: routeOf(options.route ?? DEFAULT_ROUTE),
    topics: listOf(options.topics),
    source: options.source ?? "/waybill",
    policy: { retry: retrySchedule(options.retry ?? {}, random), skips: (aggregateType) => skipped.has(aggregateType) },
    batch,
    batchesInFlight,
    windowBytes: whole("windowBytes", options.windowBytes ?? 8 * 1024 * 1024),
    pollIntervalMs: positive("pollIntervalMs", options.pollIntervalMs ?? 100),
    publishTimeoutMs,
    leaseMs,
    probeMs: options.probeMs ?? { first: 1_000, last: 30_000 },
    topicRecords: whole("topicRecords", options.topicRecords ?? 32),
    chores: choresOf(options, { coordinator, clock, random, observe }),
    clock,
    random,
    failpoints,
    observe,
  });
}

const day = 86_400_000;

function choresOf(
  { store, housekeeping }: RelayOptions,
  parts: Pick<HousekeepingParts, "coordinator" | "clock" | "random" | "observe">,
): (ending: AbortSignal) => Promise<void> {
  const { operator } = store;
  if (housekeeping === false || (housekeeping === undefined && operator === undefined)) return () => Promise.resolve();
  if (operator === undefined) throw new WaybillError("INVALID_OPTION", "housekeeping needs a store with an operator: leave it out");
  const options = housekeeping ?? {};
  const { warn = {}, archive } = options;
  checkOptions("housekeeping", options, housekeepingOptionNames);
  checkOptions("housekeeping.warn", warn, Object.keys(defaultThresholds));
  if (archive !== undefined && typeof archive !== "function")
    throw new WaybillError("INVALID_OPTION", `housekeeping.archive must be a function that is given events, not ${show(archive)}`);
  for (const [name, value] of Object.entries(warn)) if (value !== Infinity) positive(`housekeeping.warn.${name}`, value);
  return createHousekeeping({
    ...parts,
    store: { operator, ...(store.housekeeping === undefined ? {} : { housekeeping: store.housekeeping }) },
    everyMs: positive("housekeeping.everyMs", options.everyMs ?? 3_600_000),
    retentionMs: positive("housekeeping.retentionMs", options.retentionMs ?? 7 * day),
    keyRetentionMs: positive("housekeeping.keyRetentionMs", options.keyRetentionMs ?? 7 * day),
    archive,
    thresholds: { ...defaultThresholds, ...warn },
  });
}
