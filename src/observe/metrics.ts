import type { ConsumerState } from "../contracts/consumers.ts";
import type { Watch } from "../contracts/housekeeping.ts";
import type { LogLook } from "../contracts/log-tailer.ts";
import type { Status } from "../contracts/operator.ts";
import type { State } from "../core/event.ts";
import { ageBounds } from "../core/ages.ts";
import { watched, withAges, type Observe, type PathEvent } from "../core/path-events.ts";
import { packageVersion } from "../core/version.ts";
import { inboxGauges, inboxUp, sourceGauges, type LookedAt } from "./consumer-gauges.ts";
import type { KnownConsumer } from "./known.ts";
import { gauge, written, type Described, type Gauge, type Series } from "./series.ts";

/** Counts what the relays and subscribers of this process do, and shows it in Prometheus' text format. */
export interface Metrics {
  /** The observer that counts. */
  readonly observe: Observe;
  /**
   * The page: the counters, and gauges for each argument that is given: the outbox (`store.operator.status()`), the consumers of an inbox
   * (`store.consumers.look()`), the consumers of this process (`subscriber.look()`), and how far known consumers are behind, whether or not
   * they run, and the slot of the database's log (`store.tail.tailer.look()`). Null for a database that does not answer.
   */
  text(
    status?: Status | null,
    consumers?: readonly ConsumerState[] | null,
    looks?: readonly LookedAt[],
    known?: readonly KnownConsumer[],
    log?: LogLook | null,
  ): string;
}

interface Counter {
  readonly name: string;
  readonly help: string;
  /** Fields of the event. A counter by consumer starts at 0 with its subscriber; others with labels appear with their first event. */
  readonly labels: readonly string[];
  /** What this event adds; null for an event that is not counted here. */
  readonly by: (event: PathEvent) => number | null;
  /** The values of its one label that appear at once, at 0. */
  readonly from?: readonly string[];
}

type Of<T extends PathEvent["type"]> = Extract<PathEvent, { readonly type: T }>;

const counter = <T extends PathEvent["type"]>(
  type: T,
  name: string,
  help: string,
  by: (event: Of<T>) => number,
  ...labels: readonly (keyof Of<T> & string)[]
): Counter => ({ name, help, labels, by: (event) => (event.type === type ? by(event as Of<T>) : null) });

const once = (): number => 1;

export const counters: readonly Counter[] = [
  counter("relay.claimed", "waybill_claimed_total", "Events claimed by this relay.", ({ count }) => count),
  counter("relay.published", "waybill_published_total", "Events that the broker acknowledged to this relay.", ({ count }) => count),
  counter("relay.failed", "waybill_failed_total", "Failed attempts that belong to an event.", once),
  counter("relay.died", "waybill_deaths_total", "Events that became DEAD.", once),
  counter("relay.trouble", "waybill_trouble_total", "Steps that went wrong, by step.", once, "step"),
  counter("destination.opened", "waybill_destination_opened_total", "Times a topic stopped taking events.", once),
  counter("lanes.lost", "waybill_lanes_lost_total", "Lanes that another relay took over.", ({ lanes }) => lanes.length),
  counter("housekeeping.done", "waybill_purged_total", "Published and discarded events that this relay deleted.", ({ purged }) => purged),
  {
    ...counter("watch.warning", "waybill_warnings_total", "Warnings of the watch over the tables, by what they are about.", once, "what"),
    from: watched,
  },
  counter("subscriber.handled", "waybill_applied_total", "Events applied, by consumer.", ({ first }) => (first ? 1 : 0), "consumer"),
  counter(
    "subscriber.handled",
    "waybill_duplicates_total",
    "Deliveries of events that were applied before, by consumer.",
    ({ first }) => (first ? 0 : 1),
    "consumer",
  ),
  counter("subscriber.failed", "waybill_handler_failed_total", "Failed attempts to apply an event, by consumer.", once, "consumer"),
  counter("subscriber.ignored", "waybill_ignored_total", "Deliveries of event types without a handler, by consumer.", once, "consumer"),
  counter("subscriber.died", "waybill_letters_total", "Messages that a subscriber gave up on, by consumer.", once, "consumer"),
  counter(
    "subscriber.missed",
    "waybill_missed_total",
    "Times that the broker removed messages before they were read, by consumer and topic.",
    once,
    "consumer",
    "topic",
  ),
  counter(
    "subscriber.trouble",
    "waybill_subscriber_trouble_total",
    "Steps of a subscriber that went wrong, by consumer and step.",
    once,
    "consumer",
    "step",
  ),
];

const storeUp = { name: "waybill_store_up", help: "1 when the store answers, within ten seconds.", labels: [] };
const buildInfo = { name: "waybill_build_info", help: "Always 1; the labels tell which versions run.", labels: ["version", "node"] };

/** The one histogram. Its name ends in _bucket, _sum and _count on the page. */
export const publishLatency = {
  name: "waybill_publish_latency_seconds",
  help: "Time from an event's created_at to the broker's acknowledgement, by the database's clock. A delayed event counts its delay.",
};

const statusGauges: readonly Gauge<Status>[] = [
  gauge(
    "waybill_events",
    "Events in the outbox, by state.",
    ({ states }) => Object.entries(states).map(([state, n]) => [{ state }, n]),
    "state",
  ),
  gauge(
    "waybill_events_estimated",
    "1 when waybill_events of this state is an estimate: beyond 100,000, events are not counted one by one.",
    ({ states, estimated }) => Object.keys(states).map((state) => [{ state }, estimated.includes(state as State) ? 1 : 0]),
    "state",
  ),
  gauge(
    "waybill_oldest_unpublished_seconds",
    "Age of the oldest event that waits to be published; 0 when none does.",
    ({ oldestUnpublishedMs }) => (oldestUnpublishedMs ?? 0) / 1000,
  ),
  gauge("waybill_oldest_claimable_seconds", "Age of the oldest event that a relay may publish now; 0 when there is none.", ({ oldest }) =>
    inSeconds(oldest.claimableMs),
  ),
  gauge(
    "waybill_oldest_blocked_seconds",
    "Age of the oldest event that waits for another event of its aggregate, or for its topic; 0 when none does.",
    ({ oldest }) => inSeconds(oldest.blockedMs),
  ),
  gauge("waybill_oldest_dead_seconds", "Age of the oldest DEAD event; 0 when there is none.", ({ oldest }) => inSeconds(oldest.deadMs)),
  gauge(
    "waybill_oldest_by_type_seconds",
    "The same ages by aggregate type, of the 100 types that wait longest.",
    ({ oldest }) =>
      oldest.types.flatMap(({ aggregateType: aggregate_type, claimableMs, blockedMs, deadMs }) =>
        Object.entries({ claimable: claimableMs, blocked: blockedMs, dead: deadMs }).flatMap(([waits, ms]) =>
          ms === null ? [] : [[{ aggregate_type, waits }, ms / 1000] as const],
        ),
      ),
    "aggregate_type",
    "waits",
  ),
  gauge("waybill_relays", "Relays whose lease has not run out.", ({ relays }) => relays.filter(({ live }) => live).length),
  gauge(
    "waybill_lanes",
    "Lanes that a relay owns, and free ones.",
    ({ lanes }) => [
      [{ held: "owned" }, lanes.owned],
      [{ held: "free" }, lanes.free],
    ],
    "held",
  ),
  gauge(
    "waybill_held_aggregates",
    "Aggregates that wait for an event of theirs or for their destination.",
    ({ holds }) => holds.aggregates,
  ),
  gauge(
    "waybill_waiting_aggregates",
    "Aggregates that wait for a destination, by topic.",
    ({ breakers }) => breakers.map(({ destination, aggregates }) => [{ topic: destination }, aggregates]),
    "topic",
  ),
  gauge("waybill_window_events", "Events claimed and not settled, over all relays.", ({ window }) => window.events),
  gauge("waybill_suspects", "Events of dead windows that wait to be tried alone.", ({ window }) => window.suspects),
  gauge("waybill_log_read", "1 while a relay reads the database's log, and 0 while relays poll.", ({ tail }) =>
    tail === undefined ? undefined : tail.relay === null ? 0 : 1,
  ),
  gauge("waybill_schema_version", "Version of the tables.", ({ schemaVersion }) => schemaVersion),
  gauge("waybill_outbox_bytes", "Size of the outbox with its indexes.", ({ watch }) => watch?.bytes),
  gauge(
    "waybill_dead_rows",
    "Rows of the outbox that were deleted or replaced and are not cleaned up yet.",
    ({ watch }) => watch?.deadRows,
  ),
  gauge("waybill_oldest_writer_seconds", "Age of the oldest open transaction that has written; 0 when there is none.", ({ watch }) =>
    ageOf(watch?.writer),
  ),
  gauge("waybill_horizon_seconds", "Age of what keeps dead rows from being cleaned up; 0 when nothing does.", ({ watch }) =>
    ageOf(watch?.horizon),
  ),
];

/** Only where there is a slot. */
const logGauges: readonly Gauge<LogLook>[] = [
  gauge("waybill_log_retained_bytes", "How much of its log the database keeps for relays.", ({ retainedBytes }) => retainedBytes),
  gauge(
    "waybill_log_safe_bytes",
    "How much more the database may write before it gives the slot up; absent where it never does.",
    ({ safeBytes }) => safeBytes ?? undefined,
  ),
  gauge(
    "waybill_log_behind_seconds",
    "How far the relay that reads the log is behind; absent where the server does not tell.",
    ({ behindMs }) => (behindMs === null ? undefined : behindMs / 1000),
  ),
];

export const gauges: readonly Described[] = [buildInfo, storeUp, ...statusGauges, ...logGauges, inboxUp, ...inboxGauges, ...sourceGauges];

export function createMetrics(): Metrics {
  const versions = { version: packageVersion() ?? "unknown", node: process.versions.node };
  const latencies = new Array<number>(ageBounds.length + 1).fill(0);
  let latencySumMs = 0;
  /** A counter that appears with its first event shows no increase: an alert would miss that event. */
  const totals = counters.map((each) => {
    const begun = each.labels.length === 0 ? [""] : (each.from ?? []).map((value) => written({ [each.labels[0]!]: value }));
    return { ...each, series: new Map(begun.map((key) => [key, 0])) };
  });
  const begin = (consumer: string): void => {
    const key = written({ consumer });
    for (const { labels, series } of totals) if (labels.join() === "consumer" && !series.has(key)) series.set(key, 0);
  };
  return {
    observe: withAges((event) => {
      if (event.type === "relay.published" && event.ages !== undefined) {
        event.ages.counts.forEach((n, at) => (latencies[at]! += n));
        latencySumMs += event.ages.sumMs;
      }
      if (event.type === "subscriber.started") begin(event.consumer);
      for (const { by, labels, series } of totals) {
        const more = by(event);
        if (more === null) continue;
        const key = written(Object.fromEntries(labels.map((name) => [name, String(event[name as keyof PathEvent])])));
        series.set(key, (series.get(key) ?? 0) + more);
      }
    }),
    text(status, consumers, looks = [], known = [], log = null) {
      return [
        ...lines(buildInfo, [[versions, 1]]),
        ...(status === undefined ? [] : gaugeLines(storeUp, statusGauges, status)),
        ...(log === null || log.state === "missing" ? [] : logGauges.flatMap((each) => lines(each, each.of(log)))),
        ...(consumers === undefined ? [] : gaugeLines(inboxUp, inboxGauges, consumers)),
        ...sourceGauges.flatMap((each) => {
          const series = each.of({ looks, known });
          return series === null || series.length === 0 ? [] : lines(each, series);
        }),
        ...totals.flatMap(({ name, help, series }) => [
          ...head(name, help, "counter"),
          ...[...series].map(([labels, value]) => `${name}${labels} ${value}`),
        ]),
        ...histogram(publishLatency, latencies, latencySumMs / 1000),
        "",
      ].join("\n");
    },
  };
}

const lines = ({ name, help }: Described, series: Series | null): string[] =>
  series === null ? [] : [...head(name, help, "gauge"), ...series.map(([labels, value]) => `${name}${written(labels)} ${value}`)];

function histogram({ name, help }: typeof publishLatency, counts: readonly number[], sum: number): string[] {
  let below = 0;
  const buckets = counts.map((n, at) => {
    below += n;
    const le = at < ageBounds.length ? String(ageBounds[at]! / 1000) : "+Inf";
    return `${name}_bucket${written({ le })} ${below}`;
  });
  return [...head(name, help, "histogram"), ...buckets, `${name}_sum ${sum}`, `${name}_count ${below}`];
}

function gaugeLines<Of>(up: Described, gauges: readonly Gauge<Of>[], what: Of | null): readonly string[] {
  return [...lines(up, [[{}, what === null ? 0 : 1]]), ...(what === null ? [] : gauges.flatMap((each) => lines(each, each.of(what))))];
}

const head = (name: string, help: string, type: string): string[] => [`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`];

const inSeconds = (ms: number | null): number => (ms ?? 0) / 1000;

function ageOf(holder: Watch["writer"] | undefined): number | "unknown" | undefined {
  if (holder === undefined || holder === "unknown") return holder;
  if (holder === null) return 0;
  return holder.ageMs === "unknown" ? "unknown" : holder.ageMs / 1000;
}
