import type { Sink } from "../contracts/sink.ts";
import type { Housekeeping } from "../contracts/housekeeping.ts";
import type { LeaseStore } from "../contracts/lease-store.ts";
import type { Archive, Operator } from "../contracts/operator.ts";
import type { OutboxStore } from "../contracts/outbox-store.ts";
import type { Schema } from "../contracts/store.ts";
import type { Tail } from "../contracts/tail-ledger.ts";
import { createLeases } from "./lanes/leases.ts";
import { strategyOf } from "./lanes/strategies.ts";
import { type Clock, systemClock } from "../core/clock.ts";
import { show, WaybillError } from "../core/errors.ts";
import { type Failpoints, noFailpoints } from "../core/failpoints.ts";
import { uuidv7 } from "../core/ids.ts";
import { observerOf, type ObserveOption } from "../core/observer.ts";
import { checkOptions, positive } from "../core/options.ts";
import { type Random, systemRandom } from "../core/random.ts";
import { retrySchedule } from "../core/retry.ts";
import { type OptionsOf, settle } from "../core/settings.ts";
import { createWake, type Wake } from "../core/wake.ts";
import { createHousekeeping, type HousekeepingParts } from "./housekeeping/housekeeping.ts";
import { defaultThresholds, type Thresholds } from "./housekeeping/warnings.ts";
import { createPollFeed } from "./poll-feed.ts";
import { createSwitchingFeed } from "./tail/switch.ts";
import type { Feed } from "./feed.ts";
import type { FeedParts } from "./parts.ts";
import { createRelayService, type Relay } from "./relay.ts";
import { listOf, routeOf } from "./route.ts";
import { housekeepingSettings, relaySettings } from "./settings.ts";

export type { OnceReport, Relay } from "./relay.ts";

export interface RelayOptions extends OptionsOf<typeof relaySettings> {
  readonly store: {
    readonly outbox: OutboxStore;
    readonly leases: LeaseStore;
    readonly schema?: Schema;
    readonly wake?: Wake;
    readonly operator?: Operator;
    readonly housekeeping?: Housekeeping;
    readonly tail?: Tail;
  };
  readonly sink: Sink;
  /** Purges and watches the tables while this relay owns lane 0; false: other relays do. @default on, where the store has an operator */
  readonly housekeeping?: false | HousekeepingOptions;
  /** Gets path events: a function, or a logger like `console` or pino. False: none. @default deaths, troubles and recoveries to stderr */
  readonly observe?: ObserveOption;
  readonly clock?: Clock;
  /** @internal For tests and simulations. */
  readonly random?: Random;
  /** @internal For tests and simulations. */
  readonly failpoints?: Failpoints;
}

export interface HousekeepingOptions extends OptionsOf<typeof housekeepingSettings> {
  /** Called with published and discarded events before they are deleted. While it fails, they stay. */
  readonly archive?: Archive;
  /** The thresholds above which the watch warns. */
  readonly warn?: Partial<Thresholds>;
}

/** Publishes events from the store's outbox to the sink. Any number of relays may run on one store. */
export function createRelay(options: RelayOptions): Relay {
  const settings = settle("createRelay", relaySettings, options, {
    store: true,
    sink: true,
    housekeeping: true,
    observe: true,
    clock: true,
    random: true,
    failpoints: true,
  });
  const { batch, batchesInFlight, leaseMs, publishTimeoutMs = leaseMs / 2 } = settings;
  const { store, sink } = options;
  const clock = options.clock ?? systemClock;
  const random = options.random ?? systemRandom;
  const observe = observerOf(options.observe);
  const failpoints = options.failpoints ?? noFailpoints;
  if (publishTimeoutMs >= leaseMs * 0.8) {
    throw new WaybillError(
      "INVALID_OPTION",
      `publishTimeoutMs ${publishTimeoutMs} must be less than 0.8 of leaseMs ${leaseMs}: a publish must end before the lease does`,
    );
  }
  const skipped = new Set(settings.skip);
  const life = uuidv7(clock, random)();
  const coordinator = createLeases({
    leases: store.leases,
    // A restarted relay is a new one, even under an old name: it must win its former lanes, and its former windows are suspect.
    relay: settings.relayId === undefined ? life : `${settings.relayId}:${life.slice(-8)}`,
    strategy: strategyOf(settings.coordination, settings.own),
    leaseMs,
    window: batch * batchesInFlight,
    clock,
    random,
    failpoints,
    observe,
  });
  return createRelayService({
    ...settings,
    async check() {
      await store.schema?.check();
      if (settings.mode === "tail") await store.tail?.tailer.check();
    },
    outbox: store.outbox,
    feedOf: feedOf(settings.mode, store),
    wake: store.wake ?? createWake(),
    sink,
    coordinator,
    route: routeOf(settings.route),
    topics: listOf(settings.topics),
    policy: { retry: retrySchedule(settings.retry, random), skips: (aggregateType) => skipped.has(aggregateType) },
    publishTimeoutMs,
    chores: choresOf(options, { coordinator, clock, random, observe }),
    clock,
    random,
    failpoints,
    observe,
  });
}

function feedOf(mode: "poll" | "tail" | "auto", { tail, leases }: RelayOptions["store"]): (parts: FeedParts) => Feed {
  if (mode === "tail" && tail === undefined)
    throw new WaybillError(
      "INVALID_OPTION",
      'mode "tail" needs a store that can read its database\'s log: postgres with a url or a logUrl',
    );
  return (parts) =>
    mode === "poll" || tail === undefined || parts.once ? createPollFeed(parts) : createSwitchingFeed(parts, tail, leases);
}

function choresOf(
  { store, housekeeping }: RelayOptions,
  parts: Pick<HousekeepingParts, "coordinator" | "clock" | "random" | "observe">,
): (ending: AbortSignal) => Promise<void> {
  const { operator } = store;
  if (housekeeping === false || (housekeeping === undefined && operator === undefined)) return () => Promise.resolve();
  if (operator === undefined) throw new WaybillError("INVALID_OPTION", "housekeeping needs a store with an operator: leave it out");
  const options = housekeeping ?? {};
  const settings = settle("housekeeping", housekeepingSettings, options, { archive: true, warn: true }, "housekeeping.");
  const { warn = {}, archive } = options;
  checkOptions("housekeeping.warn", warn, Object.keys(defaultThresholds));
  if (archive !== undefined && typeof archive !== "function")
    throw new WaybillError("INVALID_OPTION", `housekeeping.archive must be a function that is given events, not ${show(archive)}`);
  for (const [name, value] of Object.entries(warn)) if (value !== Infinity) positive(`housekeeping.warn.${name}`, value);
  return createHousekeeping({
    ...parts,
    ...settings,
    store: { operator, ...(store.housekeeping === undefined ? {} : { housekeeping: store.housekeeping }) },
    archive,
    thresholds: { ...defaultThresholds, ...warn },
  });
}
