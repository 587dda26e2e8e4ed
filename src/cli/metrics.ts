import type { Watch } from "../contracts/housekeeping.ts";
import type { Status } from "../contracts/operator.ts";
import type { State } from "../core/event.ts";
import type { PathEvent } from "../core/path-events.ts";

type Labels = Readonly<Record<string, string>>;

/** Counts what this relay does, and shows it beside what the tables say, in Prometheus' text format. */
export interface Metrics {
  observe(event: PathEvent): void;
  /** Null when the store did not answer: the counters are shown all the same. */
  text(status: Status | null): string;
}

const counters: Readonly<Record<string, string>> = {
  waybill_claimed_total: "Events claimed by this relay.",
  waybill_published_total: "Events that the broker acknowledged to this relay.",
  waybill_failed_total: "Failed attempts that belong to an event.",
  waybill_deaths_total: "Events that became DEAD.",
  waybill_trouble_total: "Steps that went wrong, by step.",
  waybill_destination_opened_total: "Times a topic stopped taking events.",
  waybill_lanes_lost_total: "Lanes that another relay took over.",
  waybill_purged_total: "Published and discarded events that this relay deleted.",
  waybill_warnings_total: "Warnings of the watch over the tables, by what they are about.",
};

const labelled = ["waybill_trouble_total", "waybill_warnings_total"];

export function createMetrics(): Metrics {
  const totals = new Map<string, Map<string, number>>(
    Object.keys(counters).map((name) => [name, new Map(labelled.includes(name) ? [] : [["", 0]])]),
  );
  const add = (name: keyof typeof counters, by: number, labels: Labels = {}): void => {
    const series = totals.get(name)!;
    const key = written(labels);
    series.set(key, (series.get(key) ?? 0) + by);
  };
  return {
    observe(event) {
      if (event.type === "relay.claimed") add("waybill_claimed_total", event.count);
      if (event.type === "relay.published") add("waybill_published_total", event.count);
      if (event.type === "relay.failed") add("waybill_failed_total", 1);
      if (event.type === "relay.died") add("waybill_deaths_total", 1);
      if (event.type === "relay.trouble") add("waybill_trouble_total", 1, { step: event.step });
      if (event.type === "destination.opened") add("waybill_destination_opened_total", 1);
      if (event.type === "lanes.lost") add("waybill_lanes_lost_total", event.lanes.length);
      if (event.type === "housekeeping.done") add("waybill_purged_total", event.purged);
      if (event.type === "watch.warning") add("waybill_warnings_total", 1, { what: event.what });
    },
    text(status) {
      const lines = gauges(status);
      for (const [name, series] of totals) {
        lines.push(`# HELP ${name} ${counters[name]!}`, `# TYPE ${name} counter`);
        for (const [labels, value] of series) lines.push(`${name}${labels} ${value}`);
      }
      return `${lines.join("\n")}\n`;
    },
  };
}

function gauges(status: Status | null): string[] {
  const lines: string[] = [];
  const gauge = (name: string, help: string, series: readonly (readonly [Labels, number])[]): void => {
    lines.push(`# HELP ${name} ${help}`, `# TYPE ${name} gauge`, ...series.map(([labels, value]) => `${name}${written(labels)} ${value}`));
  };
  gauge("waybill_store_up", "1 when the store answers, within ten seconds.", [[{}, status === null ? 0 : 1]]);
  if (status === null) return lines;
  gauge(
    "waybill_events",
    "Events in the outbox, by state.",
    Object.entries(status.states).map(([state, n]) => [{ state }, n] as const),
  );
  gauge(
    "waybill_events_estimated",
    "1 when waybill_events of this state is an estimate: beyond 100,000, events are not counted one by one.",
    (Object.keys(status.states) as State[]).map((state) => [{ state }, status.estimated.includes(state) ? 1 : 0] as const),
  );
  gauge("waybill_oldest_unpublished_seconds", "Age of the oldest event that waits to be published; 0 when none does.", [
    [{}, (status.oldestUnpublishedMs ?? 0) / 1000],
  ]);
  gauge("waybill_relays", "Relays whose lease has not run out.", [[{}, status.relays.filter(({ live }) => live).length]]);
  gauge("waybill_lanes", "Lanes that a relay owns, and free ones.", [
    [{ held: "owned" }, status.lanes.owned],
    [{ held: "free" }, status.lanes.free],
  ]);
  gauge("waybill_held_aggregates", "Aggregates that wait for an event of theirs or for their destination.", [
    [{}, status.holds.aggregates],
  ]);
  gauge(
    "waybill_waiting_aggregates",
    "Aggregates that wait for a destination, by topic.",
    status.breakers.map(({ destination, aggregates }) => [{ topic: destination }, aggregates] as const),
  );
  gauge("waybill_window_events", "Events claimed and not settled, over all relays.", [[{}, status.window.events]]);
  gauge("waybill_suspects", "Events of dead windows that wait to be tried alone.", [[{}, status.window.suspects]]);
  gauge("waybill_schema_version", "Version of the tables.", [[{}, status.schemaVersion]]);
  const watched = (name: string, help: string, value: number | "unknown" | undefined): void => {
    if (value !== undefined && value !== "unknown") gauge(name, help, [[{}, value]]);
  };
  const { watch } = status;
  watched("waybill_outbox_bytes", "Size of the outbox with its indexes.", watch?.bytes);
  watched("waybill_dead_rows", "Rows of the outbox that were deleted or replaced and are not cleaned up yet.", watch?.deadRows);
  watched(
    "waybill_oldest_writer_seconds",
    "Age of the oldest open transaction that has written; 0 when there is none.",
    ageOf(watch?.writer),
  );
  watched("waybill_horizon_seconds", "Age of what keeps dead rows from being cleaned up; 0 when nothing does.", ageOf(watch?.horizon));
  return lines;
}

function ageOf(holder: Watch["writer"] | undefined): number | "unknown" | undefined {
  if (holder === undefined || holder === "unknown") return holder;
  if (holder === null) return 0;
  return holder.ageMs === "unknown" ? "unknown" : holder.ageMs / 1000;
}

function written(labels: Labels): string {
  const pairs = Object.entries(labels).map(
    ([name, value]) => `${name}="${value.replace(/[\\"\n]/g, (c) => (c === "\n" ? "\\n" : `\\${c}`))}"`,
  );
  return pairs.length === 0 ? "" : `{${pairs.join(",")}}`;
}
